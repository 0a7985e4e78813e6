//! Lookup of the flows of a batch, and treatment of the packets in the same loop, while the flows' records
//! are in the cache.
//!
//! The loop has two passes. The first pass finds the record that probably belongs to each packet, by its tag,
//! and prefetches it. ([`FlowTable::prefetch`](super::FlowTable::prefetch) has prefetched the buckets
//! before.) The second pass compares the keys, and passes each packet with its record to the [`Meeting`].

use std::ops::Range;

use millrace_memory::{Operation, Vectors};
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::lookup::Lookup;
use super::record_set::RecordSet;
use super::storage::record::{FLAG_BITS, FLAGS, PROBATION, tick};
use super::storage::{FlowIndex, FlowRecord, NearKey};

/// Number of packets in a block. Each pass handles a block at a time.
const BLOCK: usize = 32;
/// Number of blocks by which the first pass is ahead of the second.
const AHEAD: usize = 2;

/// Treatment of the packets of known flows in [`FlowTable::meet_batch`](super::FlowTable::meet_batch). Each
/// packet comes with a note: a value that the caller needs for the treatment. The method must be
/// `inline(always)`, because the compiler builds it for each kind of vector instructions.
pub trait Meeting<Packet, Note> {
    /// Treats packet `index`, whose flow has the record `record`. Returns the number of bytes to count for
    /// the flow. If the method can't treat the packet, it must change nothing and return `None`.
    fn meet(&mut self, index: usize, packet: (&mut Packet, &mut Note), record: &FlowRecord) -> Option<u32>;
}

/// Flow keys and hashes of the packets of a batch, for a lookup.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// Near parts of the keys, which are enough to distinguish most flows.
    pub nears: &'a [NearKey],
    /// Whole keys. The lookup doesn't read those of IPv4 packets.
    pub keys: &'a [FlowKey],
    /// Hashes of the keys.
    pub hashes: &'a [u64],
    /// Whether the batch may contain IPv6 packets.
    pub has_v6: bool,
}

impl Sought<'_> {
    /// Returns the keys and hashes of a part of the batch.
    #[inline(always)]
    fn of(&self, part: Range<usize>) -> Self {
        let Self { nears, keys, hashes, has_v6 } = *self;
        Self { nears: &nears[part.clone()], keys, hashes: &hashes[part], has_v6 }
    }

    /// First pass: finds records by their tags, and prefetches them.
    #[inline(always)]
    fn guess(&self, vectors: impl Vectors, lookup: Lookup<'_>, found: &mut [Option<FlowIndex>]) {
        let aim = lookup.buckets.aim();
        for ((found, &hash), &near) in found.iter_mut().zip(self.hashes).zip(self.nears) {
            let slot = lookup.buckets.guess(vectors, aim.home(hash), aim.tag(hash));
            lookup.records.prefetch_unchecked(slot);
            if self.has_v6 && !near.is_v4() {
                lookup.records.prefetch_far(slot);
            }
            *found = FlowIndex::from_slot(slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn again(&self, lookup: Lookup<'_>, index: usize, guessed: Option<FlowIndex>) -> Option<FlowIndex> {
        if self.nears[index] == NearKey::NONE {
            return None;
        }
        let key = self.nears[index].key4().unwrap_or(self.keys[index]);
        lookup.find_again(guessed, &key, self.hashes[index])
    }
}

/// Arguments for the lookup and treatment of a batch; see
/// [`FlowTable::meet_batch`](super::FlowTable::meet_batch).
pub(super) struct BatchMeeting<'a, M, P, N> {
    set: &'a mut RecordSet,
    sought: Sought<'a>,
    found: &'a mut [Option<FlowIndex>],
    packets: (&'a mut [P], &'a mut [N]),
    /// Time of the batch in the format of [`FlowRecord::used`], stored in the records that are found.
    used: u32,
    meeting: M,
    rest: &'a mut Vec<u16>,
}

impl<'a, M, P, N> BatchMeeting<'a, M, P, N> {
    /// Creates the lookup and treatment of a batch at the time `now`.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn new(
        set: &'a mut RecordSet,
        sought: Sought<'a>,
        found: &'a mut [Option<FlowIndex>],
        packets: (&'a mut [P], &'a mut [N]),
        now: Instant,
        (meeting, rest): (M, &'a mut Vec<u16>),
    ) -> Self {
        let lengths = [sought.keys.len(), sought.hashes.len(), found.len(), packets.0.len(), packets.1.len()];
        assert!(lengths == [sought.nears.len(); 5], "slices of one batch differ in length");
        let used = tick(now) << FLAG_BITS;
        Self { set, sought, found, packets, used, meeting, rest }
    }
}

impl<P, N, M: Meeting<P, N>> Operation for BatchMeeting<'_, M, P, N> {
    type Output = M;

    #[inline(always)]
    fn run<V: Vectors>(self, vectors: V) -> M {
        let Self { set, sought, found, packets: (packets, notes), used, mut meeting, rest } = self;
        let count = found.len();
        let block = |number: usize| {
            let begin = (number * BLOCK).min(count);
            begin..(begin + BLOCK).min(count)
        };
        for number in 0..count.div_ceil(BLOCK) + AHEAD {
            let guessed = block(number);
            sought.of(guessed.clone()).guess(vectors, set.lookup(), &mut found[guessed]);
            let Some(number) = number.checked_sub(AHEAD) else { continue };
            let met = block(number);
            let (begin, nears) = (met.start, &sought.nears[met.clone()]);
            let both = packets[met.clone()].iter_mut().zip(&mut notes[met.clone()]);
            for (place, ((found, &near), both)) in found[met].iter_mut().zip(nears).zip(both).enumerate() {
                let index = begin + place;
                let slot = found.map_or(0, FlowIndex::slot);
                let record = &mut set.slots.records[slot];
                // If no record was found, `slot` is 0. The key stored there differs from every flow's key.
                if !record.is_near(near, 0)
                    || sought.has_v6
                        && !near.is_v4()
                        && !set.slots.records.far(slot).key.is_of(&sought.keys[index])
                {
                    *found = sought.again(set.lookup(), index, *found);
                    rest.push(index as u16);
                    continue;
                }
                let record = &mut set.slots.records[slot];
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
                    set.touch_rarely(slot, carry);
                } else if carry {
                    set.touch_rarely(slot, true);
                }
            }
        }
        meeting
    }
}
