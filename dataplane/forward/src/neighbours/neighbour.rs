//! Neighbour table of the forwarding path: the MAC address of each IP address on a link. Its entries come
//! from a [`Resolver`](crate::Resolver) or from the kernel's neighbour table.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use millrace_units::PortId;
use millrace_wire::MacAddr;

/// Key of a neighbour: the port whose link it is on, and its IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourKey {
    /// Port on whose link the neighbour is.
    pub port: PortId,
    /// IP address of the neighbour.
    pub address: IpAddr,
}

impl fmt::Display for NeighbourKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on port {}", self.address, self.port)
    }
}

/// State of a neighbour's MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// Request sent, no answer yet.
    Incomplete,
    /// Known MAC address. The resolver or the kernel confirms from time to time that it is still valid; the
    /// table does not.
    Reachable(MacAddr),
    /// Requests were sent, but no answer arrived.
    Failed,
}

/// Result of a lookup, which tells the caller what to do with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Send to this MAC address.
    Reachable(MacAddr),
    /// Hold the packet: an answer is expected.
    Incomplete,
    /// Answer with the ICMP error "host unreachable".
    Failed,
    /// The table has no entry: no request was sent yet.
    Unknown,
}

impl From<Option<NeighbourState>> for Resolution {
    fn from(state: Option<NeighbourState>) -> Self {
        match state {
            Some(NeighbourState::Reachable(mac)) => Self::Reachable(mac),
            Some(NeighbourState::Incomplete) => Self::Incomplete,
            Some(NeighbourState::Failed) => Self::Failed,
            None => Self::Unknown,
        }
    }
}

/// Error of a full table: it has its maximum number of entries, and none is unresolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the neighbour table is full: all {capacity} entries are resolved; {key} was not added")]
pub struct TableFull {
    /// Maximum number of entries of the table.
    pub capacity: usize,
    /// Neighbour that was refused.
    pub key: NeighbourKey,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: NeighbourState,
    /// Whether the entry is static. Uses of static entries are not reported.
    fixed: bool,
    used: bool,
    /// Number of the place in the list of unresolved neighbours; 0 for none.
    place: u64,
}

impl Entry {
    fn is_resolved(&self) -> bool {
        matches!(self.state, NeighbourState::Reachable(_))
    }
}

/// Neighbours of all ports, limited in number. Resolved neighbours are never evicted. Unresolved neighbours
/// evict each other, the oldest first. So a scan of a whole prefix displaces only other unresolved neighbours
/// (AR-05, ND-09).
#[derive(Debug)]
pub struct NeighbourTable {
    entries: HashMap<NeighbourKey, Entry, FixedState>,
    capacity: usize,
    max_unresolved: usize,
    unresolved: usize,
    /// Neighbours in the order in which they became unresolved, with the numbers of their places. Some may have been
    /// resolved or removed since, and others have a later place.
    waiting: VecDeque<(u64, NeighbourKey)>,
    /// Number of the last place.
    last: u64,
    used: Vec<NeighbourKey>,
}

