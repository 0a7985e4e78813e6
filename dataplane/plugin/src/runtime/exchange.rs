//! State shared by the two sides of a file plugin's instance: the router that calls the plugin, and the host
//! functions that the plugin calls.
//!
//! In WebAssembly the future that runs the plugin owns the plugin's store, so no other code can reach into
//! the store. A shared object sees only a table of the router's functions. All data between the two sides
//! therefore passes through this module. The packets of a call are lent only while the plugin runs.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use millrace_plugin_abi::binary::{MOST_PACKETS, RawBacklog, RawFlowEnd};
use millrace_plugin_abi::{Fault, Instant, LogLevel, Output, Packets, Request, RequestKinds, Verdict};
use millrace_units::PortId;

use crate::Manifest;
use crate::declaration::declared::interned;
use crate::declaration::maps::Maps;
use crate::fault::{FaultCounts, FaultKind};
use crate::runtime::raw_packet::{Written, WrongVerdict, raw_backlog, verdict_of};
use crate::runtime::service_state::ServiceState;

/// Maximum number of flow ends that wait for a busy plugin.
const MOST_ENDS: usize = 1024;
/// Maximum number of outputs of a plugin in a slice.
const MOST_OUTPUTS: usize = 64;
/// Maximum number of log lines of a plugin per second.
const LINES_A_SECOND: u32 = 10;
const SECOND: u64 = 1_000_000_000;
/// Maximum bytes of a log line or of an error text; the rest is cut off.
const MOST_TEXT: usize = 1024;
/// Maximum bytes of a packet that a plugin makes.
const MOST_MADE: usize = 9000;
/// Maximum bytes of a message to the host companion, or from it.
const MOST_MESSAGE: usize = 16 << 10;
/// Maximum bytes of a request.
const MOST_REQUEST: usize = 64 << 10;

/// Progress of the packets of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// Start time of the call.
    pub now: Instant,
    /// Whether any packet has no verdict yet.
    pub active: bool,
    /// Number of packets that have their verdicts; they precede the others in the batch.
    pub settled: usize,
    /// Number of packets that the plugin holds now; they follow the settled packets.
    pub under_way: usize,
}

impl Call {
    pub fn begin(now: Instant) -> Self {
        Self { now, active: true, settled: 0, under_way: 0 }
    }

    /// Returns the index of packet `number` in the plugin's call; `None` if the plugin doesn't hold the
    /// packet.
    pub fn place(&self, number: u32) -> Option<usize> {
        (number as usize).checked_sub(self.settled).filter(|place| *place < self.under_way)
    }
}

/// Request to a plugin other than the processing of packets.
#[derive(Debug)]
pub(crate) enum Job {
    /// Control message with its arguments as JSON.
    Control { name: String, arguments: Vec<u8> },
    /// Message from the other half of the plugin.
    Message(Vec<u8>),
    /// Request to save its state.
    Save,
    /// Request to restore state that the plugin saved under a state version.
    Restore { state: Vec<u8>, version: u32 },
}

/// Rate limit of the plugin's log lines.
#[derive(Debug, Default)]
struct LogLimit {
    second: u64,
    lines: u32,
    suppressed: u64,
}

/// Ended flow, with the state that the plugin kept for it.
#[derive(Debug, Default)]
pub(crate) struct EndedFlow {
    pub raw: RawFlowEnd,
    pub state: Vec<u8>,
}

