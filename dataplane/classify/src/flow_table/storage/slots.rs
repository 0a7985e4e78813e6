//! Slots: the parts of records by slot, and free slots.

use std::ops::Range;

use millrace_memory::{HugeSlice, MemoryError, prefetch_slice_element};
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::list::List;
use super::record::{FlowIndex, FlowRecord, Upkeep};
use super::records::{self, Records};

/// Slots with their records. Slot 0 holds no record.
#[derive(Debug)]
pub(in crate::flow_table) struct Slots {
    pub records: Records,
    pub upkeep: HugeSlice<Upkeep>,
    /// First slot that has never been used.
    fresh: u32,
    /// Released slots. The slot released last comes first.
    free: List,
}

impl Slots {
    /// Maps memory for `count` slots, slot 0 included.
    pub fn new(count: u32) -> Result<Self, MemoryError> {
        let upkeep = HugeSlice::new(records::WHAT, count as usize)?;
        Ok(Self { records: Records::new(count)?, upkeep, fresh: 1, free: List::default() })
    }

    /// Populates the memory of all slots.
    pub fn populate(&mut self) -> Result<(), MemoryError> {
        self.records.populate()?;
        self.upkeep.populate(records::WHAT)
    }

    /// Returns the largest slot used so far, plus one.
    #[inline]
    pub fn end(&self) -> u32 {
        self.fresh
    }

    /// Whether a slot is free.
    pub fn has_free(&self) -> bool {
        self.free.first() != 0 || self.fresh < self.records.len()
    }

    /// Takes a free slot; returns `None` if there is none.
    #[inline(always)]
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop_front(&mut self.upkeep).or_else(|| {
            let slot = self.fresh;
            (slot < self.records.len()).then(|| {
                self.fresh += 1;
                slot
            })
        })
    }

    /// Frees a slot, which must be in no list.
    #[inline(always)]
    pub fn release(&mut self, slot: u32) {
        self.free.push_front(&mut self.upkeep, slot);
    }

    /// Iterates over the live records in a range of slots, in order.
    pub fn live(&self, slots: Range<u32>) -> impl Iterator<Item = (FlowIndex, &FlowRecord)> {
        let end = slots.end.min(self.fresh);
        (slots.start.min(end)..end).filter_map(|slot| {
            let record = &self.records[slot];
            FlowIndex::from_slot(slot).filter(|_| record.is_live()).map(|index| (index, record))
        })
    }

    /// Returns the flow key of a record.
    #[inline]
    pub fn key(&self, slot: u32) -> FlowKey {
        self.records[slot].key.whole(self.records.far(slot).key)
    }

    /// Returns the number of packets of a flow so far.
    #[inline]
    pub fn packets(&self, slot: u32) -> u64 {
        let high = self.upkeep[slot as usize].packets_high;
        u64::from(self.records[slot].packets) | u64::from(high) << 32
    }

    /// Returns the time of a record's creation.
    #[inline]
    pub fn created(&self, slot: u32) -> Instant {
        Instant::from_nanos(self.upkeep[slot as usize].created)
    }

    /// Returns the time of a flow's last packet, with a resolution of 17 ms.
    #[inline]
    pub fn last_used(&self, slot: u32, now: Instant) -> Instant {
        super::record::last_used(now, self.records[slot].used).max(self.created(slot))
    }

    /// Prefetches all parts of a record.
    pub fn prefetch(&self, slot: u32) {
        self.records.prefetch(slot);
        self.records.prefetch_far(slot);
        prefetch_slice_element(&self.upkeep, slot as usize);
    }
}
