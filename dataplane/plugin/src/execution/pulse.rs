//! Pulse: tells other threads which instance a worker calls at the moment.
//!
//! The worker stores two words around each call and reads no clock; the observing thread measures the time.
//! If `beat` keeps the same odd value, the call doesn't return.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millrace_units::InstanceId;

/// Pulse of a worker: its current instance call. Only the worker writes it.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Counter of the starts and ends of calls: odd during a call.
    beat: AtomicU64,
    /// Instance of the current or latest call.
    instance: AtomicU32,
}

/// Running call of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calling {
    /// Number of the call: two observations with the same number saw the same call.
    pub number: u64,
    /// Called instance.
    pub instance: InstanceId,
}

impl Pulse {
    #[inline]
    pub(crate) fn begin(&self, instance: InstanceId) {
        self.instance.store(instance.0.into(), Ordering::Relaxed);
        self.step();
    }

    #[inline]
    pub(crate) fn end(&self) {
        self.step();
    }

    /// Increments without an atomic read-modify-write operation: only one thread writes.
    #[inline]
    fn step(&self) {
        self.beat.store(self.beat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Returns the running call; `None` between calls.
    pub fn calling(&self) -> Option<Calling> {
        let number = self.beat.load(Ordering::Acquire);
        let instance = InstanceId(self.instance.load(Ordering::Acquire) as u16);
        // The loaded instance belongs to this number only if no other call has begun between the loads of
        // number and instance.
        let is_same = self.beat.load(Ordering::Relaxed) == number;
        (number % 2 == 1 && is_same).then_some(Calling { number, instance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_call_is_seen_and_distinguished_from_the_next() {
        let pulse = Pulse::default();
        assert_eq!(pulse.calling(), None);
        pulse.begin(InstanceId(7));
        let first = pulse.calling().unwrap();
        assert_eq!(first.instance, InstanceId(7));
        assert_eq!(pulse.calling(), Some(first));
        pulse.end();
        assert_eq!(pulse.calling(), None);
        pulse.begin(InstanceId(7));
        assert_ne!(pulse.calling(), Some(first));
    }
}
