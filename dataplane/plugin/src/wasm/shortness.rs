//! Which functions of a plugin have shown that their calls are short.
//!
//! A call that can be stopped and gone on with needs a stack of its own, which costs as much as a short call itself. A function
//! whose calls have ended within their slice often enough in a row is called on the worker's stack instead. Should a call last
//! longer all the same, it gets little more time before it is a fault, and the function has to show it again, twice as often:
//! whatever a plugin does, the time that it can take from others that way comes to nothing. With more packets at once than it
//! was ever short with, it has its own stack all the same.

/// What the calls of a function have shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shortness {
    needed: u32,
    seen: u32,
    /// The most things at once that it was short with.
    most: u32,
}

impl Shortness {
    /// Nothing is shown yet; it takes so many calls in a row, or can't be shown with 0.
    pub fn new(needed: u32) -> Self {
        Self { needed: if needed == 0 { u32::MAX } else { needed }, seen: 0, most: 0 }
    }

    /// Whether a call for so many things at once may be expected to end within its slice.
    #[inline]
    pub fn is_shown(&self, count: u32) -> bool {
        self.seen >= self.needed && count <= self.most
    }

    /// Notes a call for so many things at once, and whether it ended within its slice.
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
    fn it_is_twice_as_hard_after_each_call_that_was_not_short() {
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
    fn a_long_call_before_it_is_shown_begins_the_count_anew() {
        let mut shortness = Shortness::new(1024);
        (0..1023).for_each(|_| shortness.note(1, true));
        shortness.note(1, false);
        assert_eq!(calls_until_shown(&mut shortness), 1024);
    }
    #[test]
    fn without_a_number_it_is_never_shown() {
        let mut shortness = Shortness { needed: u32::MAX, seen: u32::MAX - 1, most: 1 };
        shortness.note(1, true);
        assert!(!shortness.is_shown(1) && !Shortness::new(0).is_shown(1));
    }

    #[test]
    fn it_is_shown_for_as_many_at_once_as_there_were() {
        let mut shortness = Shortness::new(4);
        (0..4).for_each(|_| shortness.note(2, true));
        assert!(shortness.is_shown(2) && !shortness.is_shown(3));
        shortness.note(64, true);
        assert!(shortness.is_shown(64));
    }
}
