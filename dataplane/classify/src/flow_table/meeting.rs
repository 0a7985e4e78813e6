//! Finding the records of a batch's flows, and treating their packets at once: what was fetched and looked at is at hand then.
//!
//! Keys go through two stages in blocks: a record is guessed by its tag, in buckets that were fetched before
//! ([`FlowTable::prefetch`]), and fetched; records have come, keys are compared, and who treats packets gets the answer. The second
//! stage follows one block behind the first.

use millrace_memory::{Operation, Vectors, with_widest};
use millrace_packet::{Family, FlowKey};
use millrace_units::Instant;

use super::record::{FLAG_BITS, FLAGS, NearKey, PROBATION, tick};
use super::{FlowAnswer, FlowIndex, FlowTable};

/// Keys of a block.
const BLOCK: usize = 32;

/// Who treats the packets of known flows. Its method must be `inline(always)`: it is built for each kind of vectors.
pub trait Meeting {
    /// Treats the packet of that number in the batch, whose flow has this record; returns how many bytes are counted with the
    /// flow, or nothing when the packet is to be treated otherwise.
    fn meet(&mut self, index: usize, flow: FlowIndex, answer: &mut FlowAnswer, state: u32) -> Option<u32>;

    /// The flow of the packet of that number has no record.
    fn miss(&mut self, index: usize);
}

/// A batch to be treated; see [`FlowTable::meet_batch`].
struct BatchMeeting<'a, M> {
    table: &'a mut FlowTable,
    keys: &'a [FlowKey],
    hashes: &'a [u64],
    found: &'a mut [Option<FlowIndex>],
    /// The coarse time that records of the batch's packets get.
    used: u32,
    meeting: &'a mut M,
}

impl FlowTable {
    /// Finds the base records of a batch's flows as [`find_batch`](Self::find_batch) does, and has the packets of known flows treated.
    /// What `meeting` treats counts with its flow at `now`, as by [`touch`](Self::touch). Buckets should have been
    /// [fetched](Self::prefetch).
    ///
    /// # Panics
    /// When the slices' lengths differ.
    pub fn meet_batch<M: Meeting>(
        &mut self,
        (keys, hashes): (&[FlowKey], &[u64]),
        found: &mut [Option<FlowIndex>],
        now: Instant,
        meeting: &mut M,
    ) {
        assert!([hashes.len(), found.len()] == [keys.len(); 2], "slices of one batch differ in length");
        let used = tick(now) << FLAG_BITS;
        with_widest(BatchMeeting { table: self, keys, hashes, found, used, meeting });
    }
}

impl<M: Meeting> Operation for BatchMeeting<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vectors>(mut self, vectors: V) {
        let count = self.keys.len();
        self.guess(vectors, 0, BLOCK.min(count));
        let mut from = 0;
        while from < count {
            let next = from + BLOCK;
            if next < count {
                self.guess(vectors, next, (next + BLOCK).min(count));
            }
            self.meet(from, next.min(count));
            from = next;
        }
    }
}

impl<M: Meeting> BatchMeeting<'_, M> {
    /// The first stage.
    #[inline(always)]
    fn guess(&mut self, vectors: impl Vectors, from: usize, to: usize) {
        let table = &*self.table;
        let each = self.found[from..to].iter_mut().zip(&self.hashes[from..to]).zip(&self.keys[from..to]);
        for ((found, &hash), key) in each {
            let slot = table.buckets.guess(vectors, table.buckets.home(hash), table.buckets.tag(hash));
            table.records.prefetch(slot);
            if key.family() == Family::V6 {
                table.records.prefetch_far(slot);
            }
            *found = FlowIndex::from_slot(slot);
        }
    }

    /// The second stage.
    #[inline(always)]
    fn meet(&mut self, from: usize, to: usize) {
        for index in from..to {
            let (found, key) = (self.found[index], &self.keys[index]);
            let slot = found.map_or(0, FlowIndex::slot);
            let record = &self.table.records[slot];
            let is_near = record.is_near(NearKey::of(key), 0);
            match found {
                Some(flow) if is_near && self.is_far(slot, key) => self.meet_one(index, flow),
                _ => self.meet_again(index),
            }
        }
    }

    #[inline(always)]
    fn is_far(&self, slot: u32, key: &FlowKey) -> bool {
        key.family() == Family::V4 || self.table.records.far(slot).key.is_of(key)
    }

    #[inline(always)]
    fn meet_one(&mut self, index: usize, flow: FlowIndex) {
        let record = &mut self.table.records[flow.slot()];
        let Some(bytes) = self.meeting.meet(index, flow, &mut record.answer, record.state) else { return };
        let before = record.used;
        record.used = self.used | before & FLAGS;
        record.bytes = record.bytes.wrapping_add(u64::from(bytes));
        let (packets, carry) = record.packets.overflowing_add(1);
        record.packets = packets;
        if before & PROBATION != 0 || carry {
            self.table.touch_rarely(flow.slot(), carry);
        }
    }

    /// For flows without a record, and the few whose first guess was wrong.
    #[cold]
    #[inline(never)]
    fn meet_again(&mut self, index: usize) {
        let found = self.table.find_again(self.found[index], &self.keys[index], self.hashes[index]);
        self.found[index] = found;
        match found {
            Some(flow) => self.meet_one(index, flow),
            None => self.meeting.miss(index),
        }
    }
}
