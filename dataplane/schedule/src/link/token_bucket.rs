//! Token bucket: limits its child to a rate and a burst.
//!
//! In every interval of length t at most burst + rate * t bytes pass, counted on the wire. An exception:
//! CoDel below the bucket may drop the packet whose length the bucket checked, and send a longer one. Then
//! the difference of both lengths passes in addition. A packet longer than the burst passes when the bucket
//! is full, and leaves a debt.

use millrace_units::Instant;

use super::discipline::Discipline;
use crate::arena::NONE;
use crate::rate::{Credit, Rate};

/// Bucket with its one child.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    credit: Credit,
    burst: u32,
    child: u32,
    /// Length in bytes on the wire of the child's first packet, if it has one.
    head: Option<u32>,
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self::new(Rate(1), 1)
    }
}

impl TokenBucket {
    /// Creates a full bucket of `burst` bytes.
    pub fn new(rate: Rate, burst: u32) -> Self {
        Self { credit: Credit::new(rate, burst), burst, child: NONE, head: None }
    }

    /// Returns the rate, and the burst in bytes.
    pub fn settings(&self) -> (Rate, u32) {
        (self.credit.rate(), self.burst)
    }

    /// Changes rate and burst, from now on.
    pub fn set(&mut self, rate: Rate, burst: u32, now: Instant) {
        self.credit.set(rate, burst, now);
        self.burst = burst;
    }

    /// Sets the child; [`NONE`] removes it.
    pub fn set_child(&mut self, child: u32) {
        self.child = child;
    }

    /// Returns the child, if there is one.
    pub fn only_child(&self) -> Option<u32> {
        Some(self.child).filter(|child| *child != NONE)
    }

    /// Whether a packet of `length` bytes may leave now. Records the length as that of the child's first
    /// packet.
    #[inline]
    pub fn allows(&mut self, length: u32, now: Instant) -> bool {
        self.head = Some(length);
        self.credit.covers(length, now)
    }
}

impl Discipline for TokenBucket {
    fn activate(&mut self, _slot: u32, length: u32, now: Instant) {
        self.allows(length, now);
    }

    fn deactivate(&mut self, _slot: u32, _now: Instant) {
        self.head = None;
    }

    #[inline]
    fn choose(&mut self, now: Instant) -> Option<u32> {
        self.credit.covers(self.head?, now).then_some(0)
    }

    #[inline]
    fn served(&mut self, _slot: u32, bytes: u32, next: Option<u32>, now: Instant) {
        self.credit.spend(bytes, now);
        self.head = next;
    }

    #[inline]
    fn next_ready(&mut self) -> Instant {
        self.head.map_or(Instant::FOREVER, |length| self.credit.covers_at(length))
    }

    #[inline]
    fn child(&self, _slot: u32) -> u32 {
        self.child
    }
}
