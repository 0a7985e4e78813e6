//! Running process of an instance, as its worker sees it: sends requests, carries out host functions, and
//! takes over results.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_plugin_abi::process::{Broken, LOOKED, Layout, MOST_READ, Record, answer, load, request, store};
use millrace_plugin_abi::{Instant, ProcessWork, Progress};

use super::bell;
use super::functions::{self, UnknownKind};
use super::seat::Link;
use super::staging::Stage;
use super::work::{Reading, Work};
use crate::MOST_SERVICE_STATE;
use crate::fault::{Fault, FaultKind};
use crate::runtime::exchange::{EndedFlow, Exchange, Job, Shared};
use crate::runtime::native::table::Granted;
use crate::runtime::wasm::layout::flow_end_bytes;

/// Maximum number of answers, and bytes of answers, that the worker handles before it turns to other work.
const MOST_ANSWERS: usize = 64;
const MOST_ANSWER_BYTES: usize = 32 << 10;

/// Constant data of an instance that its process needs.
#[derive(Debug)]
pub(super) struct Terms {
    pub layout: Layout,
    pub writes: bool,
    pub granted: Granted,
    /// Version of the state format.
    pub version: u32,
    pub settings: Vec<u8>,
}

/// Request that the process carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Init,
    Packets,
    /// Request without a result.
    Errand,
    Control,
    Save,
    Restore,
}

/// Optional exports of a plugin.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Exports {
    pub hears_flow_ends: bool,
    pub saves: bool,
}

/// Running process of an instance.
#[derive(Debug)]
pub(super) struct Running {
    link: Link,
    step: Option<Step>,
    /// Number of requests that the process has carried out.
    answers: u64,
    /// Exports of the plugin; `None` before its initialisation.
    exports: Option<Exports>,
    work: Work,
}

/// Text of a broken exchange.
fn broken(error: &dyn std::fmt::Display) -> Fault {
    Fault::new(FaultKind::WrongAnswer, format!("its process broke the exchange: {error}"))
}

impl From<Broken> for Fault {
    fn from(error: Broken) -> Self {
        broken(&error)
    }
}

impl From<UnknownKind> for Fault {
    fn from(error: UnknownKind) -> Self {
        broken(&error)
    }
}

impl Running {
    pub fn new(link: Link) -> Self {
        Self { link, step: None, answers: 0, exports: None, work: Work::default() }
    }

    /// Returns the optional exports of the plugin; `None` before its initialisation.
    pub fn exports(&self) -> Option<Exports> {
        self.exports
    }

    /// Returns how many times longer than usual a call may take.
    pub fn patience(&self) -> u32 {
        self.link.tie.patience()
    }

    /// Returns the processor time that the process has consumed, if it is known.
    pub fn consumed(&self) -> Option<Duration> {
        self.link.tie.consumed()
    }

    /// Returns the number of requests that the process has carried out.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// Returns the work of the process so far.
    pub fn work(&self) -> ProcessWork {
        self.work.measure(self.reading())
    }

    fn reading(&self) -> Reading {
        let looked = self.link.region.words().get(LOOKED).map_or(0, |word| word.load(Ordering::Relaxed));
        Reading { consumed: self.consumed(), looked }
    }

    /// Takes over the answers that have arrived, and sends the next requests. Returns [`Progress::Done`] if no
    /// work is left.
    ///
    /// # Errors
    /// The fault that ends the process.
    pub fn go_on(&mut self, shared: &Shared, terms: &Terms) -> Result<Progress, Fault> {
        let Link { region, requests, .. } = &mut self.link;
        if requests.is_waiting() {
            requests.flush(region.words())?;
            bell::ring(region.bell());
        }
        let mut sum = 0;
        for _ in 0..MOST_ANSWERS {
            if self.step.is_none() && !shared.with(|exchange| self.begin(exchange, terms))? {
                return Ok(Progress::Done);
            }
            match self.take_answer(shared, terms)? {
                Some(bytes) if sum + bytes < MOST_ANSWER_BYTES => sum += bytes,
                _ => return Ok(Progress::Awaited),
            }
        }
        Ok(Progress::Awaited)
    }

    /// Handles the next answer. Returns its length in bytes; `None` if none has arrived.
    fn take_answer(&mut self, shared: &Shared, terms: &Terms) -> Result<Option<usize>, Fault> {
        let Self { link: Link { region, requests, answers, tie }, work, .. } = self;
        // Look for the end first: all answers of an ended process have arrived.
        let ended = tie.ended();
        let words = region.words();
        let Some(record) = answers.read(words)? else {
            return ended.map_or(Ok(None), |why| Err(Fault::new(FaultKind::Crash, why)));
        };
        let length = record.bytes.len();
        if requests.is_waiting() {
            // Requests that nobody reads would pile up here.
            return Err(broken(&"it answered before it had read the request"));
        }
        if record.kind == answer::DONE {
            let (code, bits) = (record.first as u32 as i32, record.second);
            shared.with(|exchange| self.finish(code, bits, exchange, terms))?;
            return Ok(Some(length));
        }
        let stage = Stage { words, layout: terms.layout, writes: terms.writes };
        let mut space = [0; MOST_READ];
        let called =
            shared.with(|exchange| functions::call(record, exchange, stage, terms.granted, &mut space));
        if let Some(result) = called? {
            requests.write(words, result)?;
            bell::ring(region.bell());
            work.wait();
        }
        Ok(Some(length))
    }

