//! State of a flow, and the classification of its acknowledgments.

use std::time::Duration;

use millrace_plugin_abi::Instant;

use crate::segment::Segment;

/// Number of 64-bit words of a flow's state.
pub(crate) const WORDS: usize = 5;
/// Size of a flow's state in bytes.
pub(crate) const STATE_BYTES: usize = 8 * WORDS;
/// Number of consecutive duplicates after which the sender retransmits a segment (RFC 5681, 3.2).
pub(crate) const FAST: u16 = 3;

/// State of a flow. A new flow is all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flow {
    /// Highest acknowledgment number.
    pub highest: u32,
    /// TCP window of the last acknowledgment.
    pub window: u16,
    /// Number of duplicates since the last increase of the highest number.
    pub run: u16,
    /// Largest `run` so far.
    pub longest_run: u16,
    /// Number of duplicates that were the third in a row.
    pub fast: u32,
    /// Number of all acknowledgments; 0 before the first.
    pub acks: u32,
    /// Number of all duplicates.
    pub duplicates: u32,
    /// Time of the first acknowledgment.
    pub first: Instant,
    /// Time of the last acknowledgment.
    pub last: Instant,
}

/// Kind of an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// First acknowledgment of the flow.
    First,
    /// Duplicate. `in_a_row` is the number of consecutive duplicates, this one included.
    Duplicate { in_a_row: u16 },
    /// Acknowledgment with a lower number than an earlier one.
    Old,
    /// Any other acknowledgment: one with a higher number, or one that repeats the highest number and isn't a
    /// duplicate.
    Other,
}

impl Flow {
    /// Reads the flow from its state bytes; `None` if the router keeps no state for the flow.
    #[inline]
    pub fn load(state: &[u8]) -> Option<Self> {
        let (words, []) = state.as_chunks::<8>() else { return None };
        let words: [_; WORDS] = words.try_into().ok()?;
        Some(Self::from_words(words.map(u64::from_ne_bytes)))
    }

    /// Reads the flow from the words of its flow state.
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

    /// Returns the words of the flow state.
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

    /// Writes the flow into its flow state.
    #[inline]
    pub fn store(&self, state: &mut [u8]) {
        for (place, word) in state.as_chunks_mut::<8>().0.iter_mut().zip(self.words()) {
            *place = word.to_ne_bytes();
        }
    }

    /// Counts an acknowledgment of the flow, and returns its class.
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
        // Numbers wrap: a number is older if it is less than half the range behind (RFC 9293, 3.4).
        let ahead = segment.number.wrapping_sub(self.highest) as i32;
        if ahead < 0 {
            Meaning::Old
        } else if ahead == 0 && segment.is_bare && segment.window == self.window {
            Meaning::Duplicate { in_a_row: self.run.saturating_add(1) }
        } else {
            Meaning::Other
        }
    }

    /// Returns the acknowledgments per second between the first and the last.
    pub fn rate(&self) -> f64 {
        per_second(self.acks.into(), self.last.since(self.first))
    }
}

/// Returns the rate of `count` events per second, rounded to a tenth. `time` is the time between the first
/// and the last event. Returns 0 if `time` is 0.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    let rate = count.saturating_sub(1) as f64 / time.as_secs_f64();
    (rate * 10.0).round() / 10.0
}
