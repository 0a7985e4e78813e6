//! One queue: a cache line. What is seldom touched stands apart.

use crate::DropCounts;
use crate::arena::{List, Load, NONE};
use crate::link::{Aqm, AqmState};

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
    /// Packets that came in, and their bytes: all that were not refused.
    pub entered_packets: u64,
    pub entered_bytes: u64,
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
            entered_packets: 0,
            entered_bytes: 0,
        }
    }

    /// Counts a packet of `length` bytes that is in the list by now.
    #[inline]
    pub fn entered(&mut self, length: u32) {
        self.entered_packets += 1;
        self.entered_bytes += u64::from(length);
        self.peak_bytes = self.peak_bytes.max(self.list.bytes());
    }

    /// Counts packets that are in the list by now.
    #[inline]
    pub fn entered_all(&mut self, load: Load) {
        self.entered_packets += u64::from(load.packets());
        self.entered_bytes += u64::from(load.bytes());
        self.peak_bytes = self.peak_bytes.max(self.list.bytes());
    }

    pub fn view(&self, cold: Option<&Cold>) -> QueueView {
        let nothing = Cold::default();
        let cold = cold.unwrap_or(&nothing);
        let lost = cold.lost_packets + cold.moved_packets;
        let lost_bytes = cold.lost_bytes + cold.moved_bytes;
        QueueView {
            offered_packets: self.entered_packets + cold.drops.packets() - cold.lost_packets,
            offered_bytes: self.entered_bytes + cold.drops.bytes() - cold.lost_bytes,
            sent_packets: self.entered_packets - u64::from(self.list.packets()) - lost,
            sent_bytes: self.entered_bytes - u64::from(self.list.bytes()) - lost_bytes,
            moved_packets: cold.moved_packets,
            held_packets: self.list.packets(),
            held_bytes: self.list.bytes(),
            peak_bytes: self.peak_bytes,
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
    /// Of the drops, those of packets that had come in, and their bytes.
    pub lost_packets: u64,
    pub lost_bytes: u64,
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
    /// Packets that wait.
    pub held_packets: u32,
    /// Their bytes.
    pub held_bytes: u32,
    /// The most bytes that ever waited.
    pub peak_bytes: u32,
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
