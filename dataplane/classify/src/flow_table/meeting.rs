//! Finding the records of a batch's flows, and treating their packets at once: what was fetched and looked at is at hand then.
//!
//! There are two passes. In the first, each record is guessed by its tag, in buckets that were fetched before
//! ([`FlowTable::prefetch`]), and fetched; in the second, keys are compared, and who treats packets gets the answer.

use std::ops::Range;

use millrace_memory::{Operation, Vectors, with_widest};
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::record::{FLAG_BITS, FLAGS, FlowRecord, NearKey, PROBATION, tick};
use super::{FlowIndex, FlowTable};

/// Packets of a block, of which each goes through one pass at once.
const BLOCK: usize = 32;
/// Blocks that the first pass is ahead of the second.
const AHEAD: usize = 2;

/// Who treats the packets of known flows, and changes a note on each. Its method must be `inline(always)`: it is built for each kind of
/// vectors.
pub trait Meeting<Packet, Note> {
    /// Treats the packet of that number, whose flow has this record; returns how many bytes are counted with the flow, or nothing when the
    /// packet is not treated. Then it has changed nothing.
    fn meet(&mut self, index: usize, packet: (&mut Packet, &mut Note), record: &FlowRecord) -> Option<u32>;
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
    /// Whether some may be of IPv6.
    pub has_v6: bool,
}

impl Sought<'_> {
    /// Those of a part of the batch.
    #[inline(always)]
    fn of(&self, part: Range<usize>) -> Self {
        let Self { nears, keys, hashes, has_v6 } = *self;
        Self { nears: &nears[part.clone()], keys, hashes: &hashes[part], has_v6 }
    }

    #[cold]
    #[inline(never)]
    fn again(&self, table: &FlowTable, index: usize, guessed: Option<FlowIndex>) -> Option<FlowIndex> {
        if self.nears[index] == NearKey::NONE {
            return None;
        }
        let key = self.nears[index].key4().unwrap_or(self.keys[index]);
        table.find_again(guessed, &key, self.hashes[index])
    }
}

/// A batch to be treated; see [`FlowTable::meet_batch`].
struct BatchMeeting<'a, M, P, N> {
    table: &'a mut FlowTable,
    sought: Sought<'a>,
    found: &'a mut [Option<FlowIndex>],
    packets: (&'a mut [P], &'a mut [N]),
    /// The coarse time that records of the batch's packets get.
    used: u32,
    meeting: M,
    rest: &'a mut Vec<u16>,
}

impl FlowTable {
    /// Finds the base records of a batch's flows as [`find_batch`](Self::find_batch) does, and has `meeting` treat the packets of known
    /// flows, each with its note. What it treats counts with its flow at `now`, as by [`touch`](Self::touch); the numbers of all other
    /// packets are added to `rest`. Buckets should have been [fetched](Self::prefetch). Returns `meeting`.
    ///
    /// # Panics
    /// When the slices' lengths differ.
    pub fn meet_batch<P, N, M: Meeting<P, N>>(
        &mut self,
        sought: Sought<'_>,
        found: &mut [Option<FlowIndex>],
        packets: (&mut [P], &mut [N]),
        now: Instant,
        (meeting, rest): (M, &mut Vec<u16>),
    ) -> M {
        let lengths = [sought.keys.len(), sought.hashes.len(), found.len(), packets.0.len(), packets.1.len()];
        assert!(lengths == [sought.nears.len(); 5], "slices of one batch differ in length");
        let used = tick(now) << FLAG_BITS;
        with_widest(BatchMeeting { table: self, sought, found, packets, used, meeting, rest })
    }

    /// The first pass.
    #[inline(always)]
    fn guess_all(&self, vectors: impl Vectors, sought: Sought<'_>, found: &mut [Option<FlowIndex>]) {
        let aim = self.buckets.aim();
        for ((found, &hash), &near) in found.iter_mut().zip(sought.hashes).zip(sought.nears) {
            let slot = self.buckets.guess(vectors, aim.home(hash), aim.tag(hash));
            self.records.prefetch_unchecked(slot);
            if sought.has_v6 && !near.is_v4() {
                self.records.prefetch_far(slot);
            }
            *found = FlowIndex::from_slot(slot);
        }
    }
}

impl<P, N, M: Meeting<P, N>> Operation for BatchMeeting<'_, M, P, N> {
    type Output = M;

    #[inline(always)]
    fn run<V: Vectors>(self, vectors: V) -> M {
        let Self { table, sought, found, packets: (packets, notes), used, mut meeting, rest } = self;
        let count = found.len();
        let block = |number: usize| {
            let begin = (number * BLOCK).min(count);
            begin..(begin + BLOCK).min(count)
        };
        for number in 0..count.div_ceil(BLOCK) + AHEAD {
            let guessed = block(number);
            table.guess_all(vectors, sought.of(guessed.clone()), &mut found[guessed]);
            let Some(number) = number.checked_sub(AHEAD) else { continue };
            let met = block(number);
            let (begin, nears) = (met.start, &sought.nears[met.clone()]);
            let both = packets[met.clone()].iter_mut().zip(&mut notes[met.clone()]);
            for (place, ((found, &near), both)) in found[met].iter_mut().zip(nears).zip(both).enumerate() {
                let index = begin + place;
                let slot = found.map_or(0, FlowIndex::slot);
                let record = &mut table.records[slot];
                // Slot 0 has nobody's key.
                if !record.is_near(near, 0)
                    || sought.has_v6
                        && !near.is_v4()
                        && !table.records.far(slot).key.is_of(&sought.keys[index])
                {
                    *found = sought.again(table, index, *found);
                    rest.push(index as u16);
                    continue;
                }
                let record = &mut table.records[slot];
                let Some(bytes) = meeting.meet(index, both, record) else {
                    rest.push(index as u16);
                    continue;
                };
                let before = record.used;
                record.used = used | before & FLAGS;
                record.bytes = record.bytes.wrapping_add(u64::from(bytes));
                let (packets, carry) = record.packets.overflowing_add(1);
                record.packets = packets;
                if before & PROBATION != 0 {
                    table.touch_rarely(slot, carry);
                } else if carry {
                    table.touch_rarely(slot, true);
                }
            }
        }
        meeting
    }
}