/// Data shared between the router and the plugin.
pub(crate) struct Exchange {
    packets: Option<NonNull<Packets<'static>>>,
    /// Progress of the packets of the call.
    pub call: Call,
    /// Flow numbers of the packets that the plugin holds, if it keeps state for flows.
    pub flows: [u32; MOST_PACKETS],
    ends: VecDeque<EndedFlow>,
    /// Number of flow ends lost because the queue was full.
    pub ends_lost: u64,
    /// Time of the pending call of `millrace_periodic`.
    pub periodic: Option<Instant>,
    /// Time at which the plugin wants a call of `millrace_periodic`.
    pub timer: Option<Instant>,
    /// Pending request to the plugin.
    pub job: Option<Job>,
    /// Result of the latest request: the reply, or the error text.
    pub outcome: Option<Result<Vec<u8>, String>>,
    /// Whether the plugin has no work left and waits.
    pub idle: bool,
    /// Clock ticks at the start of the plugin's current slice.
    pub since: u64,
    /// Whether `reply` and `fail` take effect: only while a request is pending.
    answering: bool,
    reply: Option<Vec<u8>>,
    failure: Option<String>,
    pub faults: FaultCounts,
    pub wrong: Option<WrongVerdict>,
    /// The latest wrong verdict, until it is reported.
    pub untold: Option<WrongVerdict>,
    /// Name of a function that the plugin called without its capability, until it is reported.
    not_granted: Option<&'static str>,
    /// State common to all flows. This state survives a restart of the plugin.
    pub service: ServiceState,
    /// Maps of this instance and of other instances.
    pub maps: Maps,
    /// Number of refused memory requests.
    pub memory_refused: u64,
    /// Outputs of the plugin that the router has not taken yet.
    outputs: VecDeque<Output>,
    log: LogLimit,
    /// Kinds of requests to the control side that the plugin may make.
    requests: RequestKinds,
    /// Counters of the plugin. They survive a restart of the plugin.
    counters: Box<[(&'static str, u64)]>,
}

impl Exchange {
    /// Calls `look` with the lent packets; returns `None` if no packets are lent.
    #[inline]
    pub fn with_packets<R>(
        &mut self,
        look: impl for<'p> FnOnce(&mut Self, &mut Packets<'p>) -> R,
    ) -> Option<R> {
        let mut lent = self.packets.take()?;
        // SAFETY: `Shared::lend` holds the exclusive reference from which this pointer was made, until `lend`
        // has taken the pointer back. Taking the pointer out of `self.packets` prevents a second reference.
        // `look` accepts packets of any lifetime, so it can't keep a reference to them.
        let result = look(self, unsafe { lent.as_mut() });
        self.packets = Some(lent);
        Some(result)
    }

    /// Returns the backlog of packet `number`; `None` if the plugin doesn't hold the packet.
    pub fn backlog(&mut self, number: u32) -> Option<RawBacklog> {
        self.call.place(number)?;
        let look = |_: &mut Self, packets: &mut Packets<'_>| {
            ((number as usize) < packets.len()).then(|| raw_backlog(&packets.backlog(number as usize)))
        };
        self.with_packets(look).flatten()
    }

    /// Queues the end of a flow for the plugin. If 1,024 ends already wait, this one is lost.
    pub fn push_end(&mut self, raw: RawFlowEnd, state: &[u8]) {
        if self.ends.len() < MOST_ENDS {
            self.ends.push_back(EndedFlow { raw, state: state.to_vec() });
        } else {
            self.ends_lost = self.ends_lost.saturating_add(1);
        }
    }

    pub fn pop_end(&mut self) -> Option<EndedFlow> {
        self.ends.pop_front()
    }

    /// Queues an output for the router; returns `false` if 64 outputs already wait.
    pub fn give(&mut self, output: Output) -> bool {
        let room = self.outputs.len() < MOST_OUTPUTS;
        if room {
            self.outputs.push_back(output);
        }
        room
    }

    pub fn take_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Starts to accept a reply or an error text from the plugin; discards earlier ones.
    pub fn listen(&mut self) {
        (self.answering, self.reply, self.failure) = (true, None, None);
    }

    /// Returns the plugin's reply to a call that returned `result`.
    ///
    /// # Errors
    /// The error text of the plugin, or one with `result` if the plugin gave none.
    pub fn answer(&mut self, result: i32) -> Result<Vec<u8>, String> {
        self.answering = false;
        let (reply, failure) = (self.reply.take(), self.failure.take());
        match (result, failure) {
            (0, None) => Ok(reply.unwrap_or_default()),
            (_, Some(failure)) => Err(failure),
            (_, None) => Err(format!("the plugin returned {result} without an error message")),
        }
    }

    /// Records the error text of a failed request.
    pub fn hear_failure(&mut self, text: &[u8]) {
        if self.answering {
            self.failure = Some(shown(text));
        }
    }

    /// Records the reply to a request.
    pub fn hear_reply(&mut self, reply: &[u8]) {
        if self.answering {
            self.reply = Some(reply.to_vec());
        }
    }

    /// Queues a log line.
    pub fn log(&mut self, level: u32, line: &[u8]) {
        if self.may_log() {
            self.give(Output::Log(LogLevel::from_number(level), shown(line)));
        }
    }

    /// Queues a packet that the plugin made; returns `false` if the queue is full, or the packet is too long
    /// or empty.
    pub fn make(&mut self, content: &[u8], port: u32) -> bool {
        let Ok(port) = u16::try_from(port) else { return false };
        let fits = !content.is_empty() && content.len() <= MOST_MADE;
        let passes = self.with_packets(|_, packets| packets.passes()).unwrap_or(0);
        fits && self.give(Output::Packet { bytes: content.to_vec(), port: PortId(port), passes })
    }

