//! What is known of a flow, and what an acknowledgment means to it.

use std::time::Duration;

use millrace_plugin_abi::Instant;

use crate::segment::Segment;

/// Words of the state of a flow.
pub(crate) const WORDS: usize = 5;
/// Bytes of the state of a flow.
pub(crate) const STATE_BYTES: usize = 8 * WORDS;
/// So many duplicates in a row make the other end send a segment again (RFC 5681, 3.2).
pub(crate) const FAST: u16 = 3;

/// What is known of a flow. A new one is all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flow {
    /// The highest acknowledgment number.
    pub highest: u32,
    /// The window of the last acknowledgment.
    pub window: u16,
    /// Duplicates since the highest number went up.
    pub run: u16,
    /// The most there ever were of these.
    pub longest_run: u16,
    /// How often there were three in a row.
    pub fast: u32,
    /// Acknowledgments in all; 0 before the first.
    pub acks: u32,
    /// Duplicates in all.
    pub duplicates: u32,
    /// When the first came.
    pub first: Instant,
    /// When the last came.
    pub last: Instant,
}

/// What an acknowledgment means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// It is the first of its flow.
    First,
    /// It came again, as the so manyth in a row.
    Duplicate { in_a_row: u16 },
    /// It has a lower number than one before.
    Old,
    /// It has a higher number, or something else to say.
    Other,
}

impl Flow {
    /// From the state that the router keeps; `None` where there is none.
    #[inline]
    pub fn load(state: &[u8]) -> Option<Self> {
        let (words, []) = state.as_chunks::<8>() else { return None };
        let words: [_; WORDS] = words.try_into().ok()?;
        Some(Self::from_words(words.map(u64::from_ne_bytes)))
    }

    /// From the words of its state.
    #[inline]
    pub fn from_words([numbers, runs, counts, first, last]: [u64; WORDS]) -> Self {
        Self {
            highest: numbers as u32,
            acks: (numbers >> 32) as u32,
            window: runs as u16,
            run: (runs >> 16) as u16,
            longest_run: (runs >> 32) as u16,
            fast: counts as u32,
            duplicates: (counts >> 32) as u32,
            first: Instant::from_nanos(first),
            last: Instant::from_nanos(last),
        }
    }

    /// The words of its state.
    #[inline]
    pub fn words(&self) -> [u64; WORDS] {
        [
            u64::from(self.highest) | u64::from(self.acks) << 32,
            u64::from(self.window) | u64::from(self.run) << 16 | u64::from(self.longest_run) << 32,
            u64::from(self.fast) | u64::from(self.duplicates) << 32,
            self.first.as_nanos(),
            self.last.as_nanos(),
        ]
    }

    /// Into the state that the router keeps.
    #[inline]
    pub fn store(&self, state: &mut [u8]) {
        for (place, word) in state.as_chunks_mut::<8>().0.iter_mut().zip(self.words()) {
            *place = word.to_ne_bytes();
        }
    }

    /// Takes an acknowledgment in.
    #[inline]
    pub fn add(&mut self, segment: &Segment, now: Instant) -> Meaning {
        let meaning = self.meaning(segment);
        match meaning {
            Meaning::First => (self.first, self.highest) = (now, segment.number),
            Meaning::Duplicate { in_a_row } => {
                self.duplicates = self.duplicates.saturating_add(1);
                self.run = in_a_row;
                self.longest_run = self.longest_run.max(in_a_row);
                self.fast = self.fast.saturating_add(u32::from(in_a_row == FAST));
            }
            Meaning::Other if segment.number != self.highest => {
                (self.highest, self.run) = (segment.number, 0);
            }
            Meaning::Old | Meaning::Other => {}
        }
        self.acks = self.acks.saturating_add(1);
        (self.window, self.last) = (segment.window, now);
        meaning
    }

    #[inline]
    fn meaning(&self, segment: &Segment) -> Meaning {
        if self.acks == 0 {
            return Meaning::First;
        }
        // Numbers go round: what lies less than half the circle behind is older (RFC 9293, 3.4).
        let ahead = segment.number.wrapping_sub(self.highest) as i32;
        if ahead < 0 {
            Meaning::Old
        } else if ahead == 0 && segment.is_bare && segment.window == self.window {
            Meaning::Duplicate { in_a_row: self.run.saturating_add(1) }
        } else {
            Meaning::Other
        }
    }

    /// Acknowledgments in a second, between the first and the last.
    pub fn rate(&self) -> f64 {
        per_second(self.acks.into(), self.last.since(self.first))
    }
}

/// How many there were in a second, when there were so many from the first to the last; to a tenth. 0 where they came at once.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    let rate = count.saturating_sub(1) as f64 / time.as_secs_f64();
    (rate * 10.0).round() / 10.0
}
