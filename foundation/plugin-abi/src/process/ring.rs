//! Ring of records in shared memory, with one writer and one reader.
//!
//! A record has three words, and bytes behind them. A record may be longer than the ring: then its bytes pass
//! through the ring in pieces. The other side may write anything to the memory at any time. A reader or
//! writer accepts every content without a panic; it reports an impossible one as [`Broken`].

use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use super::words::{load, store};

/// Maximum bytes of a record behind its first three words. A saved state is a record.
pub const MOST_BYTES: usize = 4 << 20;
/// Maximum number of packet bytes that a process reads at a time.
pub const MOST_READ: usize = 4096;
/// Words of a record in front of its bytes.
const HEAD: usize = 3;

/// Impossible content of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// Index beyond the ring, by this number of words.
    Index(u64),
    /// Record above the limit, with its bytes.
    Length(usize),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(words) => {
                write!(f, "it moved an index of a ring by {words} words, more than the ring holds")
            }
            Self::Length(bytes) => {
                write!(f, "it announced a record of {bytes} bytes, above the limit of {MOST_BYTES}")
            }
        }
    }
}

impl core::error::Error for Broken {}

/// Place of a ring in shared memory: two words with indices, and the words of the ring. The indices count
/// words since the start, and never decrease.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// Word with the number of written words.
    pub posted: usize,
    /// Word with the number of read words.
    pub taken: usize,
    /// First word of the ring.
    pub start: usize,
    /// Number of words, a power of two.
    pub words: usize,
}

impl Lane {
    #[inline]
    fn index(words: &[AtomicU64], at: usize) -> u64 {
        words.get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline]
    fn publish(words: &[AtomicU64], at: usize, index: u64) {
        if let Some(word) = words.get(at) {
            word.store(index, Ordering::Release);
        }
    }

    /// Returns the words between two indices, `to` behind `from`.
    #[inline]
    fn between(&self, from: u64, to: u64) -> Result<usize, Broken> {
        match to.wrapping_sub(from) {
            count if count <= self.words as u64 => Ok(count as usize),
            count => Err(Broken::Index(count)),
        }
    }

    /// Returns the words of the ring from an index to the end of the ring, and those from its start on.
    #[inline]
    fn from<'w>(&self, words: &'w [AtomicU64], index: u64) -> [&'w [AtomicU64]; 2] {
        let ring = words.get(self.start..).and_then(|rest| rest.get(..self.words)).unwrap_or_default();
        let (before, behind) =
            ring.split_at_checked(index as usize & (self.words - 1)).unwrap_or((ring, &[]));
        [behind, before]
    }

    #[inline]
    fn word<'w>(&self, words: &'w [AtomicU64], index: u64) -> Option<&'w AtomicU64> {
        words.get(self.start + (index as usize & (self.words - 1)))
    }
}

/// Record of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'r> {
    /// Kind, one of [`request`](super::request) or [`answer`](super::answer).
    pub kind: u32,
    /// First field, whose meaning depends on the kind.
    pub first: u64,
    /// Second field, whose meaning depends on the kind.
    pub second: u64,
    /// Bytes, at most [`MOST_BYTES`].
    pub bytes: &'r [u8],
}

impl Record<'_> {
    fn head(&self) -> [u64; HEAD] {
        [u64::from(self.kind) | (self.bytes.len() as u64) << 32, self.first, self.second]
    }
}

/// Writing side of a ring.
#[derive(Debug)]
pub struct Writer {
    lane: Lane,
    posted: u64,
    /// Words that find no room yet, and the number of them that have been written since.
    waiting: Vec<u64>,
    written: usize,
}

impl Writer {
    /// Creates the writing side of an empty ring.
    #[must_use]
    pub fn new(lane: Lane) -> Self {
        Self { lane, posted: 0, waiting: Vec::new(), written: 0 }
    }