    /// Schedules `millrace_periodic` this number of nanoseconds after the time of the current call.
    pub fn set_timer(&mut self, nanoseconds: u64) {
        self.timer = Some(self.call.now + Duration::from_nanos(nanoseconds));
    }

    /// Queues a request; returns `false` if the queue is full, or the request is no UTF-8 or too long.
    pub fn request(&mut self, json: &[u8]) -> bool {
        let Ok(json) = std::str::from_utf8(json) else { return false };
        let request = || Request { json: json.to_owned(), granted: self.requests };
        json.len() <= MOST_REQUEST && self.give(Output::Request(request()))
    }

    /// Adds `number` to a counter. Does nothing if the counter doesn't exist.
    pub fn count(&mut self, counter: u32, number: u64) {
        if let Some((_, count)) = self.counters.get_mut(counter as usize) {
            *count = count.wrapping_add(number);
        }
    }

    /// Returns the counters with their names.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.to_vec()
    }

    /// Queues a message to the other half of the plugin; returns `false` if the queue is full or the message
    /// is too long.
    pub fn send(&mut self, message: &[u8]) -> bool {
        message.len() <= MOST_MESSAGE && self.give(Output::Message(message.to_vec()))
    }

    /// Converts the plugin's answer into a verdict. Counts a wrong verdict, and keeps it for the report.
    #[inline]
    pub fn judge(&mut self, written: Written) -> Result<Verdict, WrongVerdict> {
        let verdict = verdict_of(written);
        if let Err(wrong) = verdict {
            self.faults.count(FaultKind::WrongVerdict);
            (self.wrong, self.untold) = (Some(wrong), Some(wrong));
        }
        verdict
    }

    /// Counts a call of a function whose capability the plugin's manifest doesn't request.
    #[cold]
    pub fn refuse(&mut self, function: &'static str) {
        self.faults.count(FaultKind::NotGranted);
        self.not_granted = Some(function);
    }

    /// Takes the report of a fault that the plugin survives; `None` without such a fault.
    pub fn take_fault(&mut self) -> Option<Fault> {
        if let Some(wrong) = self.untold.take() {
            return Some(Fault { kind: FaultKind::WrongVerdict.name(), text: wrong.to_string() });
        }
        let function = self.not_granted.take()?;
        let text =
            format!("the plugin called {function}, but its manifest lacks the capability for this function");
        Some(Fault { kind: FaultKind::NotGranted.name(), text })
    }

    /// Whether the rate limit admits another log line; otherwise counts the line as suppressed.
    fn may_log(&mut self) -> bool {
        let second = self.call.now.as_nanos() / SECOND;
        if second != self.log.second {
            (self.log.second, self.log.lines) = (second, 0);
        }
        if self.log.lines == LINES_A_SECOND {
            self.log.suppressed = self.log.suppressed.saturating_add(1);
            return false;
        }
        self.log.lines += 1;
        true
    }

    /// Returns the number of log lines that the rate limit suppressed.
    pub fn lines_suppressed(&self) -> u64 {
        self.log.suppressed
    }

    /// Resets the state of calls in progress for a restart of the plugin.
    pub fn restart(&mut self) {
        self.call = Call::default();
        self.ends.clear();
        (self.periodic, self.timer, self.job, self.outcome) = (None, None, None, None);
        (self.idle, self.answering, self.reply, self.failure) = (false, false, None, None);
        self.maps.has_begun = false;
    }
}

/// Returns the beginning of `text`, with invalid UTF-8 replaced.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..MOST_TEXT).unwrap_or(text)).into_owned()
}

/// Handle on the exchange of an instance. A WebAssembly plugin has two handles: one in the instance, one in
/// its store.
pub(crate) struct Shared(Rc<RefCell<Exchange>>);

/// Both handles are inside the same `WasmInstance`: one is its field, the other is in the store that its
/// future owns. Neither handle leaves the modules of file plugins, and only `for_store` makes a second
/// handle.
// SAFETY: both handles move to another thread together, and one thread at a time uses them. The packet
// pointer is `None` whenever no poll runs, and nobody can send an instance that a poll borrows. All other
// fields are `Send`.
unsafe impl Send for Shared {}

