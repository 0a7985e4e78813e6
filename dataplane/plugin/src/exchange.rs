//! What the two sides of an instance of a plugin that is a file share: the router's, which calls it, and the functions that its
//! plugin calls.
//!
//! In WebAssembly the plugin's store belongs to the future that runs it, so nobody else reaches into it. A shared object knows
//! the router by a table of functions only. What has to cross goes through here. The packets of a call are lent for as long as
//! the plugin runs, and not a moment longer.
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
use crate::declared::interned;
use crate::fault::{FaultCounts, FaultKind};
use crate::maps::Maps;
use crate::raw_packet::{Written, WrongVerdict, raw_backlog, verdict_of};
use crate::service_state::ServiceState;

/// Ends of flows that wait for a plugin that is busy, at most.
const MOST_ENDS: usize = 1024;
/// Things that a plugin may have given in a slice.
const MOST_OUTPUTS: usize = 64;
/// Lines that a plugin may log in a second.
const LINES_A_SECOND: u32 = 10;
const SECOND: u64 = 1_000_000_000;
/// Bytes of a line of the log, or of the reason for a failure, at most; the rest is cut off.
const MOST_TEXT: usize = 1024;
/// Bytes of a packet that a plugin makes, at most.
const MOST_MADE: usize = 9000;
/// Bytes of a message to the other half, at most.
const MOST_MESSAGE: usize = 16 << 10;
/// Bytes of a request, at most.
const MOST_REQUEST: usize = 64 << 10;

/// How far the packets of a call have come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// When it began.
    pub now: Instant,
    /// Whether there are packets that have no verdict yet.
    pub active: bool,
    /// Packets at places below have their verdicts.
    pub settled: usize,
    /// So many after those are with the plugin.
    pub under_way: usize,
}

impl Call {
    pub fn begin(now: Instant) -> Self {
        Self { now, active: true, settled: 0, under_way: 0 }
    }

    /// The place in the plugin's call of the packet with a number; `None` when the plugin doesn't have it.
    pub fn place(&self, number: u32) -> Option<usize> {
        (number as usize).checked_sub(self.settled).filter(|place| *place < self.under_way)
    }
}

/// Something other than packets that a plugin is asked to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// A control message; arguments as JSON.
    Control { name: String, arguments: Vec<u8> },
    /// To hear a message of its other half.
    Message(Vec<u8>),
    /// To hand its state over.
    Save,
    /// To take over state that was saved under a version.
    Restore { state: Vec<u8>, version: u32 },
}

/// What a plugin may write in the log.
#[derive(Debug, Default)]
struct LogLimit {
    second: u64,
    lines: u32,
    suppressed: u64,
}

/// A flow that has ended, and the state that the plugin kept for it.
#[derive(Debug, Default)]
pub(crate) struct EndedFlow {
    pub raw: RawFlowEnd,
    pub state: Vec<u8>,
}