    /// Writes a record. The part that finds no room waits for [`flush`](Self::flush).
    ///
    /// # Errors
    /// The other side moved an index of the ring by an impossible number.
    #[inline]
    pub fn write(&mut self, words: &[AtomicU64], record: Record<'_>) -> Result<(), Broken> {
        let count = HEAD + record.bytes.len().div_ceil(8);
        if !self.waiting.is_empty() || self.room(words)? < count {
            return self.wait(words, record);
        }
        for word in record.head() {
            self.put(words, word);
        }
        let [behind, before] = self.lane.from(words, self.posted);
        let (first, second) = record.bytes.split_at_checked(behind.len() * 8).unwrap_or((record.bytes, &[]));
        store(behind, first);
        store(before, second);
        self.posted = self.posted.wrapping_add(record.bytes.len().div_ceil(8) as u64);
        Lane::publish(words, self.lane.posted, self.posted);
        Ok(())
    }

    #[cold]
    fn wait(&mut self, words: &[AtomicU64], record: Record<'_>) -> Result<(), Broken> {
        self.waiting.extend(record.head());
        let (whole, rest) = record.bytes.as_chunks::<8>();
        self.waiting.extend(whole.iter().map(|bytes| u64::from_ne_bytes(*bytes)));
        if !rest.is_empty() {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
            self.waiting.push(u64::from_ne_bytes(bytes));
        }
        self.flush(words).map(drop)
    }

    /// Whether words wait for room.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes as many of the waiting words as there is room for. Returns whether none waits any more.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    #[inline]
    pub fn flush(&mut self, words: &[AtomicU64]) -> Result<bool, Broken> {
        if self.waiting.is_empty() { Ok(true) } else { self.flush_waiting(words) }
    }

    #[cold]
    fn flush_waiting(&mut self, words: &[AtomicU64]) -> Result<bool, Broken> {
        let room = self.room(words)?;
        let waiting = core::mem::take(&mut self.waiting);
        let part = waiting.iter().skip(self.written).take(room);
        self.written += part.len();
        part.for_each(|word| self.put(words, *word));
        Lane::publish(words, self.lane.posted, self.posted);
        self.waiting = waiting;
        if self.written == self.waiting.len() {
            (self.waiting, self.written) = (Vec::new(), 0);
        }
        Ok(self.waiting.is_empty())
    }

    #[inline]
    fn room(&self, words: &[AtomicU64]) -> Result<usize, Broken> {
        let used = self.lane.between(Lane::index(words, self.lane.taken), self.posted)?;
        Ok(self.lane.words - used)
    }

    #[inline]
    fn put(&mut self, words: &[AtomicU64], word: u64) {
        if let Some(place) = self.lane.word(words, self.posted) {
            place.store(word, Ordering::Relaxed);
        }
        self.posted = self.posted.wrapping_add(1);
    }
}

/// Reading side of a ring.
#[derive(Debug)]
pub struct Reader {
    lane: Lane,
    taken: u64,
    /// First words of a record whose bytes have not all arrived.
    head: Option<[u64; HEAD]>,
    /// Bytes of the latest record.
    bytes: Vec<u8>,
}

impl Reader {
    /// Creates the reading side of an empty ring.
    #[must_use]
    pub fn new(lane: Lane) -> Self {
        Self { lane, taken: 0, head: None, bytes: Vec::new() }
    }

    /// Whether nothing has been written since the latest read.
    #[must_use]
    pub fn is_empty(&self, words: &[AtomicU64]) -> bool {
        Lane::index(words, self.lane.posted) == self.taken
    }

