//! Tuple space: the filters of one address family, in a few hash tables. Each table is keyed by the bits of
//! its tuple.

use std::cmp::Reverse;

use super::directory::{Cursor, Directory, Place};
use super::pruning::{Pruning, Tables};
use crate::filter_table::Rank;
use crate::filter_table::batch::LANES;
use crate::filter_table::groups::{Found, Groups, Record};
use crate::filter_table::key::{Condition, Key, Tuple, V4};
use crate::prefix_match::{Count, NotCounted};

/// Maximum number of tables, the number of bits in [`Tables`].
const MOST: usize = Tables::BITS as usize;
/// Number of tables reserved for crowded keys: for filters whose key already has `CROWD` filters in the table
/// of a coarser tuple.
const SPARE: usize = 4;
/// Maximum number of filters with one key in a table. Further filters with this key go to another table if
/// possible.
const CROWD: usize = 16;

/// Returns the prefix lengths to which the lengths of filters are rounded down.
const fn ladder(words: usize) -> &'static [u32] {
    if words == V4 { &[16, 23, 28] } else { &[32, 48, 64, 112] }
}

/// Hash table of filters that have conditions on all bits of its tuple.
#[derive(Clone, Debug)]
struct Table<const W: usize> {
    tuple: Tuple<W>,
    /// Best rank of the table's filters.
    best: Rank,
    directory: Directory,
}

impl<const W: usize> Table<W> {
    /// Starts a lookup of the key.
    #[inline(always)]
    fn begin(&self, key: &Key<W>, lane: &mut Lane) {
        lane.hash = self.tuple.hash(key);
        lane.cursor = self.directory.start(lane.hash);
    }
}

/// State of the lookup of one packet.
#[derive(Clone, Copy, Default, Debug)]
struct Lane {
    /// Tables that have not been searched yet.
    tables: Tables,
    /// Hash of the key for the first of these tables.
    hash: u32,
    /// Current position of the search in the first of these tables.
    cursor: Cursor,
}

/// Tuple space with the filters for packets of one family.
#[derive(Clone, Debug)]
pub(super) struct Space<const W: usize> {
    /// Tables, the one with the best rank first.
    tables: Vec<Table<W>>,
    pruning: Pruning<W>,
    groups: Groups<W>,
    filters: usize,
    /// Number of filters removed since the last rebuild of the pruning maps. The maps may still list tables
    /// because of these filters.
    stale: usize,
}

impl<const W: usize> Default for Space<W> {
    fn default() -> Self {
        let (pruning, groups) = (Pruning::default(), Groups::default());
        Self { tables: Vec::new(), pruning, groups, filters: 0, stale: 0 }
    }
}

impl<const W: usize> Space<W> {
    /// Returns the best filter for a packet.
    #[inline]
    pub fn find(&self, key: &Key<W>, count: &mut impl Count) -> Found {
        if self.tables.is_empty() {
            return Found::NONE;
        }
        let mut lane = Lane { tables: self.pruning.tables(key, count), ..Lane::default() };
        if let Some(table) = self.first(lane.tables) {
            table.begin(key, &mut lane);
        }
        self.search(key, lane, count)
    }

    /// Returns the first table of a set.
    #[inline(always)]
    fn first(&self, tables: Tables) -> Option<&Table<W>> {
        self.tables.get(tables.trailing_zeros() as usize)
    }

    /// Returns the best filter in the tables that a lookup has still to search. The lookup has already begun
    /// with the first of these tables.
    #[inline(always)]
    fn search(&self, key: &Key<W>, mut lane: Lane, count: &mut impl Count) -> Found {
        let (mut found, mut best) = (Found::NONE, Rank::LAST);
        let Some(mut table) = self.first(lane.tables) else { return found };
        loop {
            table.directory.read_start(lane.cursor, count);
            while let Some(place) = table.directory.next(lane.hash, &mut lane.cursor) {
                table.directory.read_keys(place, count);
                let group = table.directory.group(place);
                if let Some(record) = self.groups.find(group, key, &best, count) {
                    best = record.rank();
                    found = record.found();
                }
            }
            lane.tables &= lane.tables - 1;
            match self.first(lane.tables) {
                Some(next) if next.best < best => table = next,
                _ => return found,
            }
            table.begin(key, &mut lane);
        }
    }