impl Shared {
    /// Creates the exchange of an instance from the plugin's manifest.
    pub fn new(manifest: &Manifest) -> Self {
        Self(Rc::new(RefCell::new(Exchange {
            packets: None,
            call: Call::default(),
            flows: [0; MOST_PACKETS],
            ends: VecDeque::with_capacity(MOST_ENDS),
            ends_lost: 0,
            periodic: None,
            timer: None,
            job: None,
            outcome: None,
            idle: false,
            since: 0,
            answering: false,
            reply: None,
            failure: None,
            faults: FaultCounts::default(),
            wrong: None,
            untold: None,
            not_granted: None,
            service: ServiceState::new(manifest.service_state),
            maps: Maps::default(),
            memory_refused: 0,
            outputs: VecDeque::new(),
            log: LogLimit::default(),
            requests: manifest.requests(),
            counters: manifest.counters.iter().map(|name| (interned(name), 0)).collect(),
        })))
    }

    /// Returns a second handle, for the store. The handle of an earlier store must be dropped.
    pub fn for_store(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    /// Calls `look` with the exchange. No plugin code may run meanwhile.
    #[inline]
    pub fn with<R>(&self, look: impl FnOnce(&mut Exchange) -> R) -> R {
        look(&mut self.0.borrow_mut())
    }

    /// Lends `packets` to the plugin's functions while `call` runs.
    #[inline]
    pub fn lend<R>(&self, packets: &mut Packets<'_>, call: impl FnOnce() -> R) -> R {
        self.give_time(Some(packets), 0, call).0
    }

    /// Runs the plugin by `poll` and lends `packets` to its functions meanwhile. `since` is the current clock
    /// tick. Also returns whether the plugin has no work left.
    #[inline]
    pub fn give_time<R>(
        &self,
        packets: Option<&mut Packets<'_>>,
        since: u64,
        poll: impl FnOnce() -> R,
    ) -> (R, bool) {
        self.with(|exchange| {
            // The earlier value is obsolete: the plugin may be stopped before it asks for its next job.
            (exchange.idle, exchange.since) = (false, since);
            exchange.packets = packets.map(|packets| NonNull::from(packets).cast());
        });
        let loan = Loan(self);
        let result = poll();
        (result, loan.end())
    }
}

/// Guard that takes the packets back even if the poll panics.
struct Loan<'a>(&'a Shared);

impl Loan<'_> {
    /// Takes the packets back, and returns whether the plugin has no work left.
    #[inline]
    fn end(self) -> bool {
        let idle = self.0.take_back();
        std::mem::forget(self);
        idle
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.0.take_back();
    }
}

impl Shared {
    #[inline]
    fn take_back(&self) -> bool {
        self.with(|exchange| {
            exchange.packets = None;
            exchange.idle
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        let manifest =
            br#"{"abi": 1, "name": "a", "version": "1.0.0", "summary": "x", "positions": ["late"]}"#;
        Shared::new(&Manifest::parse(manifest).unwrap())
    }

    #[test]
    fn packets_are_reached_during_the_loan_only() {
        let shared = shared();
        let count = || shared.with(|exchange| exchange.with_packets(|_, packets| packets.len()));
        assert_eq!(count(), None);
        let (mut none, mut verdicts) = ([], []);
        let mut packets = Packets::new(&mut none, &[], &[], &mut verdicts);
        assert_eq!(shared.give_time(Some(&mut packets), 7, count), (Some(0), false));
        assert_eq!(count(), None);
    }

    #[test]
    fn packets_can_be_reached_once_at_a_time() {
        let shared = shared();
        let (mut none, mut verdicts) = ([], []);
        let mut packets = Packets::new(&mut none, &[], &[], &mut verdicts);
        let twice = || shared.with(|one| one.with_packets(|one, _| one.with_packets(|_, _| ()).is_some()));
        assert_eq!(shared.lend(&mut packets, twice), Some(false));
    }

    #[test]
    fn ten_lines_a_second_get_through() {
        let shared = shared();
        shared.with(|exchange| {
            assert_eq!((0..15).filter(|_| exchange.may_log()).count(), 10);
            assert_eq!(exchange.lines_suppressed(), 5);
            exchange.call.now = Instant::from_millis(1000);
            assert!(exchange.may_log());
        });
    }

    #[test]
    fn ends_of_flows_wait_up_to_a_limit() {
        let shared = shared();
        shared.with(|exchange| {
            (0..MOST_ENDS + 3).for_each(|_| exchange.push_end(RawFlowEnd::default(), &[]));
            assert_eq!(exchange.ends_lost, 3);
            assert_eq!(std::iter::from_fn(|| exchange.pop_end()).count(), MOST_ENDS);
        });
    }
}
