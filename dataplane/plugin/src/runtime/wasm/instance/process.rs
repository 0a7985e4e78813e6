//! Running plugin of an instance, as a future that is polled for one slice at a time. A fault ends it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use millrace_plugin_abi::{Packets, Progress, Verdict};

use crate::fault::{Fault, FaultKind};
use crate::runtime::exchange::{Call, Exchange, Job, Shared};
use crate::runtime::raw_packet::settle;
use crate::runtime::wasm::code::WasmPlugin;
use crate::runtime::wasm::life::{self, Cause, End, Start};
use crate::runtime::wasm::ticker::Calls;

/// Maximum number of slices of an initialization, or of a job that runs to its end.
const MOST_SLICES: usize = 100;

/// Running plugin, or the fault that has ended it.
pub(super) struct Process {
    pub plugin: WasmPlugin,
    /// Record of the instance's calls, which the clock thread reads.
    calls: Arc<Calls>,
    /// Future that runs the plugin; `None` for a dead plugin. It must be dropped before `shared`, because it
    /// holds a second handle on the same exchange.
    life: Option<Pin<Box<dyn Future<Output = End> + Send>>>,
    pub shared: Shared,
    fault: Option<Fault>,
    /// Whether the caller has collected `fault`; also `true` if there is no fault.
    told: bool,
    /// Settings of the plugin as JSON.
    settings: Vec<u8>,
    most_memory: usize,
    /// Number of short calls in a row after which a function runs on the worker's stack; 0 for never. It survives
    /// a restart, because a plugin whose calls aren't short remains so.
    short_calls: u32,
    /// Number of calls that were cut because the router had misjudged their function as short.
    pub misjudged: u64,
}

impl Process {
    /// Prepares a plugin that doesn't run yet.
    pub fn new(plugin: WasmPlugin, settings: Vec<u8>, most_memory: usize) -> Self {
        let short_calls = plugin.sandbox().short_calls();
        let calls = plugin.sandbox().ticker().caller();
        let shared = Shared::new(plugin.manifest());
        Self {
            plugin,
            calls,
            life: None,
            shared,
            fault: None,
            told: true,
            settings,
            most_memory,
            short_calls,
            misjudged: 0,
        }
    }

