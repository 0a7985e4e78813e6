//! Worker-side instance of a plugin that runs in a process.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant as Clock};

use millrace_plugin_abi::{
    FlowEnd, Instance, Instant, Message, Packets, PluginError, ProcessWork, Progress, Reply,
};
use serde_json::{Map, Value};

use super::plugin::{ProcessPlugin, layout};
use super::running::{Exports, Running, Terms, begin_call};
use super::seat::Seat;
use crate::declaration::declared::{arguments, parse_reply, settings_json, writes_packets};
use crate::fault::{Fault, FaultKind};
use crate::runtime::exchange::{Call, Exchange, Job, Shared};
use crate::runtime::file::{impl_plugin, methods_without_plugin_code};
use crate::runtime::native::table::Granted;
use crate::runtime::raw_packet::{raw_flow_end, settle};
use crate::{CallLimits, Manifest};

/// Maximum time until a new process has initialised its plugin.
pub const START: Duration = Duration::from_secs(10);
/// Multiple of the usual time limit that a call may wait while a process starts: at least [`START`].
const STARTING: u32 = START.as_millis().div_ceil(CallLimits::LEAST_AWAITED.as_millis()) as u32;
/// Maximum time of a control message for which the caller waits.
const CONTROL: Duration = Duration::from_secs(1);

/// Process of an instance.
enum State {
    /// The keeper starts a process.
    Starting,
    Running(Box<Running>),
    /// The process failed, for this reason. The instance waits for a restart.
    Dead(String),
}

impl State {
    /// Returns the work of the process that runs.
    fn work(&self) -> ProcessWork {
        match self {
            Self::Running(running) => running.work(),
            Self::Starting | Self::Dead(_) => ProcessWork::default(),
        }
    }
}

/// Instance of a plugin, a shared object or an executable, in a process of its own.
///
/// After a fault, an instance is dead: its packets get
/// [`Verdict::Fault`](millrace_plugin_abi::Verdict::Fault) until a restart. A restart starts another process.
/// Packets wait until that process is ready.
pub struct ProcessInstance {
    plugin: ProcessPlugin,
    seat: Arc<Seat>,
    state: State,
    /// Number of the latest process that the instance has had.
    number: u64,
    /// Work of the processes that have ended.
    ended: ProcessWork,
    shared: Shared,
    terms: Terms,
    exports: Exports,
    /// Name of the control message in progress.
    asked: Option<String>,
    /// Whether a state hand-over is in progress.
    hands_over: bool,
    /// Fault that nobody has collected yet.
    fault: Option<Fault>,
}

impl fmt::Debug for ProcessInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessInstance").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

impl Drop for ProcessInstance {
    fn drop(&mut self) {
        self.seat.retire();
    }
}

impl ProcessInstance {
    /// Creates an instance: starts a process, and waits until it has initialised the plugin with its settings.
    ///
    /// # Errors
    /// [`Fault`] if no process can be started, or if the plugin can't be loaded or refuses the settings.
    pub fn new(plugin: &ProcessPlugin, settings: &Map<String, Value>) -> Result<Self, Fault> {
        let manifest = plugin.manifest();
        let terms = Terms {
            layout: layout(manifest),
            writes: manifest.has_capability("packet-write"),
            granted: Granted::by(manifest),
            version: manifest.state.version,
            settings: settings_json(manifest, settings)?,
        };
        let seat = plugin.keeper().seat(plugin).map_err(|why| Fault::new(FaultKind::Init, why))?;
        let mut instance = Self {
            plugin: plugin.clone(),
            seat,
            state: State::Starting,
            number: 0,
            ended: ProcessWork::default(),
            shared: Shared::new(manifest),
            terms,
            exports: Exports::default(),
            asked: None,
            hands_over: false,
            fault: None,
        };
        if !instance.wait(START) {
            let why = format!("its process is not ready after {} s", START.as_secs());
            return Err(Fault::new(FaultKind::Init, why));
        }
        match instance.fault.take() {
            Some(fault) => Err(Fault { kind: FaultKind::Init, ..fault }),
            None => Ok(instance),
        }
    }

    /// Takes over the process that the keeper has started, if it is ready.
    #[cold]
    fn take_process(&mut self) {
        let Some((number, started)) = self.seat.take() else { return };
        self.number = number;
        match started {
            Ok(link) => self.state = State::Running(Box::new(Running::new(link))),
            Err(why) => self.die(Fault::new(FaultKind::Init, why)),
        }
    }

