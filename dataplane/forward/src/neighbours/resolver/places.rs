//! Entries of neighbours: a limited number, shared fairly by ports (RFC 6583, 7).
//!
//! When all entries are in use, a learned neighbour of the port with the most learned neighbours is removed.
//! The order is: a neighbour that only sent requests to the router, then a stale one, then an unresolved one.
//! A neighbour in use is removed only in favour of a port with fewer neighbours. Static neighbours are never
//! removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use millrace_units::{Instant, PortId};

use super::requests::{Origin, Requests};
use super::state::{Entry, Rank};
use crate::{NeighbourKey, RateLimit};

/// Learned neighbours of a port, ordered for removal.
#[derive(Debug)]
struct PortPlaces {
    /// Neighbours by rank, then in the order in which they got the rank.
    order: BTreeSet<(Rank, u64, NeighbourKey)>,
    counts: [usize; Rank::LEARNED],
    requests: Requests,
}

impl PortPlaces {
    fn count(&self, rank: Rank) -> usize {
        self.counts.get(rank as usize).copied().unwrap_or_default()
    }

    fn oldest(&self, rank: Rank) -> Option<NeighbourKey> {
        let from = NeighbourKey { port: PortId(0), address: [0, 0, 0, 0].into() };
        let first = self.order.range((rank, 0, from)..).next()?;
        (first.0 == rank).then_some(first.2)
    }
}

/// Neighbours, the deadlines of their states, and the order in which they are removed when entries run out.
#[derive(Debug)]
pub(super) struct Places {
    entries: HashMap<NeighbourKey, (Entry, u64), FixedState>,
    deadlines: BTreeSet<(Instant, NeighbourKey)>,
    /// Learned neighbours by port. A port without neighbours stays here, because the port's rate limit counts
    /// recent requests.
    ports: BTreeMap<PortId, PortPlaces>,
    unresolved: usize,
    requests: RateLimit,
    seed: u64,
    /// Sequence number of the latest change of a rank.
    latest: u64,
}

impl Places {
    /// Creates an empty set. `requests` limits the requests for new neighbours at each port.
    pub fn new(requests: RateLimit, seed: u64) -> Self {
        Self {
            entries: HashMap::with_hasher(FixedState::with_seed(seed)),
            deadlines: BTreeSet::new(),
            ports: BTreeMap::new(),
            unresolved: 0,
            requests,
            seed,
            latest: 0,
        }
    }

    /// Returns the number of neighbours, static ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of neighbours that have not answered.
    pub fn unresolved(&self) -> usize {
        self.unresolved
    }

    /// Returns the number of neighbours of a port that only sent requests to the router.
    pub fn unconfirmed(&self, port: PortId) -> usize {
        self.ports.get(&port).map_or(0, |places| places.count(Rank::Unconfirmed))
    }

    /// Returns the entry of a neighbour.
    pub fn get(&self, key: NeighbourKey) -> Option<Entry> {
        self.entries.get(&key).map(|(entry, _)| *entry)
    }

