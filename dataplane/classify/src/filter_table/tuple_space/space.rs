//! The filters of one address family: a few hash tables, each over the bits of its tuple.

use super::directory::Directory;
use super::groups::{Groups, Record};
use super::key::{Condition, Key, Tuple, address_words};
use super::meter::Meter;
use super::pruning::{Places, Pruning, Tables};
use crate::filter_table::Rank;

/// Tables there are at most: one for each bit of [`Tables`].
const MOST: usize = Tables::BITS as usize;
/// Lookups that are under way at once.
pub(super) const LANES: usize = 32;
/// Filters of one key in a table of the coarsest tuples before a finer tuple is chosen, and in one of the middle tuples.
const CROWDS: [usize; 2] = [8, 16];

/// Prefix lengths to which those of filters are rounded down.
const fn ladder(words: usize) -> &'static [u32] {
    if address_words(words) == 1 { &[8, 16, 23, 28] } else { &[16, 32, 48, 64, 112] }
}

/// A hash table: its filters agree in having conditions on all bits of the tuple.
#[derive(Clone, Debug)]
struct Table<const W: usize> {
    tuple: Tuple<W>,
    /// The best rank of its filters.
    best: Rank,
    directory: Directory,
}

/// The best filter found so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    pub rank: Rank,
    /// Its slot; any when the rank is [`Rank::LAST`].
    pub slot: u32,
}

impl Best {
    /// None yet.
    pub const NONE: Self = Self { rank: Rank::LAST, slot: 0 };
}

/// The filters for the packets of one family.
#[derive(Clone, Debug)]
pub(super) struct Space<const W: usize> {
    /// Best first.
    tables: Vec<Table<W>>,
    pruning: Pruning<W>,
    groups: Groups<W>,
    filters: usize,
    /// Filters removed since the pruning maps were made: they may say too much.
    stale: usize,
}

impl<const W: usize> Default for Space<W> {
    fn default() -> Self {
        let (pruning, groups) = (Pruning::default(), Groups::default());
        Self { tables: Vec::new(), pruning, groups, filters: 0, stale: 0 }
    }
}

impl<const W: usize> Space<W> {
    /// The best filter for a packet.
    #[inline]
    pub fn find(&self, key: &Key<W>, meter: &mut impl Meter) -> Best {
        if self.tables.is_empty() {
            return Best::NONE;
        }
        let tables = self.pruning.tables(&self.pruning.places(key), meter);
        self.search(key, tables, meter)
    }

    /// The best filter for a packet in some of the tables.
    #[inline(always)]
    fn search(&self, key: &Key<W>, mut tables: Tables, meter: &mut impl Meter) -> Best {
        let mut best = Best::NONE;
        while tables != 0 {
            let table = &self.tables[tables.trailing_zeros() as usize];
            if table.best > best.rank {
                break;
            }
            meter.read(1);
            table.directory.find(table.tuple.hash(key), |group| {
                meter.read(1);
                if let Some(record) = self.groups.find(group, key, &best.rank, meter) {
                    best = Best { rank: record.rank(), slot: record.slot() };
                }
                false
            });
            tables &= tables - 1;
        }
        best
    }

    /// The best filters for up to [`LANES`] packets.
    pub fn find_batch(&self, keys: &[Key<W>], found: &mut [Best]) {
        let mut places = [Places::default(); LANES];
        let mut tables = [0; LANES];
        if self.tables.is_empty() {
            found.fill(Best::NONE);
            return;
        }
        for (key, places) in keys.iter().zip(&mut places) {
            *places = self.pruning.places(key);
            self.pruning.prefetch(places);
        }
        let lanes = || keys.iter().zip(&places);
        for ((key, places), tables) in lanes().zip(&mut tables) {
            *tables = self.pruning.tables(places, &mut ());
            if let Some(table) = self.first(*tables) {
                table.directory.prefetch(table.tuple.hash(key));
            }
        }
        for (key, tables) in keys.iter().zip(&mut tables) {
            self.advance(key, tables);
        }
        for ((key, tables), found) in keys.iter().zip(&tables).zip(found) {
            *found = self.search(key, *tables, &mut ());
        }
    }