    /// Continues the call in progress, and begins new work. `packets` are the packets of the call.
    #[inline]
    fn go_on(&mut self, mut packets: Option<&mut Packets<'_>>) -> Progress {
        if matches!(self.state, State::Starting) {
            self.take_process();
        }
        let Self { state, shared, terms, exports, .. } = self;
        let running = match state {
            State::Starting => return Progress::Awaited,
            State::Running(running) => running,
            State::Dead(_) => {
                shared.with(|exchange| exchange.call = Call::default());
                packets.into_iter().for_each(|packets| settle(packets, 0));
                return Progress::Done;
            }
        };
        let (went, _) = shared.give_time(packets.as_deref_mut(), 0, || running.go_on(shared, terms));
        match went {
            Ok(progress) => {
                if let Some(known) = running.exports() {
                    *exports = known;
                }
                progress
            }
            Err(fault) => {
                let settled = shared.with(|exchange| exchange.call.settled);
                self.die(fault);
                packets.into_iter().for_each(|packets| settle(packets, settled));
                Progress::Done
            }
        }
    }

    /// Ends the process by a fault. The keeper kills it, if it still runs, and starts another one.
    #[cold]
    fn die(&mut self, fault: Fault) {
        let is_init = fault.kind == FaultKind::Init;
        self.ended += self.state.work();
        self.state = State::Dead(fault.to_string());
        self.fault = Some(fault);
        self.shared.with(Exchange::restart);
        // A start that failed would fail again: wait for the restart.
        if !is_init && self.seat.number() == self.number {
            self.seat.replace(self.number);
        }
    }

    #[cold]
    fn overrun(&mut self, what: &str) {
        match self.state {
            State::Running(_) => {
                self.die(Fault::new(FaultKind::Overrun, format!("{what} took too long and was aborted")));
            }
            // The process has no part in the call yet.
            State::Starting => self.shared.with(Exchange::restart),
            State::Dead(_) => {}
        }
    }

