//! Layout of the memory that a worker shares with the process of a plugin.
//!
//! The memory holds, in this order: a header, the ring of requests, the ring of answers, the service state,
//! and the packets of a call: 64 descriptions, 64 windows and 64 flow states. The header has the indices of
//! both rings, the bell and the worker's processor, each in a cache line of its own, and the sizes of the layout with
//! the address of the memory in the process. The time in which the process has looked for requests is beside its index
//! of the ring of requests.

use core::sync::atomic::{AtomicU64, Ordering};

use super::ring::Lane;
use crate::binary::{MOST_PACKETS, RawPacket};

/// Version of the layout, of the rings and of the kinds of records.
pub const VERSION: u64 = 2;

/// Words of a cache line.
const LINE: usize = 8;
/// Words of the header.
const HEADER: usize = 8 * LINE;
/// Words of the ring of requests.
const REQUESTS: usize = 2048;
/// Words of the ring of answers.
const ANSWERS: usize = 4096;
/// Words of the description of a packet.
pub const DESCRIPTION: usize = size_of::<RawPacket>() / 8;

/// Lane from the worker to the process.
pub const REQUEST_LANE: Lane = Lane { posted: 0, taken: LINE, start: HEADER, words: REQUESTS };
/// Lane from the process to the worker.
pub const ANSWER_LANE: Lane =
    Lane { posted: 2 * LINE, taken: 3 * LINE, start: HEADER + REQUESTS, words: ANSWERS };
/// Word with the nanoseconds in which the process has looked for requests so far.
pub const LOOKED: usize = LINE + 1;
/// Word of the bell, on whose first 32 bits the process sleeps.
pub const BELL: usize = 4 * LINE;
/// Value of the bell while the process sleeps, or is about to.
pub const ASLEEP: u32 = 1;
/// First word of the sizes: version, window, flow state, service state.
const SIZES: usize = 5 * LINE;
/// Word with the address of the memory in the process, which the process writes before its first answer: the worker
/// adds it to the places of windows and flow states. While it is 0, these stay relative to the start of the memory.
pub const ADDRESS: usize = SIZES + 4;
/// Word with the number of the worker's processor, plus 1; 0 if it is unknown.
pub const PROCESSOR: usize = 6 * LINE;

/// Places of service state and packets in the shared memory, in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Maximum bytes of a window.
    pub window: usize,
    /// Words from one window to the next.
    stride: usize,
    /// Bytes of the state of a flow.
    pub state: usize,
    /// Bytes of the service state.
    pub service: usize,
}

/// Memory whose header has no sizes of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoLayout {
    /// Layout of another version.
    Version(u64),
    /// Memory that is smaller than its layout.
    Size,
}

impl core::fmt::Display for NoLayout {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "it has version {version}, this plugin has {VERSION}: rebuild the plugin")
            }
            Self::Size => f.write_str("it is smaller than its layout"),
        }
    }
}

impl Layout {
    /// Returns the layout for a plugin with these sizes, in bytes: of a window, of the state of a flow, of the
    /// service state.
    #[must_use]
    pub const fn new(window: u16, state: u16, service: u16) -> Self {
        let window = window as usize;
        let stride = window.div_ceil(8).next_multiple_of(LINE);
        Self { window, stride, state: state as usize, service: service as usize }
    }

    /// Writes the sizes to the header, for the process.
    pub fn write(&self, words: &[AtomicU64]) {
        let sizes = [VERSION, self.window as u64, self.state as u64, self.service as u64];
        for (word, size) in words.iter().skip(SIZES).zip(sizes) {
            word.store(size, Ordering::Relaxed);
        }
    }

    /// Reads the sizes from the header, in the process.
    ///
    /// # Errors
    /// The memory has another version, or is too small.
    pub fn read(words: &[AtomicU64]) -> Result<Self, NoLayout> {
        let size = |at: usize| words.get(SIZES + at).map_or(0, |word| word.load(Ordering::Relaxed));
        match size(0) {
            VERSION => {}
            other => return Err(NoLayout::Version(other)),
        }
        let bytes = |at| size(at).try_into().ok();
        let (Some(window), Some(state), Some(service)) = (bytes(1), bytes(2), bytes(3)) else {
            return Err(NoLayout::Size);
        };
        let layout = Self::new(window, state, service);
        if layout.words() > words.len() { Err(NoLayout::Size) } else { Ok(layout) }
    }

    /// Returns the first word of the service state.
    #[must_use]
    pub fn service(&self) -> usize {
        HEADER + REQUESTS + ANSWERS
    }

    /// Returns the first word of the description of a packet.
    #[inline]
    #[must_use]
    pub fn description(&self, index: usize) -> usize {
        self.service() + self.service.div_ceil(8).next_multiple_of(LINE) + index * DESCRIPTION
    }

    /// Returns the first word of the window of a packet.
    #[inline]
    #[must_use]
    pub fn window(&self, index: usize) -> usize {
        self.description(MOST_PACKETS) + index * self.stride
    }

    /// Returns the first word of the state of a packet's flow.
    #[inline]
    #[must_use]
    pub fn state(&self, index: usize) -> usize {
        self.window(MOST_PACKETS) + index * self.state.div_ceil(8)
    }

    /// Returns the words of the whole memory.
    #[must_use]
    pub fn words(&self) -> usize {
        self.state(MOST_PACKETS).next_multiple_of(LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    /// Compares places with fixed numbers, which programs in other languages use.
    #[test]
    fn places_are_as_documented() {
        assert_eq!((REQUEST_LANE.posted, REQUEST_LANE.taken, REQUEST_LANE.start), (0, 8, 64));
        assert_eq!((ANSWER_LANE.posted, ANSWER_LANE.taken, ANSWER_LANE.start), (16, 24, 64 + 2048));
        assert_eq!((REQUEST_LANE.words, ANSWER_LANE.words), (2048, 4096));
        assert_eq!((LOOKED, BELL, SIZES, ADDRESS, PROCESSOR), (9, 32, 40, 44, 48));
        let layout = Layout::new(100, 9, 20);
        assert_eq!((layout.service(), layout.description(0)), (6208, 6216));
        assert_eq!((layout.description(1), layout.window(0)), (6224, 6216 + 512));
        assert_eq!((layout.window(1), layout.state(0)), (6728 + 16, 6728 + 1024));
        assert_eq!((layout.state(1), layout.words()), (7752 + 2, 7752 + 128));
    }

    #[test]
    fn process_reads_the_layout_that_the_worker_has_written() {
        let layout = Layout::new(1536, 256, 4096);
        let words = memory(layout.words());
        assert_eq!(Layout::read(&words), Err(NoLayout::Version(0)));
        layout.write(&words);
        assert_eq!(Layout::read(&words), Ok(layout));
        assert_eq!(Layout::read(&words[1..]), Err(NoLayout::Version(1536)));
        assert_eq!(Layout::read(&words[..layout.words() - 1]), Err(NoLayout::Size));
        words[SIZES + 1].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(Layout::read(&words), Err(NoLayout::Size));
    }
}