    /// Ends the plugin if it runs, and starts it again. The counters stay.
    ///
    /// # Errors
    /// [`Fault`] if the plugin refuses the settings ([`FaultKind::Init`]), traps, or takes more than 100
    /// slices.
    pub fn restart(&mut self) -> Result<(), Fault> {
        self.life = None;
        (self.fault, self.told) = (None, true);
        self.shared.with(Exchange::restart);
        let (plugin, shared) = (self.plugin.clone(), self.shared.for_store());
        let (settings, most_memory, short_calls) =
            (self.settings.clone(), self.most_memory, self.short_calls);
        self.life = Some(Box::pin(life::run(plugin, shared, Start { settings, most_memory, short_calls })));
        if !self.finish() {
            self.overrun("its initialization");
        }
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// Whether the plugin runs: no fault has ended it.
    pub fn is_alive(&self) -> bool {
        self.life.is_some()
    }

    /// Whether a call with packets is suspended.
    pub fn is_suspended(&self) -> bool {
        self.shared.with(|exchange| exchange.call.active)
    }

    /// Returns the fault that ended the plugin; `None` for a live plugin.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Returns the reason that a dead plugin gives no answer.
    pub fn why_dead(&self) -> String {
        match &self.fault {
            Some(fault) => format!("the instance failed, and restarts after a pause: {fault}"),
            None => "the plugin gave no answer".to_owned(),
        }
    }

    /// Returns a fault that was not reported yet, if any. Faults after which the plugin continued come first,
    /// then the fault that ended the plugin.
    pub fn take_fault(&mut self) -> Option<millrace_plugin_abi::Fault> {
        let survived = self.shared.with(|exchange| exchange.faults.take());
        if survived.is_some() {
            return survived;
        }
        if std::mem::replace(&mut self.told, true) {
            return None;
        }
        let fault = self.fault.as_ref()?;
        Some(millrace_plugin_abi::Fault { kind: fault.kind.name(), text: fault.text.clone() })
    }

    /// Continues a call with packets. If the plugin is dead, all packets get
    /// [`Verdict::Fault`].
    #[inline]
    pub fn go_on_with(&mut self, packets: &mut Packets<'_>) -> Progress {
        if self.life.is_none() {
            self.shared.with(|exchange| exchange.call = Call::default());
            settle(packets, 0);
        }
        self.go_on(Some(packets))
    }

    /// Runs the plugin for about one slice. The plugin continues the call in progress and begins new work.
    /// `packets` are the packets of the call. Returns [`Progress::Done`] if no work is left, or if the plugin
    /// is dead.
    #[inline]
    pub fn go_on(&mut self, mut packets: Option<&mut Packets<'_>>) -> Progress {
        let Self { life: Some(life), shared, plugin, calls, .. } = self else {
            return Progress::Done;
        };
        let running = plugin.sandbox().ticker().start(calls);
        let poll = || life.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let (polled, idle) = shared.give_time(packets.as_deref_mut(), running.since(), poll);
        drop(running);
        match polled {
            Poll::Pending if idle => Progress::Done,
            Poll::Pending => Progress::Suspended,
            Poll::Ready(end) => self.end(end, packets),
        }
    }

    /// Handles the end of the plugin's life during a poll.
    #[cold]
    fn end(&mut self, End { cause, short_calls }: End, packets: Option<&mut Packets<'_>>) -> Progress {
        self.short_calls = short_calls;
        match cause {
            Cause::Misjudged { had_effect } => self.begin_again(had_effect, packets),
            Cause::Fault(fault) => {
                let settled = self.shared.with(|exchange| exchange.call.settled);
                self.die(fault);
                packets.into_iter().for_each(|packets| settle(packets, settled));
                Progress::Done
            }
        }
    }

    /// Starts the plugin again after the cut of a call on the worker's stack. Its packets are as before, unless
    /// the call `had_effect`: so the next poll repeats the call, which can then be suspended. After an effect,
    /// the packets of the call get [`Verdict::Fault`], and the others continue.
    #[cold]
    fn begin_again(&mut self, had_effect: bool, packets: Option<&mut Packets<'_>>) -> Progress {
        self.misjudged += 1;
        let (mut call, job) = self.shared.with(|exchange| (exchange.call, exchange.jobs.pending.take()));
        if self.restart().is_err() {
            packets.into_iter().for_each(|packets| settle(packets, call.settled));
            return Progress::Done;
        }
        let under_way = std::mem::take(&mut call.under_way);
        if let Some(packets) = packets.filter(|_| had_effect) {
            let end = packets.len().min(call.settled + under_way);
            (call.settled..end).for_each(|place| packets.set_verdict(place, Verdict::Fault));
            call.settled = end;
            call.active &= end < packets.len();
        }
        let is_done = !call.active && job.is_none();
        // Until the call is repeated, the end of a flow must wait in the queue.
        self.shared.with(|exchange| {
            (exchange.call, exchange.jobs.pending, exchange.idle) = (call, job, is_done);
        });
        if is_done { Progress::Done } else { Progress::Suspended }
    }

    /// Ends the plugin by a fault.
    #[cold]
    fn die(&mut self, fault: Fault) {
        self.life = None;
        self.shared.with(Exchange::restart);
        (self.fault, self.told) = (Some(fault), false);
    }

    /// Ends a running plugin because `what`, one of its calls, took too long.
    #[cold]
    pub fn overrun(&mut self, what: &str) {
        if self.life.is_some() {
            self.die(Fault::new(FaultKind::Overrun, format!("{what} took too long and was aborted")));
        }
    }

    /// Runs the plugin until no work is left or the plugin is dead. Returns `false` if 100 slices were not
    /// enough.
    fn finish(&mut self) -> bool {
        (0..MOST_SLICES).any(|_| self.go_on(None) == Progress::Done)
    }

    /// Begins a job of the plugin, and runs the plugin for one slice.
    pub fn begin(&mut self, job: Job) -> Progress {
        self.shared.with(|exchange| exchange.jobs.begin(job));
        self.go_on(None)
    }

    /// Removes and returns the result of the latest job.
    pub fn take_outcome(&mut self) -> Result<Vec<u8>, String> {
        let outcome = self.shared.with(|exchange| exchange.jobs.outcome.take());
        outcome.unwrap_or_else(|| Err(self.why_dead()))
    }

    /// Runs a job of the plugin to its end, and returns the result.
    pub fn work(&mut self, job: Job) -> Result<Vec<u8>, String> {
        if self.life.is_none() {
            return Err(self.why_dead());
        }
        // Refuse a new job while a call with packets is suspended.
        if self.is_suspended() {
            return Err("the instance is in the middle of a call; try again".to_owned());
        }
        self.shared.with(|exchange| exchange.jobs.begin(job));
        if !self.finish() {
            self.overrun("it");
        }
        self.take_outcome()
    }
}