impl NeighbourTable {
    /// Creates a table of at most `capacity` entries, a quarter of which (at least one) may be unresolved.
    /// `seed` should be random, so that senders can't choose addresses that collide.
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self {
            entries: HashMap::with_hasher(FixedState::with_seed(seed)),
            capacity,
            max_unresolved: (capacity / 4).max(1),
            unresolved: 0,
            waiting: VecDeque::new(),
            last: 0,
            used: Vec::new(),
        }
    }

    /// Looks up `address` at `port`. Marks a resolved neighbour as used.
    #[inline]
    pub fn lookup(&mut self, port: PortId, address: IpAddr) -> Resolution {
        let key = NeighbourKey { port, address };
        let Some(entry) = self.entries.get_mut(&key) else { return Resolution::Unknown };
        match entry.state {
            NeighbourState::Reachable(mac) => {
                if !entry.used && !entry.fixed {
                    entry.used = true;
                    self.used.push(key);
                }
                Resolution::Reachable(mac)
            }
            NeighbourState::Incomplete => Resolution::Incomplete,
            NeighbourState::Failed => Resolution::Failed,
        }
    }

    /// Returns the state of a neighbour, without marking it as used; `None` if the table has no entry for it.
    pub fn get(&self, key: NeighbourKey) -> Option<NeighbourState> {
        self.entries.get(&key).map(|entry| entry.state)
    }

    /// Sets the state of a neighbour, unless its entry is static. Returns the unresolved neighbour that was
    /// evicted for it, if any. The packets held for the evicted neighbour won't be released by an answer.
    ///
    /// # Errors
    /// [`TableFull`] if the neighbour is new and there is no room.
    pub fn upsert(
        &mut self,
        key: NeighbourKey,
        state: NeighbourState,
    ) -> Result<Option<NeighbourKey>, TableFull> {
        if self.entries.get(&key).is_some_and(|entry| entry.fixed) {
            return Ok(None);
        }
        self.put(key, Entry { state, fixed: false, used: false, place: 0 })
    }

    /// Sets a static neighbour, which only [`remove`](Self::remove) and this method change. Returns the
    /// unresolved neighbour that was evicted for it, if any.
    ///
    /// # Errors
    /// [`TableFull`] if the neighbour is new and there is no room.
    pub fn set_static(&mut self, key: NeighbourKey, mac: MacAddr) -> Result<Option<NeighbourKey>, TableFull> {
        self.put(key, Entry { state: NeighbourState::Reachable(mac), fixed: true, used: false, place: 0 })
    }

    /// Inserts an entry. A MAC address of zeros is stored as failed, because the pipeline uses it for a
    /// destination that is not known yet.
    fn put(&mut self, key: NeighbourKey, entry: Entry) -> Result<Option<NeighbourKey>, TableFull> {
        let is_nobody = entry.state == NeighbourState::Reachable(MacAddr::ZERO);
        let entry = if is_nobody { Entry { state: NeighbourState::Failed, ..entry } } else { entry };
        let old = self.entries.get(&key).copied();
        let evicted = if old.is_none() { self.make_room(key, entry.is_resolved())? } else { None };
        let (used, place) = old.map_or((false, 0), |old| (old.used, old.place));
        self.entries.insert(key, Entry { used, place, ..entry });
        let was_unresolved = old.is_some_and(|old| !old.is_resolved());
        self.unresolved -= usize::from(was_unresolved);
        if !entry.is_resolved() {
            self.unresolved += 1;
            if !was_unresolved {
                self.queue(key);
            }
        }
        let more = self.entries.len().saturating_sub(self.used.len());
        self.used.reserve(more);
        Ok(evicted)
    }

    /// Makes room for the new entry of `key`. Returns the evicted neighbour, if any.
    fn make_room(&mut self, key: NeighbourKey, resolved: bool) -> Result<Option<NeighbourKey>, TableFull> {
        let full = self.entries.len() >= self.capacity;
        if !full && (resolved || self.unresolved < self.max_unresolved) {
            return Ok(None);
        }
        let Some(oldest) = self.oldest_unresolved() else {
            return Err(TableFull { capacity: self.capacity, key });
        };
        self.remove(oldest);
        Ok(Some(oldest))
    }

    fn oldest_unresolved(&mut self) -> Option<NeighbourKey> {
        let entries = &self.entries;
        std::iter::from_fn(|| self.waiting.pop_front())
            .find(|waiting| waits(entries, waiting))
            .map(|(_, key)| key)
    }

    fn queue(&mut self, key: NeighbourKey) {
        if self.waiting.len() > 2 * self.max_unresolved {
            let entries = &self.entries;
            self.waiting.retain(|waiting| waits(entries, waiting));
        }
        self.last += 1;
        self.waiting.push_back((self.last, key));
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.place = self.last;
        }
    }

    /// Removes a neighbour and returns its state.
    pub fn remove(&mut self, key: NeighbourKey) -> Option<NeighbourState> {
        let entry = self.entries.remove(&key)?;
        self.unresolved -= usize::from(!entry.is_resolved());
        Some(entry.state)
    }

    /// Calls `each` with up to `most` learned neighbours that were used since their last report. Returns
    /// whether more are left.
    pub fn drain_used(&mut self, most: usize, mut each: impl FnMut(NeighbourKey)) -> bool {
        let first = self.used.len() - self.used.len().min(most);
        for key in self.used.drain(first..) {
            if let Some(entry) = self.entries.get_mut(&key)
                && entry.used
            {
                entry.used = false;
                each(key);
            }
        }
        !self.used.is_empty()
    }

    /// Iterates over all entries, in no particular order. The flag is true for a static entry.
    pub fn iter(&self) -> impl Iterator<Item = (NeighbourKey, NeighbourState, bool)> {
        self.entries.iter().map(|(key, entry)| (*key, entry.state, entry.fixed))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Whether a neighbour is unresolved, and this is its place in the list.
fn waits(entries: &HashMap<NeighbourKey, Entry, FixedState>, (place, key): &(u64, NeighbourKey)) -> bool {
    entries.get(key).is_some_and(|entry| !entry.is_resolved() && entry.place == *place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use NeighbourState::{Failed, Incomplete, Reachable};

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn key(number: u16) -> NeighbourKey {
        let [high, low] = number.to_be_bytes();
        NeighbourKey { port: PortId(1), address: IpAddr::from([10, 1, high, low]) }
    }

    fn lookup(table: &mut NeighbourTable, key: NeighbourKey) -> Resolution {
        table.lookup(key.port, key.address)
    }

    #[test]
    fn zero_mac_address_is_no_neighbour() {
        let mut table = NeighbourTable::new(16, 0);
        table.upsert(key(1), Reachable(MacAddr::ZERO)).unwrap();
        table.set_static(key(2), MacAddr::ZERO).unwrap();
        assert_eq!([1, 2].map(|number| lookup(&mut table, key(number))), [Resolution::Failed; 2]);
    }

    #[test]
    fn lookup_returns_the_state() {
        let mut table = NeighbourTable::new(16, 1);
        assert_eq!(lookup(&mut table, key(1)), Resolution::Unknown);
        for (state, resolution) in [
            (Incomplete, Resolution::Incomplete),
            (Reachable(MAC), Resolution::Reachable(MAC)),
            (Failed, Resolution::Failed),
        ] {
            assert_eq!(table.upsert(key(1), state), Ok(None));
            assert_eq!(lookup(&mut table, key(1)), resolution);
        }
        assert_eq!(table.remove(key(1)), Some(Failed));
        assert!(table.is_empty());
    }

    /// Test cases AR-05 and ND-09: a scan of 65,536 addresses that don't answer.
    #[test]
    fn a_scan_does_not_evict_resolved_neighbours() {
        let mut table = NeighbourTable::new(1024, 1);
        let good = NeighbourKey { port: PortId(2), ..key(1) };
        table.upsert(good, Reachable(MAC)).unwrap();
        for number in 0..=u16::MAX {
            table.upsert(key(number), Incomplete).unwrap();
            assert!(table.len() <= 1024 / 4 + 1);
        }
        assert_eq!(lookup(&mut table, good), Resolution::Reachable(MAC));
        assert_eq!(lookup(&mut table, key(u16::MAX)), Resolution::Incomplete, "the newest is there");
        assert!(table.waiting.len() <= 3 * 256, "{}", table.waiting.len());
    }

    #[test]
    fn a_dead_neighbour_that_is_asked_for_again_and_again_takes_one_place() {
        let mut table = NeighbourTable::new(8, 1);
        for _ in 0..10_000 {
            table.upsert(key(1), Failed).unwrap();
            table.remove(key(1));
        }
        assert!(table.waiting.len() <= 6, "{}", table.waiting.len());
        table.upsert(key(2), Incomplete).unwrap();
        table.upsert(key(1), Incomplete).unwrap();
        // The earlier places of the dead neighbour don't count.
        assert_eq!(table.upsert(key(3), Incomplete), Ok(Some(key(2))));
    }

    #[test]
    fn the_oldest_unresolved_makes_room() {
        let mut table = NeighbourTable::new(8, 1);
        table.upsert(key(1), Incomplete).unwrap();
        table.upsert(key(2), Incomplete).unwrap();
        assert_eq!(table.upsert(key(3), Incomplete), Ok(Some(key(1))));
        table.upsert(key(2), Reachable(MAC)).unwrap();
        assert_eq!(table.upsert(key(4), Incomplete), Ok(None));
        assert_eq!(table.upsert(key(5), Incomplete), Ok(Some(key(3))));
    }

    #[test]
    fn a_table_full_of_resolved_neighbours_refuses() {
        let mut table = NeighbourTable::new(4, 1);
        for number in 0..4 {
            table.upsert(key(number), Reachable(MAC)).unwrap();
        }
        assert!(table.upsert(key(9), Reachable(MAC)).is_err());
        assert!(table.upsert(key(9), Incomplete).is_err());
        assert_eq!(table.upsert(key(3), Reachable(OTHER)), Ok(None), "a known one changes");
    }

    #[test]
    fn uses_are_reported_once_per_scan_except_for_static_entries() {
        let mut table = NeighbourTable::new(16, 1);
        for number in 0..3 {
            table.upsert(key(number), Reachable(MAC)).unwrap();
        }
        table.set_static(key(7), MAC).unwrap();
        for number in [1, 1, 2, 7] {
            lookup(&mut table, key(number));
        }
        table.remove(key(2));
        let mut used = Vec::new();
        assert!(!table.drain_used(8, |key| used.push(key)));
        assert_eq!(used, [key(1)]);
        table.drain_used(8, |key| panic!("{key} was not used again"));
        lookup(&mut table, key(1));
        let mut again = 0;
        table.drain_used(8, |_| again += 1);
        assert_eq!(again, 1);
    }

    /// Test case AR-04.
    #[test]
    fn a_static_entry_stays() {
        let mut table = NeighbourTable::new(16, 1);
        table.set_static(key(1), MAC).unwrap();
        table.upsert(key(1), Reachable(OTHER)).unwrap();
        table.upsert(key(1), Failed).unwrap();
        assert_eq!(lookup(&mut table, key(1)), Resolution::Reachable(MAC));
        table.remove(key(1));
        assert_eq!(lookup(&mut table, key(1)), Resolution::Unknown);
    }
}
