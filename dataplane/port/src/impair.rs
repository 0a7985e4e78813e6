//! Wrapper that impairs a port's link: delay, jitter, loss, duplication, reordering, corruption and a rate
//! limit.
//!
//! The result is deterministic: the fate of the n-th packet of a direction depends on the settings, their
//! seed and the given times, never on a clock. Each direction has its own queue and random sequence.
//!
//! A packet passes these steps in order. It may be lost, and it may be duplicated. The packet and its
//! duplicate may each be corrupted. With a rate limit, packet and duplicate wait until the link has sent all
//! earlier packets. Then they wait for the delay.

use std::os::fd::RawFd;

use millrace_packet::{Batch, DropReason, Pool};
use millrace_units::Instant;

use crate::{Capabilities, Port, PortCounters};

mod link;
mod random;
mod settings;

use link::Link;
pub use settings::{ImpairError, Impairment, ImpairmentDirection};

/// Port whose link is impaired.
///
/// Its counters combine those of the inner port with the counts of the impairment. Let `given` be the number
/// of frames that `receive` returned, and `taken` the number of frames that `transmit` took. Then exactly:
/// received + taken + created = given + transmitted + drops + held. A packet that is lost, or finds the queue
/// full, counts as [`DropReason::Impaired`]; a duplicate as `created`; a waiting packet as `held`. Packets
/// that still wait when this value is dropped are lost.
pub struct Impair {
    inner: Box<dyn Port>,
    incoming: Option<Link>,
    outgoing: Option<Link>,
    scratch: Batch,
}

impl Impair {
    /// Impairs the link of `inner`.
    pub fn new(inner: Box<dyn Port>, settings: &Impairment) -> Result<Self, ImpairError> {
        settings.check()?;
        let direction = settings.direction;
        let incoming = (direction != ImpairmentDirection::Out).then(|| Link::new(settings, 0));
        let outgoing = (direction != ImpairmentDirection::In).then(|| Link::new(settings, 1));
        Ok(Self { inner, incoming, outgoing, scratch: Batch::new() })
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        self.incoming.iter().chain(&self.outgoing)
    }

    /// Sends outgoing packets that are due. Returns whether any packet was due.
    fn send_due(&mut self, pool: &Pool, now: Instant) -> bool {
        let Some(link) = &mut self.outgoing else { return false };
        let mut any = false;
        loop {
            link.release(now, &mut self.scratch);
            if self.scratch.is_empty() {
                return any;
            }
            any = true;
            self.inner.transmit(pool, now, &mut self.scratch);
        }
    }
}

impl Port for Impair {
    fn receive(&mut self, pool: &Pool, now: Instant, batch: &mut Batch) {
        if self.send_due(pool, now) {
            self.inner.flush(pool, now);
        }
        let Some(link) = &mut self.incoming else { return self.inner.receive(pool, now, batch) };
        self.inner.receive(pool, now, &mut self.scratch);
        for packet in self.scratch.drain() {
            link.enter(pool, now, packet);
        }
        link.release(now, batch);
    }

    fn transmit(&mut self, pool: &Pool, now: Instant, batch: &mut Batch) {
        let Some(link) = &mut self.outgoing else { return self.inner.transmit(pool, now, batch) };
        for packet in batch.drain() {
            link.enter(pool, now, packet);
        }
        self.send_due(pool, now);
    }

    fn flush(&mut self, pool: &Pool, now: Instant) {
        self.send_due(pool, now);
        self.inner.flush(pool, now);
    }

    fn counters(&mut self) -> PortCounters {
        let mut counters = self.inner.counters();
        for link in self.links() {
            counters.created += link.created();
            counters.drops.add(DropReason::Impaired, link.lost());
            counters.held += link.held();
        }
        counters
    }

    fn set_mtu(&mut self, mtu: u16, segment_mtu: u16) {
        self.inner.set_mtu(mtu, segment_mtu);
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.inner.descriptor()
    }

    fn has_arrivals(&self) -> Option<bool> {
        self.inner.has_arrivals()
    }

    fn next_event(&self) -> Option<Instant> {
        self.links().filter_map(Link::next_event).chain(self.inner.next_event()).min()
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished() && self.incoming.as_ref().is_none_or(|link| link.held() == 0)
    }
}

#[cfg(test)]
mod tests;
