//! Detection of plugin functions whose calls are short.
//!
//! A call that can be suspended needs its own stack, and setting up the stack costs as much as a short call.
//! Therefore a function runs on the worker's stack once enough consecutive calls have ended within their
//! slice. A call with more packets than any of these calls still gets its own stack.
//!
//! If a call on the worker's stack exceeds its slice, it gets little more time before it is cut. The function
//! then needs twice as many short calls before it runs there again, or 1,024 times as many after a cut. This
//! bounds the time that a plugin can take from other work of the worker.
//!
//! A cut is no fault of the plugin: the router misjudged the function. The instance starts again, and remembers
//! the number of short calls that it needs.

/// Factor of the needed short calls after a cut. A cut costs the instance its state, so it must be rare: after
/// the second one, a function with the default number never runs on the worker's stack again within hours.
const AFTER_CUT: u32 = 1024;

/// Record of a function's recent calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shortness {
    needed: u32,
    seen: u32,
    /// Largest number of packets among the recent short calls.
    most: u32,
}

impl Shortness {
    /// Creates an empty record. A function counts as short after `needed` short calls in a row; never if
    /// `needed` is 0.
    pub fn new(needed: u32) -> Self {
        Self { needed: if needed == 0 { u32::MAX } else { needed }, seen: 0, most: 0 }
    }

    /// Whether the function counts as short for a call with `count` packets.
    #[inline]
    pub fn is_shown(&self, count: u32) -> bool {
        self.seen >= self.needed && count <= self.most
    }

    /// Returns the number of short calls in a row after which the function counts as short.
    pub fn needed(&self) -> u32 {
        self.needed
    }

    /// Records that a call on the worker's stack was cut.
    #[cold]
    pub fn misjudge(&mut self) {
        *self = Self::new(self.needed.saturating_mul(AFTER_CUT));
    }

    /// Records a call with `count` packets. `short` states whether the call ended within its slice.
    #[inline]
    pub fn note(&mut self, count: u32, short: bool) {
        if short {
            self.most = self.most.max(count);
            if self.seen < self.needed && self.needed < u32::MAX {
                self.seen += 1;
            }
        } else {
            if self.is_shown(count) {
                self.needed = self.needed.saturating_mul(2);
            }
            (self.seen, self.most) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls_until_shown(shortness: &mut Shortness) -> u32 {
        let mut calls = 0;
        while !shortness.is_shown(1) {
            shortness.note(1, true);
            calls += 1;
        }
        calls
    }

    #[test]
    fn threshold_doubles_after_each_call_that_was_not_short() {
        let mut shortness = Shortness::new(1024);
        assert_eq!(calls_until_shown(&mut shortness), 1024);
        shortness.note(1, false);
        assert!(!shortness.is_shown(1));
        assert_eq!(calls_until_shown(&mut shortness), 2048);
        for _ in 0..5 {
            shortness.note(1, false);
            (0..20_000).for_each(|_| shortness.note(1, true));
        }
        shortness.note(1, false);
        assert_eq!(calls_until_shown(&mut shortness), 32_768);
    }

    #[test]
    fn function_whose_call_was_cut_needs_many_more_short_calls() {
        let mut shortness = Shortness::new(4);
        assert_eq!(calls_until_shown(&mut shortness), 4);
        shortness.misjudge();
        assert_eq!((shortness.needed(), calls_until_shown(&mut shortness)), (4096, 4096));
        (0..3).for_each(|_| shortness.misjudge());
        assert_eq!(shortness.needed(), u32::MAX);
    }

    #[test]
    fn long_call_before_the_proof_restarts_the_count() {
        let mut shortness = Shortness::new(1024);
        (0..1023).for_each(|_| shortness.note(1, true));
        shortness.note(1, false);
        assert_eq!(calls_until_shown(&mut shortness), 1024);
    }
    #[test]
    fn shortness_is_never_proven_without_a_count() {
        let mut shortness = Shortness { needed: u32::MAX, seen: u32::MAX - 1, most: 1 };
        shortness.note(1, true);
        assert!(!shortness.is_shown(1) && !Shortness::new(0).is_shown(1));
    }

    #[test]
    fn shortness_is_proven_for_all_calls_counted_at_once() {
        let mut shortness = Shortness::new(4);
        (0..4).for_each(|_| shortness.note(2, true));
        assert!(shortness.is_shown(2) && !shortness.is_shown(3));
        shortness.note(64, true);
        assert!(shortness.is_shown(64));
    }
}