    /// Removes and returns the next record; `None` if it has not arrived as a whole.
    ///
    /// # Errors
    /// The other side moved an index of the ring by an impossible number, or announced a record that is too
    /// long.
    #[inline]
    pub fn read(&mut self, words: &[AtomicU64]) -> Result<Option<Record<'_>>, Broken> {
        let posted = Lane::index(words, self.lane.posted);
        let mut there = self.lane.between(self.taken, posted)?;
        let head = match self.head {
            Some(head) => head,
            None if there < HEAD => return Ok(None),
            None => {
                let head = core::array::from_fn(|place| {
                    let word = self.lane.word(words, self.taken.wrapping_add(place as u64));
                    word.map_or(0, |word| word.load(Ordering::Relaxed))
                });
                self.taken = self.taken.wrapping_add(HEAD as u64);
                there -= HEAD;
                self.bytes.clear();
                head
            }
        };
        let [start, first, second] = head;
        let length = (start >> 32) as usize;
        if length > MOST_BYTES {
            return Err(Broken::Length(length));
        }
        let left = length - self.bytes.len();
        if left > 0 {
            self.take(words, left.min(there * 8));
        }
        Lane::publish(words, self.lane.taken, self.taken);
        let is_whole = self.bytes.len() == length;
        self.head = (!is_whole).then_some(head);
        Ok(is_whole.then_some(Record { kind: start as u32, first, second, bytes: &self.bytes }))
    }

    /// Moves this many bytes from the ring to the record.
    fn take(&mut self, words: &[AtomicU64], count: usize) {
        let before = self.bytes.len();
        self.bytes.resize(before + count, 0);
        let [behind, wrapped] = self.lane.from(words, self.taken);
        let bytes = self.bytes.get_mut(before..).unwrap_or_default();
        let middle = bytes.len().min(behind.len() * 8);
        let (first, second) = bytes.split_at_mut(middle);
        load(behind, first);
        load(wrapped, second);
        self.taken = self.taken.wrapping_add(count.div_ceil(8) as u64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LANE: Lane = Lane { posted: 0, taken: 1, start: 2, words: 16 };

    fn memory() -> Vec<AtomicU64> {
        (0..18).map(|_| AtomicU64::new(0)).collect()
    }

    proptest! {
        /// Compares a ring with a queue of records, some of them longer than the ring.
        #[test]
        fn records_arrive_whole_and_in_order(
            records in prop::collection::vec((any::<u32>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..300)), 1..20),
            reads in prop::collection::vec(any::<bool>(), 0..40),
        ) {
            let (words, mut writer, mut reader) = (memory(), Writer::new(LANE), Reader::new(LANE));
            let mut came = Vec::new();
            let mut read = |writer: &mut Writer| {
                writer.flush(&words).unwrap();
                if let Some(record) = reader.read(&words).unwrap() {
                    assert_eq!(record.second, !record.first);
                    came.push((record.kind, record.first, record.bytes.to_vec()));
                }
                came.len()
            };
            let mut reads = reads.into_iter();
            for (kind, first, bytes) in &records {
                let record = Record { kind: *kind, first: *first, second: !*first, bytes };
                writer.write(&words, record).unwrap();
                while reads.next() == Some(true) {
                    read(&mut writer);
                }
            }
            while read(&mut writer) < records.len() {}
            prop_assert_eq!(came, records);
        }

        #[test]
        fn no_content_panics_or_loops(
            contents in prop::collection::vec(any::<u64>(), 18),
            small in any::<bool>(),
            steps in prop::collection::vec((0..18_usize, any::<u64>()), 0..30),
        ) {
            let words: Vec<_> = contents.into_iter().map(AtomicU64::new).collect();
            if small {
                words[0].store(words[0].load(Ordering::Relaxed) % 40, Ordering::Relaxed);
            }
            let (mut reader, mut writer) = (Reader::new(LANE), Writer::new(LANE));
            for (place, word) in steps {
                let _ = reader.read(&words);
                let _ = writer.write(&words, Record { kind: 1, first: 2, second: 3, bytes: &[4; 50] });
                words[place].store(word, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn impossible_contents_are_named() {
        let words = memory();
        words[0].store(17, Ordering::Relaxed);
        assert_eq!(Reader::new(LANE).read(&words), Err(Broken::Index(17)));
        words[0].store(3, Ordering::Relaxed);
        words[2].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(Reader::new(LANE).read(&words), Err(Broken::Length(u32::MAX as usize)));
        words[1].store(1, Ordering::Relaxed);
        let record = Record { kind: 0, first: 0, second: 0, bytes: &[] };
        assert_eq!(Writer::new(LANE).write(&words, record), Err(Broken::Index(u64::MAX)));
    }
}