    /// Finds the best filters for up to [`LANES`] packets. Each lookup prefetches its memory while other
    /// lookups run.
    pub fn find_batch(&self, keys: &[Key<W>], found: &mut [Found]) {
        if self.tables.is_empty() {
            found.fill(Found::NONE);
            return;
        }
        let mut lanes = [Lane::default(); LANES];
        for (key, lane) in keys.iter().zip(&mut lanes) {
            lane.tables = self.pruning.tables(key, &mut NotCounted);
            if let Some(table) = self.first(lane.tables) {
                lane.hash = table.tuple.hash(key);
                table.directory.prefetch(lane.hash);
            }
        }
        for (key, lane) in keys.iter().zip(&mut lanes) {
            self.advance(key, lane);
        }
        for ((key, lane), found) in keys.iter().zip(&lanes).zip(found) {
            *found = self.search(key, *lane, &mut NotCounted);
        }
    }

    /// Advances a lookup to the first table that may have its key, and prefetches the group of filters.
    #[inline(always)]
    fn advance(&self, key: &Key<W>, lane: &mut Lane) {
        let Some(mut table) = self.first(lane.tables) else { return };
        lane.cursor = table.directory.start(lane.hash);
        while lane.cursor.is_empty() {
            let rest = lane.tables & (lane.tables - 1);
            // An empty cursor in a full bucket is not the end: the search continues in the next bucket.
            match self.first(rest) {
                Some(next) if !table.directory.has_more(lane.cursor) => table = next,
                _ => return,
            }
            lane.tables = rest;
            table.begin(key, lane);
        }
        let ahead = table.directory.next(lane.hash, &mut lane.cursor.clone());
        if let Some(place) = ahead {
            self.groups.prefetch(table.directory.group(place));
        }
    }

    /// Adds a filter. `slot` is its index in the table's entries.
    pub fn insert(&mut self, condition: &Condition<W>, rank: Rank, slot: u32) {
        let record = Record::new(*condition, rank, slot);
        let position = self.table_for(condition);
        let table = &mut self.tables[position];
        let hash = table.tuple.hash(&condition.example());
        match table.directory.place(hash) {
            Some(place) => {
                let group = self.groups.insert(table.directory.group(place), record);
                table.directory.set_group(place, group);
            }
            None => table.directory.insert(hash, self.groups.create(&[record])),
        }
        self.filters += 1;
        let best = rank.min(table.best);
        let position = self.rank_changed(position, best);
        if !self.pruning.add(&condition.example(), &condition.tuple(), position) {
            self.renew_pruning();
        }
    }

    /// Returns position of the table, place in the directory, and group of the filter in `slot`.
    fn whereabouts(&self, condition: &Condition<W>, slot: u32) -> Option<(usize, Place, u32)> {
        let (tuple, example) = (condition.tuple(), condition.example());
        let fitting = self.tables.iter().enumerate().filter(|(_, table)| tuple.covers(&table.tuple));
        let mut found = fitting.filter_map(|(position, table)| {
            let place = table.directory.place(table.tuple.hash(&example))?;
            let group = table.directory.group(place);
            let here = self.groups.records(group).iter().any(|record| record.slot() == slot);
            here.then_some((position, place, group))
        });
        found.next()
    }

    /// Removes the filter in `slot`.
    pub fn remove(&mut self, condition: &Condition<W>, rank: Rank, slot: u32) {
        let Some((position, place, group)) = self.whereabouts(condition, slot) else { return };
        let table = &mut self.tables[position];
        match self.groups.remove(group, slot) {
            Some(group) => table.directory.set_group(place, group),
            None => table.directory.remove(place),
        }
        self.filters -= 1;
        self.stale += 1;
        if table.directory.len() == 0 {
            self.tables.remove(position);
            self.pruning.remove_table(position);
        } else if rank == table.best {
            self.rank_changed(position, self.best_of(position));
        }
        if self.stale > self.filters / 2 + 64 {
            self.renew_pruning();
        }
    }

