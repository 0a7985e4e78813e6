//! Memory of a principal at a worker: flow state, waiting packets, and memory of sandboxed instances.
//!
//! The worker shares the account with the instances, so that an instance asks it before its memory grows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Value of a limit that is not there.
const UNLIMITED: u64 = u64::MAX;

/// Memory that a principal uses at a worker, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Largest number of bytes for everything together; `None` without a limit.
    pub limit: Option<u64>,
    /// Flow state.
    pub state: u64,
    /// Packets in queues for the processor.
    pub queued: u64,
    /// Packets of suspended calls, packets that wait for the end of a call, and packets that instances hold.
    pub suspended: u64,
    /// Number of the packets in `suspended`.
    pub suspended_packets: u64,
    /// Memory of sandboxed instances.
    pub plugin: u64,
    /// Number of packets that might not wait because of the limit.
    pub dropped: u64,
    /// Number of flows that got no state, and of times that the memory of an instance might not grow, because of
    /// the limit.
    pub refused: u64,
}

impl MemoryUse {
    /// Returns the bytes that count against the limit.
    pub fn total(&self) -> u64 {
        [self.queued, self.suspended, self.plugin].into_iter().fold(self.state, u64::saturating_add)
    }
}

/// Account of the memory that a principal uses at a worker. The worker changes it, and the instances change
/// their part.
#[derive(Debug)]
pub struct MemoryAccount {
    limit: AtomicU64,
    state: AtomicU64,
    queued: AtomicU64,
    suspended: AtomicU64,
    suspended_packets: AtomicU64,
    plugin: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
}

impl Default for MemoryAccount {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            limit: AtomicU64::new(UNLIMITED),
            state: zero(),
            queued: zero(),
            suspended: zero(),
            suspended_packets: zero(),
            plugin: zero(),
            dropped: zero(),
            refused: zero(),
        }
    }
}

impl MemoryAccount {
    /// Returns the present values.
    pub fn get(&self) -> MemoryUse {
        let limit = self.limit.load(Relaxed);
        MemoryUse {
            limit: (limit != UNLIMITED).then_some(limit),
            state: self.state.load(Relaxed),
            queued: self.queued.load(Relaxed),
            suspended: self.suspended.load(Relaxed),
            suspended_packets: self.suspended_packets.load(Relaxed),
            plugin: self.plugin.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }

    /// Sets the limit in bytes; `None` for none. Memory in use stays.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(UNLIMITED), Relaxed);
    }

    /// Forgets limit, packets and counters. Flow state and memory of instances still count.
    pub fn forget(&self) {
        self.set_limit(None);
        for value in [&self.queued, &self.suspended, &self.suspended_packets, &self.dropped, &self.refused] {
            value.store(0, Relaxed);
        }
    }

    /// Whether the limit leaves room for `bytes` more.
    #[inline]
    pub fn has_room(&self, bytes: u64) -> bool {
        match self.limit.load(Relaxed) {
            UNLIMITED => true,
            limit => self.get().total().saturating_add(bytes) <= limit,
        }
    }

    /// Whether a packet of `bytes` bytes may wait for the processor. Counts a refusal.
    #[inline]
    pub fn admits(&self, bytes: u64) -> bool {
        let is_admitted = self.has_room(bytes);
        if !is_admitted {
            add(&self.dropped, 1);
        }
        is_admitted
    }

    /// Sets the bytes of the packets in queues.
    #[inline]
    pub fn set_queued(&self, bytes: u64) {
        self.queued.store(bytes, Relaxed);
    }

    /// Counts packets that begin to wait in a suspended call, or for its end, or that an instance holds.
    pub fn suspend(&self, packets: u64, bytes: u64) {
        add(&self.suspended_packets, packets);
        add(&self.suspended, bytes);
    }

    /// Counts packets whose call has ended, or that are held no longer.
    pub fn resume(&self, packets: u64, bytes: u64) {
        sub(&self.suspended_packets, packets);
        sub(&self.suspended, bytes);
    }

    /// Counts flow state.
    pub fn add_state(&self, bytes: u64) {
        add(&self.state, bytes);
    }

    /// Counts the end of flow state.
    pub fn sub_state(&self, bytes: u64) {
        sub(&self.state, bytes);
    }

    /// Counts a request for memory that was refused.
    pub fn refuse(&self) {
        add(&self.refused, 1);
    }

    /// Counts memory of an instance.
    pub fn add_plugin(&self, bytes: u64) {
        add(&self.plugin, bytes);
    }

    /// Counts the end of an instance's memory.
    pub fn sub_plugin(&self, bytes: u64) {
        sub(&self.plugin, bytes);
    }
}

fn add(value: &AtomicU64, more: u64) {
    value.fetch_add(more, Relaxed);
}

fn sub(value: &AtomicU64, less: u64) {
    // The closure never refuses.
    let _ = value.fetch_update(Relaxed, Relaxed, |value| Some(value.saturating_sub(less)));
}
