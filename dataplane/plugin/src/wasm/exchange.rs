//! What the two sides of an instance share: the router's, which polls it, and the functions that its plugin calls.
//!
//! The plugin's store belongs to the future that runs it, so nobody else reaches into it. What has to cross goes through
//! here. The packets of a call are lent for as long as a poll takes, and not a moment longer.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

use millrace_plugin_abi::binary::{MOST_PACKETS, RawFlowEnd};
use millrace_plugin_abi::{Instant, Output, Packets};

use super::fault::FaultCounts;
use super::staging::{Call, Step, WrongVerdict};

/// Ends of flows that wait for a plugin that is busy, at most.
const MOST_ENDS: usize = 1024;
/// Things that a plugin may have given in a slice.
const MOST_OUTPUTS: usize = 64;
/// Lines that a plugin may log in a second.
const LINES_A_SECOND: u32 = 10;
const SECOND: u64 = 1_000_000_000;

/// Something other than packets that a plugin is asked to do.
#[derive(Debug)]
pub(super) enum Job {
    /// A control message; arguments as JSON.
    Control { name: String, arguments: Vec<u8> },
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
pub(super) struct EndedFlow {
    pub raw: RawFlowEnd,
    pub state: Vec<u8>,
}

/// What both sides see.
pub(super) struct Exchange {
    packets: Option<NonNull<Packets<'static>>>,
    /// How far the packets of the call have come.
    pub call: Call,
    /// Bytes in the windows of the packets that the plugin has.
    pub lengths: [u16; MOST_PACKETS],
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
    /// What the driver was told last.
    pub step: Step,
    /// Whether the plugin has nothing to do and waits.
    pub idle: bool,
    /// Whether `reply` and `fail` are heard: only where something was asked.
    pub answering: bool,
    pub reply: Option<Vec<u8>>,
    pub failure: Option<String>,
    pub faults: FaultCounts,
    pub wrong: Option<WrongVerdict>,
    /// The same, until the router was told.
    pub untold: Option<WrongVerdict>,
    /// How often memory was refused.
    pub memory_refused: u64,
    /// What the plugin gave, and the router has not taken yet.
    outputs: VecDeque<Output>,
    log: LogLimit,
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

    /// Whether another line may be logged now; if not, it is counted.
    pub fn may_log(&mut self) -> bool {
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
    }
}

/// A handle on the exchange of an instance. There are two: the instance's, and that in its plugin's store.
pub(super) struct Shared(Rc<RefCell<Exchange>>);

/// Both handles are inside the same `WasmInstance`: one is its field, the other is in the store that its future owns. Neither
/// leaves this folder's modules, and the only place that makes a second one is `for_store`.
// SAFETY: so they are sent to another thread together, and used by one at a time. The packets' pointer is `None` whenever
// no poll goes on, and an instance isn't sent while it is borrowed for a poll; everything else in there is `Send`.
unsafe impl Send for Shared {}

impl Shared {
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(Exchange {
            packets: None,
            call: Call::default(),
            lengths: [0; MOST_PACKETS],
            flows: [0; MOST_PACKETS],
            ends: VecDeque::with_capacity(MOST_ENDS),
            ends_lost: 0,
            periodic: None,
            timer: None,
            job: None,
            outcome: None,
            step: Step::Wait,
            idle: false,
            answering: false,
            reply: None,
            failure: None,
            faults: FaultCounts::default(),
            wrong: None,
            untold: None,
            memory_refused: 0,
            outputs: VecDeque::new(),
            log: LogLimit::default(),
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

    /// Lets the plugin's functions reach `packets` while `poll` runs.
    #[inline]
    pub fn lend<R>(&self, packets: &mut Packets<'_>, poll: impl FnOnce() -> R) -> R {
        self.0.borrow_mut().packets = Some(NonNull::from(packets).cast());
        let _loan = Loan(self);
        poll()
    }
}

/// Takes packets back, even when the poll panics.
struct Loan<'a>(&'a Shared);

impl Drop for Loan<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.borrow_mut().packets = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        Shared::new()
    }

    #[test]
    fn packets_are_reached_during_the_loan_only() {
        let shared = shared();
        let count = || shared.with(|exchange| exchange.with_packets(|_, packets| packets.len()));
        assert_eq!(count(), None);
        let (mut none, mut verdicts) = ([], []);
        let mut packets = Packets::new(&mut none, &[], &[], &mut verdicts);
        assert_eq!(shared.lend(&mut packets, count), Some(0));
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
