//! Finding the records of a batch's flows, and treating their packets at once: what was fetched and looked at is at hand then.
//!
//! There are two passes. In the first, each record is guessed by its tag, in buckets that were fetched before
//! ([`FlowTable::prefetch`]), and fetched; in the second, keys are compared, and who treats packets gets the answer.

use millrace_memory::{Operation, Vectors, with_widest};
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::record::{FLAG_BITS, FLAGS, FlowRecord, NearKey, PROBATION, tick};
use super::{FlowIndex, FlowTable};

/// Who treats the packets of known flows. Its method must be `inline(always)`: it is built for each kind of vectors.
pub trait Meeting<Place> {
    /// Treats the packet at a place, whose flow has this record; returns how many bytes are counted with the flow, or nothing when the
    /// packet is not treated. Then it has changed nothing.
    fn meet(&mut self, place: Place, record: &FlowRecord) -> Option<u32>;
}

/// The flows of a batch that are sought.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// What most are told apart by.
    pub nears: &'a [NearKey],
    /// Their keys. Those of IPv4 packets don't matter.
    pub keys: &'a [FlowKey],
    /// The hashes of their keys.
    pub hashes: &'a [u64],
}

impl Sought<'_> {
    #[cold]
    #[inline(never)]
    fn again(&self, table: &FlowTable, index: usize, guessed: Option<FlowIndex>) -> Option<FlowIndex> {
        let key = self.nears[index].key4().unwrap_or(self.keys[index]);
        table.find_again(guessed, &key, self.hashes[index])
    }
}

/// A batch to be treated; see [`FlowTable::meet_batch`].
struct BatchMeeting<'a, M, I> {
    table: &'a mut FlowTable,
    sought: Sought<'a>,
    found: &'a mut [Option<FlowIndex>],
    places: I,
    /// The coarse time that records of the batch's packets get.
    used: u32,
    meeting: M,
    rest: &'a mut Vec<u16>,
}

impl FlowTable {
    /// Finds the base records of a batch's flows as [`find_batch`](Self::find_batch) does, and has `meeting` treat the packets of known
    /// flows, each at its place. What it treats counts with its flow at `now`, as by [`touch`](Self::touch); the numbers of all other
    /// packets are added to `rest`. Buckets should have been [fetched](Self::prefetch). Returns `meeting`.
    ///
    /// # Panics
    /// When the slices' lengths differ.
    pub fn meet_batch<P, M: Meeting<P>>(
        &mut self,
        sought: Sought<'_>,
        found: &mut [Option<FlowIndex>],
        places: impl Iterator<Item = P>,
        now: Instant,
        (meeting, rest): (M, &mut Vec<u16>),
    ) -> M {
        let lengths = [sought.keys.len(), sought.hashes.len(), found.len()];
        assert!(lengths == [sought.nears.len(); 3], "slices of one batch differ in length");
        let used = tick(now) << FLAG_BITS;
        with_widest(BatchMeeting { table: self, sought, found, places, used, meeting, rest })
    }

    /// The first pass.
    #[inline(always)]
    fn guess_all(&self, vectors: impl Vectors, sought: Sought<'_>, found: &mut [Option<FlowIndex>]) {
        let aim = self.buckets.aim();
        for ((found, &hash), &near) in found.iter_mut().zip(sought.hashes).zip(sought.nears) {
            let slot = self.buckets.guess(vectors, aim.home(hash), aim.tag(hash));
            self.records.prefetch_unchecked(slot);
            if !near.is_v4() {
                self.records.prefetch_far(slot);
            }
            *found = FlowIndex::from_slot(slot);
        }
    }
}

impl<I: Iterator, M: Meeting<I::Item>> Operation for BatchMeeting<'_, M, I> {
    type Output = M;

    #[inline(always)]
    fn run<V: Vectors>(self, vectors: V) -> M {
        let Self { table, sought, found, places, used, mut meeting, rest } = self;
        table.guess_all(vectors, sought, found);
        for (index, ((found, &near), place)) in found.iter_mut().zip(sought.nears).zip(places).enumerate() {
            let slot = found.map_or(0, FlowIndex::slot);
            let record = &mut table.records[slot];
            // Slot 0 has nobody's key.
            if !record.is_near(near, 0)
                || !near.is_v4() && !table.records.far(slot).key.is_of(&sought.keys[index])
            {
                *found = sought.again(table, index, *found);
                rest.push(index as u16);
                continue;
            }
            let record = &mut table.records[slot];
            let Some(bytes) = meeting.meet(place, record) else {
                rest.push(index as u16);
                continue;
            };
            let before = record.used;
            record.used = used | before & FLAGS;
            record.bytes = record.bytes.wrapping_add(u64::from(bytes));
            let (packets, carry) = record.packets.overflowing_add(1);
            record.packets = packets;
            if before & PROBATION != 0 || carry {
                table.touch_rarely(slot, carry);
            }
        }
        meeting
    }
}