    /// The first of some tables.
    #[inline(always)]
    fn first(&self, tables: Tables) -> Option<&Table<W>> {
        self.tables.get(tables.trailing_zeros() as usize)
    }

    /// Goes on to the first table that has something for the key, and has it fetched.
    #[inline(always)]
    fn advance(&self, key: &Key<W>, tables: &mut Tables) {
        while let Some(table) = self.first(*tables) {
            let mut found = false;
            table.directory.find(table.tuple.hash(key), |group| {
                self.groups.prefetch(group);
                found = true;
                true
            });
            if found {
                return;
            }
            *tables &= *tables - 1;
        }
    }

    /// Adds a filter, kept in `slot`.
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
            None => table.directory.insert(hash, self.groups.create(record)),
        }
        self.filters += 1;
        let best = rank.min(table.best);
        let position = self.rank_changed(position, best);
        if !self.pruning.add(&condition.example(), &condition.tuple(), position) {
            self.renew_pruning();
        }
    }

    /// Removes the filter in `slot`, which is there.
    pub fn remove(&mut self, condition: &Condition<W>, slot: u32) {
        let (tuple, example) = (condition.tuple(), condition.example());
        let mut rank = Rank::LAST;
        let position = self.tables.iter_mut().position(|table| {
            if !tuple.covers(&table.tuple) {
                return false;
            }
            let Some(place) = table.directory.place(table.tuple.hash(&example)) else { return false };
            let group = table.directory.group(place);
            let own = self.groups.records(group).iter().find(|record| record.slot() == slot);
            rank = own.map_or(rank, Record::rank);
            match self.groups.remove(group, slot) {
                Some(Some(group)) => table.directory.set_group(place, group),
                Some(None) => table.directory.remove(place),
                None => return false,
            }
            true
        });
        let Some(position) = position else { return };
        self.filters -= 1;
        self.stale += 1;
        if self.tables[position].directory.len() == 0 {
            self.tables.remove(position);
            self.pruning.remove_table(position);
        } else if rank == self.tables[position].best {
            self.rank_changed(position, self.best_of(position));
        }
        if self.stale > self.filters / 2 + 64 {
            self.renew_pruning();
        }
    }

    /// The best rank in a table, looked for.
    fn best_of(&self, position: usize) -> Rank {
        let groups = self.tables[position].directory.groups();
        groups.map(|group| self.groups.records(group)[0].rank()).min().unwrap_or(Rank::LAST)
    }

    /// Notes the best rank of the table at `position`, which moves to where that belongs; returns its position.
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

    /// The position of the table that a filter goes to; it is made if need be.
    fn table_for(&mut self, condition: &Condition<W>) -> usize {
        let (tuple, example) = (condition.tuple(), condition.example());
        let levels = [tuple.rounded(ladder(W), false), tuple.rounded(ladder(W), true), tuple];
        let crowds = CROWDS.into_iter().chain([usize::MAX]);
        for (level, crowd) in levels.iter().zip(crowds) {
            let table = self.tables.iter().position(|table| table.tuple == *level);
            match table {
                Some(position) if self.crowd(position, &example) >= crowd => {}
                Some(position) => return position,
                None if self.tables.len() < MOST - 1 => return self.add_table(*level),
                None => {}
            }
        }
        // All tables are in use: the best of those that can take the filter, or the last one, which takes any.
        let fitting = (0..self.tables.len()).filter(|index| tuple.covers(&self.tables[*index].tuple));
        match fitting.min_by_key(|index| self.crowd(*index, &example)) {
            Some(position) => position,
            None => self.add_table(Tuple::NONE),
        }
    }

    /// How many filters of the example's key a table has.
    fn crowd(&self, position: usize, example: &Key<W>) -> usize {
        let table = &self.tables[position];
        let place = table.directory.place(table.tuple.hash(example));
        place.map_or(0, |place| self.groups.records(table.directory.group(place)).len())
    }

    /// Adds an empty table behind the others.
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

    /// Bytes behind the pointers.
    pub fn memory(&self) -> usize {
        let directories: usize = self.tables.iter().map(|table| table.directory.memory()).sum();
        let tables = self.tables.capacity() * size_of::<Table<W>>();
        tables + directories + self.groups.memory() + self.pruning.memory()
    }
}
