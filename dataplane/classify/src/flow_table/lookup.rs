//! Lookup of single records.

use millrace_packet::{Family, FlowKey};

use super::index::Buckets;
use super::storage::record::NearKey;
use super::storage::{FlowIndex, Records};

/// Buckets and records of a table, for lookups.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub buckets: &'a Buckets,
    pub records: &'a Records,
}

impl Lookup<'_> {
    /// Finds a variant of a flow's record; `None` if there is none. `hash` is the hash of flow and variant
    /// together.
    #[inline(always)]
    pub fn find(self, key: &FlowKey, hash: u64, variant: u32) -> Option<FlowIndex> {
        let Self { buckets, records } = self;
        let near = NearKey::of(key);
        let is_it = |slot: u32| {
            records[slot].is_near(near, variant)
                && (key.family() == Family::V4 || records.far(slot).key.is_of(key))
        };
        FlowIndex::from_slot(buckets.find(hash, is_it)?)
    }

    /// Searches all buckets of a hash for the base record of a flow. Needed only if the lookup by tag failed,
    /// which is rare: `guessed` is `None`, or is the record of another flow with the same tag.
    #[cold]
    #[inline(never)]
    pub fn find_again(self, guessed: Option<FlowIndex>, key: &FlowKey, hash: u64) -> Option<FlowIndex> {
        if guessed.is_none() && !self.buckets.spills(self.buckets.home(hash)) {
            return None;
        }
        self.find(key, hash, 0)
    }
}
