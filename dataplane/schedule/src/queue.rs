//! One queue: a cache line. What is seldom touched stands apart.

use crate::DropCounts;
use crate::aqm::{Aqm, AqmState};
use crate::arena::{List, Load, NONE};

/// What a queue may be told, also while it holds packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueueSettings {
    /// Discard threshold in bytes: while the queue holds more, arriving packets are dropped (NPR, section 2.1).
    pub threshold: u32,
    /// Active queue management.
    pub aqm: Aqm,
}

impl Default for QueueSettings {
    /// 256 KiB and tail drop.
    fn default() -> Self {
        Self { threshold: 256 << 10, aqm: Aqm::TailDrop }
    }
}

/// A queue. `next` links it into a round; while it is in none, its user may note something else there.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub list: List,
    pub quantum: u32,
    pub deficit: i32,
    pub threshold: u32,
    pub next: u32,
    pub flow: u32,
    /// Its [`Cold`] part, or [`NONE`].
    pub cold: u32,
    peak_bytes: u32,
    peak_packets: u32,
    /// Packets that left to be sent, and their bytes.
    sent_packets: u64,
    sent_bytes: u64,
}

const _: () = assert!(size_of::<Queue>() == 64);

impl Queue {
    pub fn new(threshold: u32) -> Self {
        Self {
            list: List::EMPTY,
            quantum: 0,
            deficit: 0,
            threshold,
            next: NONE,
            flow: 0,
            cold: NONE,
            peak_bytes: 0,
            peak_packets: 0,
            sent_packets: 0,
            sent_bytes: 0,
        }
    }

    /// Whether active queue management, or anything else, has a part in what becomes of its packets.
    #[inline]
    pub fn is_managed(&self) -> bool {
        self.cold != NONE
    }

    /// Whether it takes any packet that the port has room for.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.list.bytes() <= self.threshold && !self.is_managed()
    }

    /// Notes how long the queue is, before packets leave it: between two departures it never was longer.
    #[inline]
    pub fn note_peak(&mut self) {
        if self.list.bytes() > self.peak_bytes || self.list.packets() > self.peak_packets {
            (self.peak_bytes, self.peak_packets) = self.peak();
        }
    }

    /// The most bytes and the most packets that ever waited, not always at the same time.
    fn peak(&self) -> (u32, u32) {
        (self.peak_bytes.max(self.list.bytes()), self.peak_packets.max(self.list.packets()))
    }

    /// Counts what left the list to be sent.
    #[inline]
    pub fn sent(&mut self, load: Load) {
        self.sent_packets += u64::from(load.packets());
        self.sent_bytes += u64::from(load.bytes());
    }

    /// Counts what was sent without having waited here.
    #[inline]
    pub fn passed(&mut self, packets: u64, bytes: u64) {
        self.sent_packets += packets;
        self.sent_bytes += bytes;
    }

    /// Goes on with what another queue sent, packets and bytes, and with the most that it held, bytes and packets.
    pub fn count_on(&mut self, sent: (u64, u64), peak: (u32, u32)) {
        (self.sent_packets, self.sent_bytes) = sent;
        (self.peak_bytes, self.peak_packets) = peak;
    }

    pub fn view(&self, cold: Option<&Cold>) -> QueueView {
        let nothing = Cold::default();
        let cold = cold.unwrap_or(&nothing);
        let (held, (peak_bytes, peak_packets)) = (self.list.load, self.peak());
        let gone_packets = self.sent_packets + cold.moved_packets + cold.drops.packets();
        let gone_bytes = self.sent_bytes + cold.moved_bytes + cold.drops.bytes();
        QueueView {
            offered_packets: gone_packets + u64::from(held.packets()),
            offered_bytes: gone_bytes + u64::from(held.bytes()),
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            moved_packets: cold.moved_packets,
            moved_bytes: cold.moved_bytes,
            held_packets: held.packets(),
            held_bytes: held.bytes(),
            peak_bytes,
            peak_packets,
            quantum: self.quantum,
            threshold: self.threshold,
            has_own_threshold: cold.has_own_threshold,
            aqm: cold.aqm.settings(),
            drops: cold.drops.clone(),
        }
    }
}

/// What a queue needs when it drops, or manages its length actively.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cold {
    pub aqm: AqmState,
    pub drops: DropCounts,
    /// The largest packet seen, for CoDel.
    pub max_packet: u32,
    /// Packets that came in and were moved to another queue, and their bytes.
    pub moved_packets: u64,
    pub moved_bytes: u64,
    /// Whether the queue has a threshold that is not that of all others.
    pub has_own_threshold: bool,
}

/// A queue as its user sees it. Always: offered = sent + moved + held + dropped.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueView {
    /// Packets that arrived, refused ones included.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets that left to be sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that were moved to another queue.
    pub moved_packets: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Packets that wait.
    pub held_packets: u32,
    /// Their bytes.
    pub held_bytes: u32,
    /// The most bytes that ever waited.
    pub peak_bytes: u32,
    /// The most packets that ever waited.
    pub peak_packets: u32,
    /// Bytes per round, where a round robin serves the queue; 0 elsewhere.
    pub quantum: u32,
    /// Discard threshold in bytes.
    pub threshold: u32,
    /// Whether that is a flow's own.
    pub has_own_threshold: bool,
    /// Active queue management.
    pub aqm: Aqm,
    /// Drops by cause.
    pub drops: DropCounts,
}
