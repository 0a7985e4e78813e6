//! Exchange: data shared between the router, which calls an instance of a plugin file, and the host
//! functions, which the plugin calls.
//!
//! A WebAssembly plugin runs in a future that owns the plugin's store, so no other code can access the store.
//! A shared object sees only a table of the router's functions. Therefore router and plugin exchange all data
//! through this module. The packets of a call are lent only while the plugin runs.
#![allow(unsafe_code)]

mod answer;
mod faults;
mod flow_ends;
mod memory;
mod outbox;
mod timers;

use std::cell::RefCell;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use millrace_plugin_abi::binary::{MOST_PACKETS, RawBacklog};
use millrace_plugin_abi::{Instant, Packets};
use millrace_units::PortId;

use crate::Manifest;
use crate::declaration::declared::interned;
use crate::declaration::maps::Maps;
use crate::runtime::raw_packet::raw_backlog;
use crate::runtime::service_state::ServiceState;

pub(crate) use answer::{Answer, Job, Jobs};
pub(crate) use faults::Faults;
pub(crate) use flow_ends::{EndedFlow, FlowEnds};
pub(crate) use memory::InstanceMemory;
pub(crate) use outbox::Outbox;
pub(crate) use timers::Timers;

/// Progress of a call with packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// Start time of the call.
    pub now: Instant,
    /// Whether the call has packets without a verdict.
    pub active: bool,
    /// Number of packets that have their verdicts. They are the first of the batch.
    pub settled: usize,
    /// Number of packets that the plugin handles now. They follow the packets with verdicts.
    pub under_way: usize,
}

impl Call {
    pub fn begin(now: Instant) -> Self {
        Self { now, active: true, settled: 0, under_way: 0 }
    }

    /// Returns the position of packet `number` among the packets that the plugin handles now; `None` if the
    /// plugin doesn't handle this packet now.
    pub fn place(&self, number: u32) -> Option<usize> {
        (number as usize).checked_sub(self.settled).filter(|place| *place < self.under_way)
    }
}

/// Data shared between the router and an instance.
pub(crate) struct Exchange {
    packets: Option<NonNull<Packets<'static>>>,
    /// Progress of the packets of the call.
    pub call: Call,
    /// Flow state block numbers of the packets that the plugin handles now, if it keeps flow state.
    pub flows: [u32; MOST_PACKETS],
    /// Ended flows of which the plugin has not been notified.
    pub ends: FlowEnds,
    /// Times of the plugin's timer calls.
    pub timers: Timers,
    /// Requests to the plugin, other than to process packets.
    pub jobs: Jobs,
    /// Whether the plugin waits because it has no work left.
    pub idle: bool,
    /// Clock ticks at the start of the plugin's current slice.
    pub since: u64,
    /// Reply to the current request.
    pub answer: Answer,
    /// Unreported faults after which the plugin continues to run.
    pub faults: Faults,
    /// Service state. It survives a restart of the plugin.
    pub service: ServiceState,
    /// Memory of a sandboxed plugin.
    pub memory: InstanceMemory,
    /// Shared maps that this instance writes, and maps of other instances that it reads.
    pub maps: Maps,
    /// Outputs of the plugin that the router hasn't collected yet.
    pub outbox: Outbox,
    /// Counters of the plugin. They survive a restart of the plugin.
    counters: Box<[(&'static str, u64)]>,
}

impl Exchange {
    /// Calls `look` with the packets lent to the plugin; returns `None` if none are lent.
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

    /// Returns the backlog of packet `number`; `None` if the plugin doesn't handle that packet now.
    pub fn backlog(&mut self, number: u32) -> Option<RawBacklog> {
        self.call.place(number)?;
        let look = |_: &mut Self, packets: &mut Packets<'_>| {
            ((number as usize) < packets.len()).then(|| raw_backlog(&packets.backlog(number as usize)))
        };
        self.with_packets(look).flatten()
    }

    /// Notes that the plugin handles the next `count` of the packets of a call now.
    #[inline]
    pub fn hand_out(&mut self, packets: &Packets<'_>, count: usize) {
        self.call.under_way = count;
        if count > 0 {
            self.outbox.note_packets(packets, self.call.now);
        }
    }

    /// Queues a log line, up to a rate limit.
    pub fn log(&mut self, level: u32, line: &[u8]) {
        self.outbox.log(self.call.now, level, line);
    }

    /// Queues a packet that the plugin created. Returns `false` if the queue is full, or if the packet is
    /// empty or too long.
    pub fn make(&mut self, content: &[u8], port: u32) -> bool {
        let Ok(port) = u16::try_from(port) else { return false };
        let passes = self.with_packets(|_, packets| packets.passes());
        self.outbox.packet(content, PortId(port), passes, self.call.now)
    }

    /// Schedules a call of `millrace_periodic`, `nanoseconds` after the start of the current call.
    pub fn set_timer(&mut self, nanoseconds: u64) {
        self.timers.wanted = Some(self.call.now + Duration::from_nanos(nanoseconds));
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

    /// Begins the timer call at the time `now`.
    pub fn begin_periodic(&mut self, now: Instant) {
        self.timers.begin(now);
        self.call.now = now;
    }

    /// Discards all calls and requests in progress, for a restart of the plugin.
    pub fn restart(&mut self) {
        self.call = Call::default();
        self.memory.release();
        self.ends.clear();
        self.timers.clear();
        (self.jobs, self.answer) = (Jobs::default(), Answer::default());
        self.idle = false;
        self.maps.has_begun = false;
    }
}

/// Handle on the exchange of an instance. A WebAssembly plugin has two handles: one in its instance, one in
/// its store.
pub(crate) struct Shared(Rc<RefCell<Exchange>>);

/// Both handles are inside the same `WasmInstance`: one is a field of its process, the other is in the store
/// that its future owns. Neither handle leaves the modules of file plugins, and only `for_store` makes a second
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
            ends: FlowEnds::default(),
            timers: Timers::new(manifest),
            jobs: Jobs::default(),
            idle: false,
            since: 0,
            answer: Answer::default(),
            faults: Faults::default(),
            service: ServiceState::new(manifest.state.service),
            memory: InstanceMemory::default(),
            maps: Maps::default(),
            outbox: Outbox::new(manifest.requests(), manifest.has_capability("packet-make")),
            counters: manifest.counters.iter().map(|name| (interned(name), 0)).collect(),
        })))
    }

    /// Returns a second handle, for the store. The handle of an earlier store must be dropped.
    pub fn for_store(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    /// Calls `look` with the exchange. `look` must not run code of the plugin.
    #[inline]
    pub fn with<R>(&self, look: impl FnOnce(&mut Exchange) -> R) -> R {
        look(&mut self.0.borrow_mut())
    }

    /// Lends `packets` to the host functions while `call` runs.
    #[inline]
    pub fn lend<R>(&self, packets: &mut Packets<'_>, call: impl FnOnce() -> R) -> R {
        self.give_time(Some(packets), 0, call).0
    }

    /// Runs the plugin by calling `poll`, and lends `packets` to the host functions during that time. `since`
    /// is the clock tick at which the plugin's slice starts. Returns the result of `poll`, and whether the
    /// plugin has no work left.
    #[inline]
    pub fn give_time<R>(
        &self,
        packets: Option<&mut Packets<'_>>,
        since: u64,
        poll: impl FnOnce() -> R,
    ) -> (R, bool) {
        self.with(|exchange| {
            // Reset `idle`: the plugin may be stopped before it sets the value again.
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
}