    /// Records that the filter in slot `from` has moved to slot `to`.
    pub fn renumber(&mut self, condition: &Condition<W>, from: u32, to: u32) {
        if let Some((_, _, group)) = self.whereabouts(condition, from) {
            self.groups.renumber(group, from, to);
        }
    }

    /// Computes the best rank in a table.
    fn best_of(&self, position: usize) -> Rank {
        let groups = self.tables[position].directory.groups();
        groups.map(|group| self.groups.records(group)[0].rank()).min().unwrap_or(Rank::LAST)
    }

    /// Sets the best rank of the table at `position`, and moves the table to its place in the order. Returns
    /// the new position.
    fn rank_changed(&mut self, position: usize, best: Rank) -> usize {
        if self.tables[position].best == best {
            return position;
        }
        let mut table = self.tables.remove(position);
        table.best = best;
        let place = self.tables.partition_point(|other| other.best < best);
        self.tables.insert(place, table);
        if place != position {
            self.pruning.move_table(position, place);
        }
        place
    }

    /// Returns the position of the table for a filter; creates the table if needed.
    fn table_for(&mut self, condition: &Condition<W>) -> usize {
        let (tuple, example) = (condition.tuple(), condition.example());
        let pairs = (ladder(W).len() + 1).pow(2);
        let fine = tuple.rounded(ladder(W));
        // Choose a tuple: the first of these whose table has room for the filter, or may still be added.
        //
        // 1. all exact bits, as long as enough tables remain for all pairs of prefix lengths;
        // 2. only the address bits;
        // 3. the filter's own tuple.
        let levels = [(fine, MOST - SPARE - pairs), (fine.addresses(), MOST - SPARE), (tuple, MOST - 1)];
        for (level, most) in levels {
            match self.tables.iter().position(|table| table.tuple == level) {
                Some(position) if self.crowd(position, &example) < CROWD => return position,
                None if self.tables.len() < most => return self.add_table(level),
                _ => {}
            }
        }
        // Among the tables that can take the filter, prefer those in which at most `CROWD` filters have the
        // filter's key, and choose the one whose tuple has the most bits. If there is none, choose the table
        // in which the fewest filters have this key.
        let fitting = (0..self.tables.len()).filter(|index| tuple.covers(&self.tables[*index].tuple));
        let closest = fitting.min_by_key(|index| {
            let crowd = self.crowd(*index, &example);
            (crowd.max(CROWD), Reverse(self.tables[*index].tuple.bits()), crowd)
        });
        // The last table is for filters that no other table can take: its tuple is empty.
        closest.unwrap_or_else(|| self.add_table(Tuple::NONE))
    }

    /// Returns the number of filters in the table at `position` that have the same key as `example`.
    fn crowd(&self, position: usize, example: &Key<W>) -> usize {
        let table = &self.tables[position];
        let place = table.directory.place(table.tuple.hash(example));
        place.map_or(0, |place| self.groups.records(table.directory.group(place)).len())
    }

    /// Adds an empty table behind the others, and returns its position.
    fn add_table(&mut self, tuple: Tuple<W>) -> usize {
        self.tables.push(Table { tuple, best: Rank::LAST, directory: Directory::default() });
        self.tables.len() - 1
    }

    fn renew_pruning(&mut self) {
        self.stale = 0;
        self.pruning.clear(self.filters);
        for (position, table) in self.tables.iter().enumerate() {
            for record in table.directory.groups().flat_map(|group| self.groups.records(group)) {
                let condition = record.condition();
                self.pruning.add(&condition.example(), &condition.tuple(), position);
            }
        }
        self.pruning.shrink();
    }

    /// Returns the heap memory in bytes.
    pub fn memory(&self) -> usize {
        let directories: usize = self.tables.iter().map(|table| table.directory.memory()).sum();
        let tables = self.tables.capacity() * size_of::<Table<W>>();
        tables + directories + self.groups.memory() + self.pruning.memory()
    }
}