    /// Sends the next request. Returns `false` if no work is left.
    fn begin(&mut self, exchange: &mut Exchange, terms: &Terms) -> Result<bool, Fault> {
        let words = self.link.region.words();
        if exchange.service.is_news || self.exports.is_none() {
            show_service_state(words, &terms.layout, exchange);
            exchange.service.is_news = false;
        }
        if self.exports.is_none() {
            exchange.answer.listen();
            return self.send(Step::Init, request::INIT, 0, 0, &terms.settings);
        }
        if let Some(ended) = exchange.ends.pop() {
            return self.send_end(ended, terms);
        }
        if exchange.call.active {
            let stage = Stage { words, layout: terms.layout, writes: terms.writes };
            let staged = exchange.with_packets(|exchange, packets| stage.stage(exchange, packets));
            let count = staged.unwrap_or(0);
            exchange.call.active = count > 0;
            if count > 0 {
                let now = exchange.call.now.as_nanos();
                return self.send(Step::Packets, request::PACKETS, count as u64, now, &[]);
            }
        }
        if let Some(now) = exchange.timers.pending.take() {
            return self.send(Step::Errand, request::PERIODIC, now.as_nanos(), 0, &[]);
        }
        match exchange.jobs.pending.take() {
            Some(job) => self.send_job(job, exchange),
            None => {
                exchange.idle = true;
                Ok(false)
            }
        }
    }

    fn send(&mut self, step: Step, kind: u32, first: u64, second: u64, bytes: &[u8]) -> Result<bool, Fault> {
        let Link { region, requests, .. } = &mut self.link;
        bell::publish_processor(region.words());
        requests.write(region.words(), Record { kind, first, second, bytes })?;
        bell::ring(region.bell());
        self.work.wait();
        self.step = Some(step);
        Ok(true)
    }

    #[cold]
    fn send_end(&mut self, ended: EndedFlow, terms: &Terms) -> Result<bool, Fault> {
        let mut bytes = flow_end_bytes(&ended.raw).to_vec();
        if ended.state.len() == terms.layout.state {
            bytes.extend(&ended.state);
        }
        self.send(Step::Errand, request::FLOW_ENDED, 0, 0, &bytes)
    }

    #[cold]
    fn send_job(&mut self, job: Job, exchange: &mut Exchange) -> Result<bool, Fault> {
        if !matches!(job, Job::Message(_)) {
            exchange.answer.listen();
        }
        match job {
            Job::Control { name, arguments } => {
                let bytes = [name.as_bytes(), &arguments].concat();
                self.send(Step::Control, request::CONTROL, name.len() as u64, 0, &bytes)
            }
            Job::Message(bytes) => self.send(Step::Errand, request::MESSAGE, 0, 0, &bytes),
            Job::Save => self.send(Step::Save, request::SAVE, 0, 0, &[]),
            Job::Restore { state, version } => {
                self.send(Step::Restore, request::RESTORE, version.into(), 0, &state)
            }
        }
    }

    /// Ends the current request. `code` is the number that the plugin's function returned.
    fn finish(&mut self, code: i32, bits: u64, exchange: &mut Exchange, terms: &Terms) -> Result<(), Fault> {
        let words = self.link.region.words();
        self.answers += 1;
        match self.step.take() {
            None => return Err(broken(&"it ended a request that it did not have")),
            Some(Step::Packets) => {
                let stage = Stage { words, layout: terms.layout, writes: terms.writes };
                self.work.call(exchange.call.under_way);
                let collected = exchange.with_packets(|exchange, packets| stage.collect(exchange, packets));
                exchange.call.active = collected == Some(true);
            }
            Some(Step::Errand) => {}
            Some(Step::Init) => {
                exchange.answer.take(code).map_err(|problem| Fault::new(FaultKind::Init, problem))?;
                self.exports = Some(Exports {
                    hears_flow_ends: bits & answer::done::HEARS_FLOW_ENDS != 0,
                    saves: bits & answer::done::SAVES != 0,
                });
                exchange.maps.has_begun = true;
                self.link.tie.ready();
                let reading = self.reading();
                self.work.begin(reading);
            }
            Some(step) => {
                let answer = exchange.answer.take(code);
                let is_missing = bits & answer::done::MISSING != 0;
                exchange.jobs.outcome = Some(if is_missing { Err(missing(step, terms)) } else { answer });
            }
        }
        if terms.layout.service > 0 {
            take_service_state(words, &terms.layout, exchange);
        }
        Ok(())
    }
}

/// Takes over the service state that the process has written.
#[inline(never)]
fn take_service_state(words: &[AtomicU64], layout: &Layout, exchange: &mut Exchange) {
    let mut bytes = [0; MOST_SERVICE_STATE as usize];
    if let Some(bytes) = bytes.get_mut(..layout.service) {
        load(words.get(layout.service()..).unwrap_or_default(), bytes);
        exchange.service.write(bytes);
    }
}

/// Shows the service state to the process.
#[inline(never)]
fn show_service_state(words: &[AtomicU64], layout: &Layout, exchange: &mut Exchange) {
    let mut bytes = [0; MOST_SERVICE_STATE as usize];
    if let Some(bytes) = bytes.get_mut(..layout.service) {
        exchange.service.read(bytes);
        store(words.get(layout.service()..).unwrap_or_default(), bytes);
    }
}

/// Returns the error text for a request whose export the plugin lacks.
fn missing(step: Step, terms: &Terms) -> String {
    match step {
        Step::Restore => format!(
            "can't restore state (own state version {}): the plugin doesn't export millrace_restore",
            terms.version
        ),
        _ => "the plugin takes no messages: it doesn't export millrace_control".to_owned(),
    }
}

/// Begins a call with packets at the time `now`. Returns whether an earlier call was under way.
pub(super) fn begin_call(exchange: &mut Exchange, now: Instant) -> bool {
    std::mem::replace(&mut exchange.call, crate::runtime::exchange::Call::begin(now)).active
}

#[cfg(test)]
mod tests;
