//! Timers of nodes that must wait, such as a token bucket or an H-FSC at its limits.

use millrace_units::Instant;

use crate::arena::NONE;
use crate::heap::Heap;

/// Nodes that wait, ordered by the time at which they will be ready.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: Heap,
    /// Position of each inner node in the heap.
    places: Vec<u32>,
}

impl Timers {
    /// Reserves space for the timer of an inner node, so that its start allocates nothing.
    pub fn make_room(&mut self, node: u32) {
        if self.places.len() <= node as usize {
            self.places.resize(node as usize + 1, NONE);
        }
        self.heap.reserve(self.places.len());
    }

    /// Returns the memory of `places` in bytes.
    pub fn memory(&self) -> usize {
        self.places.len() * size_of::<u32>()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the time at which the first timer expires; [`Instant::FOREVER`] if none runs.
    #[inline]
    pub fn first_time(&self) -> Instant {
        Instant::from_nanos(self.heap.first_key())
    }

    /// Whether a node has a running timer. Leaves have none.
    #[inline]
    pub fn is_running(&self, node: u32) -> bool {
        self.places.get(node as usize).is_some_and(|place| *place != NONE)
    }

    /// Starts or moves the timer of a node. [`Instant::FOREVER`] stops it.
    pub fn start(&mut self, node: u32, at: Instant) {
        match (self.is_running(node), at == Instant::FOREVER) {
            (true, true) => self.heap.remove(&mut self.places, node),
            (true, false) => self.heap.update(&mut self.places, at.as_nanos(), node),
            (false, true) => {}
            (false, false) => self.heap.push(&mut self.places, at.as_nanos(), node),
        }
    }

    #[inline]
    pub fn stop(&mut self, node: u32) {
        if self.is_running(node) {
            self.heap.remove(&mut self.places, node);
        }
    }

    /// Stops the first timer that has expired, and returns its node.
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        let (_, node) = self.heap.first().filter(|(at, _)| *at <= now.as_nanos())?;
        self.stop(node);
        Some(node)
    }
}