/// What both sides see.
pub(crate) struct Exchange {
    packets: Option<NonNull<Packets<'static>>>,
    /// How far the packets of the call have come.
    pub call: Call,
    /// Numbers of the flows of the packets that the plugin has, where it keeps state for flows.
    pub flows: [u32; MOST_PACKETS],
    ends: VecDeque<EndedFlow>,
    /// Ends of flows that found no room.
    pub ends_lost: u64,
    /// The time at which `millrace_periodic` is to be called.
    pub periodic: Option<Instant>,
    /// When the plugin wants it to be called.
    pub timer: Option<Instant>,
    /// What is asked of the plugin.
    pub job: Option<Job>,
    /// What came of it: the reply, or why not.
    pub outcome: Option<Result<Vec<u8>, String>>,
    /// Whether the plugin has nothing to do and waits.
    pub idle: bool,
    /// Ticks of the clock when it was last given time.
    pub since: u64,
    /// Whether `reply` and `fail` are heard: only where something was asked.
    answering: bool,
    reply: Option<Vec<u8>>,
    failure: Option<String>,
    pub faults: FaultCounts,
    pub wrong: Option<WrongVerdict>,
    /// The same, until the router was told.
    pub untold: Option<WrongVerdict>,
    /// A function that was called without its capability, until the router was told.
    not_granted: Option<&'static str>,
    /// State that is common to all flows. It outlives the plugin.
    pub service: ServiceState,
    /// Maps of this and other instances.
    pub maps: Maps,
    /// How often memory was refused.
    pub memory_refused: u64,
    /// What the plugin gave, and the router has not taken yet.
    outputs: VecDeque<Output>,
    log: LogLimit,
    /// What the plugin may ask control for.
    requests: RequestKinds,
    /// Its counters. They outlive it.
    counters: Box<[(&'static str, u64)]>,
}

impl Exchange {
    /// Does something with the packets that are lent; `None` when none are.
    #[inline]
    pub fn with_packets<R>(
        &mut self,
        look: impl for<'p> FnOnce(&mut Self, &mut Packets<'p>) -> R,
    ) -> Option<R> {
        let mut lent = self.packets.take()?;
        // SAFETY: `Shared::lend` holds the exclusive reference that this was made of until it has taken the pointer back,
        // and taking it out of its place here keeps a second one from being made. `look` takes packets of any lifetime,
        // so it can't keep anything of them.
        let result = look(self, unsafe { lent.as_mut() });
        self.packets = Some(lent);
        Some(result)
    }

    /// What waits before the packet of a number; `None` when the plugin doesn't have it.
    pub fn backlog(&mut self, number: u32) -> Option<RawBacklog> {
        self.call.place(number)?;
        let look = |_: &mut Self, packets: &mut Packets<'_>| {
            ((number as usize) < packets.len()).then(|| raw_backlog(&packets.backlog(number as usize)))
        };
        self.with_packets(look).flatten()
    }

    /// Puts the end of a flow where the plugin will find it. When it has not taken the last 1,024, this one is lost.
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

    /// Puts something where the router will take it; `false` when it has not taken the last 64.
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

    /// From now on the plugin is heard when it answers.
    pub fn listen(&mut self) {
        (self.answering, self.reply, self.failure) = (true, None, None);
    }

    /// What it answered, having returned `result`.
    ///
    /// # Errors
    /// Why not, in the plugin's words if it has any.
    pub fn answer(&mut self, result: i32) -> Result<Vec<u8>, String> {
        self.answering = false;
        let (reply, failure) = (self.reply.take(), self.failure.take());
        match (result, failure) {
            (0, None) => Ok(reply.unwrap_or_default()),
            (_, Some(failure)) => Err(failure),
            (_, None) => Err(format!("it returned {result} without an error message")),
        }
    }

    /// Hears why something fails.
    pub fn hear_failure(&mut self, text: &[u8]) {
        if self.answering {
            self.failure = Some(shown(text));
        }
    }

    /// Hears an answer.
    pub fn hear_reply(&mut self, reply: &[u8]) {
        if self.answering {
            self.reply = Some(reply.to_vec());
        }
    }

    /// Takes a line for the log.
    pub fn log(&mut self, level: u32, line: &[u8]) {
        if self.may_log() {
            self.give(Output::Log(LogLevel::from_number(level), shown(line)));
        }
    }

    /// Takes a packet of the plugin's own; `false` when there is no room, or it is too long or empty.
    pub fn make(&mut self, content: &[u8], port: u32) -> bool {
        let Ok(port) = u16::try_from(port) else { return false };
        let fits = !content.is_empty() && content.len() <= MOST_MADE;
        let passes = self.with_packets(|_, packets| packets.passes()).unwrap_or(0);
        fits && self.give(Output::Packet { bytes: content.to_vec(), port: PortId(port), passes })
    }

    /// Has `millrace_periodic` be called so many nanoseconds after the call that goes on.
    pub fn set_timer(&mut self, nanoseconds: u64) {
        self.timer = Some(self.call.now + Duration::from_nanos(nanoseconds));
    }

    /// Takes a request; `false` when there is no room, or it is no text or too long.
    pub fn request(&mut self, json: &[u8]) -> bool {
        let Ok(json) = std::str::from_utf8(json) else { return false };
        let request = || Request { json: json.to_owned(), granted: self.requests };
        json.len() <= MOST_REQUEST && self.give(Output::Request(request()))
    }

    /// Adds to a counter; nothing where it has none of that number.
    pub fn count(&mut self, counter: u32, number: u64) {
        if let Some((_, count)) = self.counters.get_mut(counter as usize) {
            *count = count.wrapping_add(number);
        }
    }

