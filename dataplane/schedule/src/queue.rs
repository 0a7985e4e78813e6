//! Queue of packets in one cache line. Rarely used fields are in a separate part.

use crate::DropCounts;
use crate::aqm::{Aqm, AqmState};
use crate::arena::{List, Load, NONE};

/// Settings of a queue. They may change while the queue holds packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueueSettings {
    /// Discard threshold in bytes. Above it, the queue drops arriving packets (NPR, section 2.1).
    pub threshold: u32,
    /// Active queue management.
    pub aqm: Aqm,
}

impl Default for QueueSettings {
    /// Returns a threshold of 256 KiB and tail drop.
    fn default() -> Self {
        Self { threshold: 256 << 10, aqm: Aqm::TailDrop }
    }
}

/// Flag in a queue's quantum: the other bits are the index of a reserved rate.
pub(crate) const RESERVED: u32 = 1 << 31;

/// Queue of packets. While the queue is in a round, `next` is the next queue of the round. Otherwise, the
/// queue's owner may use `next` for other values.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub list: List,
    pub quantum: u32,
    pub deficit: i32,
    pub threshold: u32,
    pub next: u32,
    pub flow: u32,
    /// Index of the queue's [`Cold`] part, or [`NONE`].
    pub cold: u32,
    peak_bytes: u32,
    peak_packets: u32,
    /// Number of packets that left the queue for transmission.
    sent_packets: u64,
    /// Bytes of the packets that left the queue for transmission.
    sent_bytes: u64,
}

const _: () = assert!(size_of::<Queue>() == 64);

impl Queue {
    /// Whether the flow of the queue has a reserved rate.
    #[inline]
    pub fn is_reserved(&self) -> bool {
        self.quantum & RESERVED != 0
    }

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

    /// Whether the queue has a [`Cold`] part. It needs one for AQM, drops, moved packets, or a threshold of
    /// its own.
    #[inline]
    pub fn is_managed(&self) -> bool {
        self.cold != NONE
    }

    /// Whether the queue takes every packet that the port has room for: it has no [`Cold`] part, and is not
    /// above its threshold.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.list.bytes() <= self.threshold && !self.is_managed()
    }

    /// Updates the peaks with the current load. The caller does so before packets leave, because a queue is
    /// longest just before a departure.
    #[inline]
    pub fn note_peak(&mut self) {
        if self.list.bytes() > self.peak_bytes || self.list.packets() > self.peak_packets {
            (self.peak_bytes, self.peak_packets) = self.peak();
        }
    }

    /// Returns the peaks of waiting bytes and of waiting packets, which may have occurred at different times.
    fn peak(&self) -> (u32, u32) {
        (self.peak_bytes.max(self.list.bytes()), self.peak_packets.max(self.list.packets()))
    }

    /// Counts packets that left the queue for transmission.
    #[inline]
    pub fn sent(&mut self, load: Load) {
        self.sent_packets += u64::from(load.packets());
        self.sent_bytes += u64::from(load.bytes());
    }

    /// Counts packets that were sent without waiting in the queue.
    #[inline]
    pub fn passed(&mut self, packets: u64, bytes: u64) {
        self.sent_packets += packets;
        self.sent_bytes += bytes;
    }

    /// Continues the counters of another queue: `sent` is (packets, bytes), `peak` is (bytes, packets).
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

/// Rarely used part of a queue: AQM, drops, moved packets, and own threshold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cold {
    pub aqm: AqmState,
    pub drops: DropCounts,
    /// Largest packet length seen, for CoDel.
    pub max_packet: u32,
    /// Number of packets moved to another queue.
    pub moved_packets: u64,
    /// Bytes of the packets moved to another queue.
    pub moved_bytes: u64,
    /// Whether the queue has its own threshold instead of the common one.
    pub has_own_threshold: bool,
}

/// View of a queue for reports. Always: offered = sent + moved + held + dropped.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueView {
    /// Number of packets that arrived, refused packets included.
    pub offered_packets: u64,
    /// Number of bytes that arrived, refused packets included.
    pub offered_bytes: u64,
    /// Number of packets that left the queue for transmission.
    pub sent_packets: u64,
    /// Number of bytes that left the queue for transmission.
    pub sent_bytes: u64,
    /// Number of packets moved to another queue.
    pub moved_packets: u64,
    /// Number of bytes moved to another queue.
    pub moved_bytes: u64,
    /// Number of waiting packets.
    pub held_packets: u32,
    /// Number of waiting bytes.
    pub held_bytes: u32,
    /// Peak of waiting bytes.
    pub peak_bytes: u32,
    /// Peak of waiting packets.
    pub peak_packets: u32,
    /// Quantum in bytes per round, if a round robin serves the queue; 0 otherwise.
    pub quantum: u32,
    /// Discard threshold in bytes.
    pub threshold: u32,
    /// Whether the threshold is a flow's own.
    pub has_own_threshold: bool,
    /// Active queue management.
    pub aqm: Aqm,
    /// Drops by cause.
    pub drops: DropCounts,
}