    /// Waits until no work is left. Returns `false` if that takes longer than `most`.
    #[expect(clippy::disallowed_methods, reason = "the caller waits, so the time that it knows stands still")]
    fn wait(&mut self, most: Duration) -> bool {
        let begun = Clock::now();
        while self.go_on(None) != Progress::Done {
            if begun.elapsed() > most {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Has the process do a job, and waits for its end. Returns the reply.
    fn work(&mut self, job: Job) -> Result<Vec<u8>, String> {
        self.begin_work(job)?;
        if !self.wait(CONTROL) {
            self.overrun("it");
        }
        self.take_outcome()
    }

    /// Begins a job of a state hand-over, or looks for its end. Returns the reply then.
    fn poll_work(&mut self, job: impl FnOnce() -> Job) -> Poll<Result<Vec<u8>, String>> {
        if !self.hands_over {
            self.begin_work(job())?;
            self.hands_over = true;
        }
        if self.go_on(None) != Progress::Done {
            return Poll::Pending;
        }
        self.hands_over = false;
        Poll::Ready(self.take_outcome())
    }

    fn begin_work(&mut self, job: Job) -> Result<(), String> {
        if let State::Dead(why) = &self.state {
            return Err(dead(why));
        }
        if self.asked.is_some() || self.shared.with(|exchange| exchange.call.active) {
            return Err("the instance is in the middle of a call; try again".to_owned());
        }
        self.shared.with(|exchange| exchange.jobs.begin(job));
        Ok(())
    }

    fn take_outcome(&mut self) -> Result<Vec<u8>, String> {
        let outcome = self.shared.with(|exchange| exchange.jobs.outcome.take());
        outcome.unwrap_or_else(|| match &self.state {
            State::Dead(why) => Err(dead(why)),
            _ => Err("the plugin gave no answer".to_owned()),
        })
    }

    fn control_job(&self, message: &Message) -> Result<Job, PluginError> {
        let arguments = arguments(self.plugin.declared().name, self.plugin.manifest(), message)?;
        Ok(Job::Control { name: message.name.clone(), arguments })
    }

    fn manifest(&self) -> &Manifest {
        self.plugin.manifest()
    }

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn refusal(&self, what: &str, problem: String) -> PluginError {
        PluginError::setting(self.plugin.declared().name, what, problem)
    }
}

impl ProcessPlugin {
    fn instance(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, Fault> {
        Ok(Box::new(ProcessInstance::new(self, settings)?))
    }
}

impl_plugin!(ProcessPlugin, |plugin| match plugin.form().is_executable() {
    true => Runtime::Executable,
    false => Runtime::Process,
});

fn dead(why: &str) -> String {
    format!("the instance failed, and restarts after a pause: {why}")
}

impl Instance for ProcessInstance {
    methods_without_plugin_code!();

    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        if self.shared.with(|exchange| begin_call(exchange, now)) {
            self.overrun("a call that was not resumed");
        }
        self.go_on(Some(packets))
    }

    fn writes_packets(&self) -> bool {
        writes_packets(self.plugin.manifest())
    }

    fn is_awaited(&self) -> bool {
        true
    }

    /// A start is limited in real time.
    fn consumed(&self) -> Option<Duration> {
        match &self.state {
            State::Running(running) if running.exports().is_some() => running.consumed(),
            _ => None,
        }
    }

    fn process_work(&self) -> ProcessWork {
        let mut work = self.ended;
        work += self.state.work();
        work
    }

    fn patience(&self) -> u32 {
        match &self.state {
            State::Running(running) => match running.exports() {
                Some(_) => running.patience(),
                None => STARTING.saturating_mul(running.patience()),
            },
            State::Starting => STARTING,
            State::Dead(_) => 1,
        }
    }

    fn answers(&self) -> u64 {
        match &self.state {
            State::Running(running) => running.answers(),
            State::Starting | State::Dead(_) => 0,
        }
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.go_on(Some(packets))
    }

    fn abort(&mut self) {
        self.hands_over = false;
        self.overrun("a call");
    }

    fn take_fault(&mut self) -> Option<millrace_plugin_abi::Fault> {
        let survived = self.shared.with(|exchange| exchange.faults.take());
        survived.or_else(|| {
            let fault = self.fault.take()?;
            Some(millrace_plugin_abi::Fault { kind: fault.kind.name(), text: fault.text })
        })
    }

    fn restart(&mut self) -> Result<(), PluginError> {
        (self.asked, self.hands_over, self.fault) = (None, false, None);
        self.shared.with(Exchange::restart);
        self.ended += self.state.work();
        self.state = State::Starting;
        if self.seat.number() == self.number {
            self.seat.replace(self.number);
        }
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        let job = self.control_job(message)?;
        let reply = self.work(job).and_then(|reply| parse_reply(&reply));
        reply.map_err(|problem| self.refusal(&message.name, problem))
    }

    fn begin_control(&mut self, message: &Message) -> Option<Reply> {
        let job = match (self.control_job(message), &self.state) {
            (Err(refused), _) => return Some(Err(refused)),
            (Ok(_), State::Dead(why)) => return Some(Err(self.refusal(&message.name, dead(why)))),
            (Ok(job), _) => job,
        };
        self.asked = Some(message.name.clone());
        self.shared.with(|exchange| exchange.jobs.begin(job));
        match self.go_on(None) {
            Progress::Done => self.take_reply(),
            Progress::Suspended | Progress::Awaited => None,
        }
    }

    fn take_reply(&mut self) -> Option<Reply> {
        let asked = self.asked.take()?;
        let reply = self.take_outcome().and_then(|reply| parse_reply(&reply));
        Some(reply.map_err(|problem| self.refusal(&asked, problem)))
    }

    fn next_call(&self) -> Option<Instant> {
        match self.state {
            State::Starting | State::Running(_) => self.shared.with(|exchange| exchange.timers.next()),
            State::Dead(_) => None,
        }
    }

    fn periodic(&mut self, now: Instant) -> Progress {
        self.shared.with(|exchange| exchange.begin_periodic(now));
        self.go_on(None)
    }

    fn message(&mut self, bytes: &[u8]) -> Progress {
        if matches!(self.state, State::Dead(_)) {
            return Progress::Done;
        }
        self.shared.with(|exchange| exchange.jobs.begin(Job::Message(bytes.to_vec())));
        self.go_on(None)
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        if !self.exports.saves {
            return Ok(None);
        }
        let saved = self.work(Job::Save);
        saved.map(Some).map_err(|problem| self.refusal("save", problem))
    }

    fn poll_save(&mut self) -> Poll<Result<Option<Vec<u8>>, PluginError>> {
        if !self.exports.saves {
            return Poll::Ready(Ok(None));
        }
        let saved = self.poll_work(|| Job::Save);
        saved.map(|saved| saved.map(Some).map_err(|problem| self.refusal("save", problem)))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let restored = self.work(Job::Restore { state: state.to_vec(), version });
        restored.map(drop).map_err(|problem| self.refusal("restore", problem))
    }

    fn poll_restore(&mut self, state: &[u8], version: u32) -> Poll<Result<(), PluginError>> {
        let restored = self.poll_work(|| Job::Restore { state: state.to_vec(), version });
        restored.map(|restored| restored.map(drop).map_err(|problem| self.refusal("restore", problem)))
    }

    fn flow_ended(&mut self, flow: &FlowEnd, state: &[u8]) -> Progress {
        if matches!(self.state, State::Dead(_)) {
            return Progress::Done;
        }
        let is_idle = self.shared.with(|exchange| {
            exchange.ends.push(raw_flow_end(flow), state);
            exchange.idle
        });
        // During a call, the end waits in the queue.
        if is_idle { self.go_on(None) } else { Progress::Done }
    }

    fn hears_flow_ends(&self) -> bool {
        self.exports.hears_flow_ends
    }
}
