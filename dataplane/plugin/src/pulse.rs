//! What a worker is doing with its instances, for who watches it from another thread.
//!
//! The worker stores two words around each call, and reads no clock: who watches does. A beat that stays odd is a call that does
//! not return.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millrace_units::InstanceId;

/// A worker's calls of instances. Written by the worker alone.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Goes up by one when a call begins, and by one when it ends: odd while one goes on.
    beat: AtomicU64,
    /// Whose call goes on, or was the last one.
    instance: AtomicU32,
}

/// A call that goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calling {
    /// The number of the call: two looks that find the same one have seen the same call.
    pub number: u64,
    /// Whose it is.
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

    /// There is one writer, so this needs no atomic addition.
    #[inline]
    fn step(&self) {
        self.beat.store(self.beat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// The call that goes on now, if one does.
    pub fn calling(&self) -> Option<Calling> {
        let number = self.beat.load(Ordering::Acquire);
        let instance = InstanceId(self.instance.load(Ordering::Acquire) as u16);
        // The name belongs to the number only if no other call has begun meanwhile.
        let is_same = self.beat.load(Ordering::Relaxed) == number;
        (number % 2 == 1 && is_same).then_some(Calling { number, instance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_seen_while_it_goes_on_and_told_from_the_next() {
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