    /// Iterates over all neighbours, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (NeighbourKey, Entry)> + '_ {
        self.entries.iter().map(|(key, (entry, _))| (*key, *entry))
    }

    /// Returns the earliest deadline, and its neighbour.
    pub fn first_deadline(&self) -> Option<(Instant, NeighbourKey)> {
        self.deadlines.first().copied()
    }

    /// Returns whether a request for a new neighbour at `port` is within the rate limit, and counts it.
    /// `origin`: origin of the packet that needs the neighbour.
    pub fn take_request(&mut self, port: PortId, origin: Origin, now: Instant) -> bool {
        self.port(port).requests.take(origin, now)
    }

    /// Sets the entry of a neighbour. While its rank stays the same, the neighbour keeps its position in the
    /// order of removal.
    pub fn put(&mut self, key: NeighbourKey, entry: Entry) {
        let old = self.entries.get(&key).copied();
        if let Some((old, order)) = old {
            self.deadlines.remove(&(old.deadline, key));
            self.leave(key, old.rank(), order);
        }
        let order = match old {
            Some((old, order)) if old.rank() == entry.rank() => order,
            _ => {
                self.latest += 1;
                self.latest
            }
        };
        self.entries.insert(key, (entry, order));
        self.deadlines.insert((entry.deadline, key));
        self.enter(key, entry.rank(), order);
    }

    /// Removes a neighbour. Returns whether it existed.
    pub fn remove(&mut self, key: NeighbourKey) -> bool {
        let Some((entry, order)) = self.entries.remove(&key) else { return false };
        self.deadlines.remove(&(entry.deadline, key));
        self.leave(key, entry.rank(), order);
        true
    }

    fn port(&mut self, port: PortId) -> &mut PortPlaces {
        let (requests, seed) = (self.requests, self.seed);
        self.ports.entry(port).or_insert_with(|| PortPlaces {
            order: BTreeSet::new(),
            counts: [0; Rank::LEARNED],
            requests: Requests::new(requests, seed),
        })
    }

    fn enter(&mut self, key: NeighbourKey, rank: Rank, order: u64) {
        if rank != Rank::Configured {
            let places = self.port(key.port);
            places.order.insert((rank, order, key));
            places.counts.get_mut(rank as usize).into_iter().for_each(|count| *count += 1);
            self.unresolved += usize::from(rank == Rank::Unresolved);
        }
    }

    fn leave(&mut self, key: NeighbourKey, rank: Rank, order: u64) {
        if rank != Rank::Configured {
            let places = self.port(key.port);
            places.order.remove(&(rank, order, key));
            places.counts.get_mut(rank as usize).into_iter().for_each(|count| *count -= 1);
            self.unresolved -= usize::from(rank == Rank::Unresolved);
        }
    }

    /// Returns the neighbour to remove in favour of a new neighbour at `port` that a packet waits for; `None`
    /// if none may be removed.
    pub fn yields_to(&self, port: PortId) -> Option<NeighbourKey> {
        let held = |places: &PortPlaces| places.order.len();
        let (largest, places) = self.ports.iter().max_by_key(|(id, places)| (held(places), **id == port))?;
        let own = self.ports.get(&port).map_or(0, held);
        let fewer = *largest != port && own < held(places);
        let ranks = [Rank::Unconfirmed, Rank::Stale, Rank::Unresolved, Rank::InUse];
        let usable = if fewer { &ranks[..] } else { &ranks[..3] };
        usable.iter().find_map(|rank| places.oldest(*rank))
    }

    /// Returns the unresolved neighbour to remove in favour of a new unresolved neighbour at `port`: the
    /// oldest of the port with the most unresolved neighbours. `None` if all neighbours are resolved.
    pub fn unresolved_yields_to(&self, port: PortId) -> Option<NeighbourKey> {
        let most = |(id, places): &(&PortId, &PortPlaces)| (places.count(Rank::Unresolved), **id == port);
        self.ports.iter().max_by_key(most)?.1.oldest(Rank::Unresolved)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::state::State;
    use super::*;
    use millrace_wire::MacAddr;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn entry(kind: u8, deadline: u64) -> Entry {
        let (state, wanted) = match kind % 7 {
            0 => (State::Stale(MAC), false),
            1 => (State::Stale(MAC), true),
            2 => (State::Incomplete { tries: 1 }, true),
            3 => (State::Failed, true),
            4 => (State::Reachable(MAC), true),
            5 => (State::Reachable(MAC), false),
            _ => (State::Static(MAC), true),
        };
        Entry { state, deadline: Instant::from_millis(deadline), wanted }
    }

    fn key(port: u16, number: u8) -> NeighbourKey {
        NeighbourKey { port: PortId(port), address: [10, 0, 0, number].into() }
    }

    /// Reference model of the set: one list in the order in which neighbours got their ranks.
    #[derive(Default)]
    struct Oracle(Vec<(NeighbourKey, Entry)>);

    impl Oracle {
        fn put(&mut self, key: NeighbourKey, entry: Entry) {
            match self.0.iter().position(|(k, _)| *k == key) {
                Some(at) if self.0[at].1.rank() == entry.rank() => self.0[at].1 = entry,
                at => {
                    at.map(|at| self.0.remove(at));
                    self.0.push((key, entry));
                }
            }
        }

        fn of(&self, port: PortId, rank: Option<Rank>) -> Vec<NeighbourKey> {
            let fits = |entry: &Entry| match rank {
                Some(rank) => entry.rank() == rank,
                None => entry.rank() != Rank::Configured,
            };
            self.0.iter().filter(|(k, e)| k.port == port && fits(e)).map(|(k, _)| *k).collect()
        }

        fn yields_to(&self, port: PortId) -> Option<NeighbourKey> {
            let count = |port: u16| self.of(PortId(port), None).len();
            let most = (0..4).map(count).max()?;
            let largest = match self.of(port, None).len() == most {
                true => port,
                false => PortId((0..4).rev().find(|port| count(*port) == most)?),
            };
            let mut ranks = vec![Rank::Unconfirmed, Rank::Stale, Rank::Unresolved];
            if largest != port {
                ranks.push(Rank::InUse);
            }
            ranks.into_iter().find_map(|rank| self.of(largest, Some(rank)).first().copied())
        }
    }

    proptest! {
        #[test]
        fn largest_port_yields_its_oldest_unconfirmed_neighbour(
            steps in proptest::collection::vec((0u16..4, 0u8..8, any::<u8>(), any::<u16>(), prop::bool::weighted(0.8)), 0..120),
        ) {
            let (mut places, mut oracle) = (Places::new(RateLimit::default(), 1), Oracle::default());
            for (port, number, kind, deadline, put) in steps {
                let key = key(port, number);
                if put {
                    places.put(key, entry(kind, deadline.into()));
                    oracle.put(key, entry(kind, deadline.into()));
                } else {
                    let there = oracle.0.iter().any(|(k, _)| *k == key);
                    prop_assert_eq!(places.remove(key), there);
                    oracle.0.retain(|(k, _)| *k != key);
                }
                prop_assert_eq!(places.len(), oracle.0.len());
                let first = oracle.0.iter().map(|(key, entry)| (entry.deadline, *key)).min();
                prop_assert_eq!(places.first_deadline(), first);
                for port in (0..4).map(PortId) {
                    prop_assert_eq!(places.yields_to(port), oracle.yields_to(port));
                    prop_assert_eq!(places.unconfirmed(port), oracle.of(port, Some(Rank::Unconfirmed)).len());
                }
                let unresolved = (0..4).map(|port| oracle.of(PortId(port), Some(Rank::Unresolved)));
                prop_assert_eq!(places.unresolved(), unresolved.clone().map(|keys| keys.len()).sum::<usize>());
                let oldest = places.unresolved_yields_to(PortId(0));
                let most = unresolved.max_by_key(Vec::len).filter(|keys| !keys.is_empty());
                prop_assert_eq!(oldest.is_some(), most.is_some());
            }
        }
    }
}