    /// Its counters, by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.to_vec()
    }

    /// Takes a message to the other half; `false` when there is no room, or it is too long.
    pub fn send(&mut self, message: &[u8]) -> bool {
        message.len() <= MOST_MESSAGE && self.give(Output::Message(message.to_vec()))
    }

    /// The verdict of what a plugin wrote. One that makes no sense is counted, and kept to be told.
    #[inline]
    pub fn judge(&mut self, written: Written) -> Result<Verdict, WrongVerdict> {
        let verdict = verdict_of(written);
        if let Err(wrong) = verdict {
            self.faults.count(FaultKind::WrongVerdict);
            (self.wrong, self.untold) = (Some(wrong), Some(wrong));
        }
        verdict
    }

    /// Notes that the plugin called a function whose capability its manifest doesn't name.
    #[cold]
    pub fn refuse(&mut self, function: &'static str) {
        self.faults.count(FaultKind::NotGranted);
        self.not_granted = Some(function);
    }

    /// What the plugin did wrong and goes on living, until it was told.
    pub fn take_fault(&mut self) -> Option<Fault> {
        if let Some(wrong) = self.untold.take() {
            return Some(Fault { kind: FaultKind::WrongVerdict.name(), text: wrong.to_string() });
        }
        let function = self.not_granted.take()?;
        let text = format!("it called {function}, whose capability its manifest doesn't name");
        Some(Fault { kind: FaultKind::NotGranted.name(), text })
    }

    /// Whether another line may be logged now; if not, it is counted.
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

    /// Lines that were not logged since there were too many.
    pub fn lines_suppressed(&self) -> u64 {
        self.log.suppressed
    }

    /// Forgets what was under way: the plugin begins anew.
    pub fn restart(&mut self) {
        self.call = Call::default();
        self.ends.clear();
        (self.periodic, self.timer, self.job, self.outcome) = (None, None, None, None);
        (self.idle, self.answering, self.reply, self.failure) = (false, false, None, None);
        self.maps.has_begun = false;
    }
}

/// A text as it is shown: its beginning, with what is no UTF-8 replaced.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..MOST_TEXT).unwrap_or(text)).into_owned()
}

/// A handle on the exchange of an instance. Of a WebAssembly plugin there are two: the instance's, and that in its store.
pub(crate) struct Shared(Rc<RefCell<Exchange>>);

/// Both handles are inside the same `WasmInstance`: one is its field, the other is in the store that its future owns. Neither
/// leaves the modules of plugins that are files, and the only place that makes a second one is `for_store`.
// SAFETY: so they are sent to another thread together, and used by one at a time. The packets' pointer is `None` whenever
// no poll goes on, and an instance isn't sent while it is borrowed for a poll; everything else in there is `Send`.
unsafe impl Send for Shared {}

impl Shared {
    /// The exchange of an instance of a plugin with this manifest.
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

    /// The second handle, which goes into the store. The one of an earlier store must be gone.
    pub fn for_store(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    /// Looks at the exchange. Plugin code must not run meanwhile.
    #[inline]
    pub fn with<R>(&self, look: impl FnOnce(&mut Exchange) -> R) -> R {
        look(&mut self.0.borrow_mut())
    }

    /// Lets the plugin's functions reach `packets` while `call` runs.
    #[inline]
    pub fn lend<R>(&self, packets: &mut Packets<'_>, call: impl FnOnce() -> R) -> R {
        self.give_time(Some(packets), 0, call).0
    }

    /// Gives the plugin time, by `poll`, at the clock's tick `since`, and lets its functions reach `packets` meanwhile. Whether
    /// it has nothing more to do afterwards.
    #[inline]
    pub fn give_time<R>(
        &self,
        packets: Option<&mut Packets<'_>>,
        since: u64,
        poll: impl FnOnce() -> R,
    ) -> (R, bool) {
        self.with(|exchange| {
            // What it said last no longer counts: it may be stopped before it asks what is next.
            (exchange.idle, exchange.since) = (false, since);
            exchange.packets = packets.map(|packets| NonNull::from(packets).cast());
        });
        let loan = Loan(self);
        let result = poll();
        (result, loan.end())
    }
}

/// Takes packets back, even when the poll panics.
struct Loan<'a>(&'a Shared);

impl Loan<'_> {
    /// Takes them back, and says whether the plugin has nothing more to do.
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
