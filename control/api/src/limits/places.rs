//! Slots for connections, so that unauthenticated callers can't keep authenticated callers out.
//!
//! A connection begins as a *stranger*. It has a stranger's slot for a few seconds, and its caller must
//! authenticate in this time. When a caller has authenticated, its connection exchanges the stranger's slot
//! for a slot of a *known* caller.
//!
//! Strangers never wait: if all strangers' slots are taken, a new connection displaces an old one. The old
//! one is found in three steps: the site (network) with the most strangers; within it, the source (address or
//! user) with the most strangers; the oldest stranger of this source. So a caller that opens many connections
//! displaces its own.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_controller::Role;
use tokio::sync::{Notify, Semaphore};

use crate::limits::shares::{Shares, Slot};

/// Limits on the numbers of connection slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Maximum number of strangers.
    pub strangers: usize,
    /// Maximum number of strangers from one source.
    pub each_source: usize,
    /// Maximum number of known callers, not counting the further slots of administrators.
    pub known: usize,
    /// Number of further slots for administrators, used when all others are taken.
    pub administrators: usize,
    /// Maximum number of connections of one known caller.
    pub each_caller: usize,
}

/// Source of a connection: a local user, or a remote address.
pub(crate) trait Source: Clone + Eq + Hash {
    /// Returns the site of the source: the larger network around it, whose owner may have many sources.
    fn site(&self) -> Self;
}

/// User of this machine, by uid. Each user is a site of its own.
impl Source for Option<u32> {
    fn site(&self) -> Self {
        *self
    }
}

/// Remote address. Its site is the /24 network, or the /48 network for IPv6.
impl Source for IpAddr {
    fn site(&self) -> Self {
        match self {
            Self::V4(address) => Ipv4Addr::from_bits(address.to_bits() >> 8 << 8).into(),
            Self::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 80 << 80).into(),
        }
    }
}

/// Slots for connections from sources `S`. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Places<S> {
    strangers: Arc<Mutex<Strangers<S>>>,
    known: Arc<Semaphore>,
    administrators: Arc<Semaphore>,
    callers: Shares<String>,
}

#[derive(Debug)]
struct Strangers<S> {
    sizes: Sizes,
    /// Number of the next stranger. Older strangers have lower numbers.
    next: u64,
    /// Strangers by number, each with its source, and the notification at which its connection must end.
    all: HashMap<u64, (S, Arc<Notify>)>,
    /// Number of strangers of each source.
    of: HashMap<S, usize>,
}

/// Slot of a stranger, held until dropped.
#[derive(Debug)]
pub(crate) struct StrangersPlace<S: Source> {
    places: Places<S>,
    number: u64,
    displaced: Arc<Notify>,
}

impl<S: Source> Places<S> {
    /// Returns connection slots with these limits, all of them free.
    pub fn new(sizes: Sizes) -> Self {
        let strangers = Strangers { sizes, next: 0, all: HashMap::new(), of: HashMap::new() };
        Self {
            strangers: Arc::new(Mutex::new(strangers)),
            known: Arc::new(Semaphore::new(sizes.known)),
            administrators: Arc::new(Semaphore::new(sizes.administrators)),
            callers: Shares::new(sizes.each_caller, sizes.known + sizes.administrators),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Strangers<S>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot for a stranger at once, and displaces another stranger if necessary.
    pub fn enter(&self, source: S) -> StrangersPlace<S> {
        let displaced = Arc::new(Notify::new());
        let number = self.lock().add(source, displaced.clone());
        StrangersPlace { places: self.clone(), number, displaced }
    }

    /// Returns a slot for a known caller. `None` if all slots for the caller's role are taken, or if the
    /// caller already has its maximum.
    pub fn know(&self, caller: &str, role: Role) -> Option<Slot> {
        let own = self.callers.of(caller.to_owned()).try_acquire_owned().ok()?;
        let reserved =
            || self.administrators.clone().try_acquire_owned().ok().filter(|_| role == Role::Admin);
        let one = self.known.clone().try_acquire_owned().ok().or_else(reserved)?;
        Some(Slot { _own: own, _one: one })
    }
}

impl<S: Source> StrangersPlace<S> {
    /// Returns the notification at which this stranger's connection must end, because another one displaces
    /// it.
    pub fn displaced(&self) -> Arc<Notify> {
        self.displaced.clone()
    }

    /// Returns a slot for the authenticated caller of this connection; `None` if no slot for known callers is
    /// free.
    pub fn know(&self, caller: &str, role: Role) -> Option<Slot> {
        self.places.know(caller, role)
    }
}

impl<S: Source> Drop for StrangersPlace<S> {
    fn drop(&mut self) {
        self.places.lock().remove(self.number);
    }
}

impl<S: Source> Strangers<S> {
    fn add(&mut self, source: S, displaced: Arc<Notify>) -> u64 {
        if self.of.get(&source).is_some_and(|own| *own >= self.sizes.each_source) {
            self.displace(&source);
        } else if self.all.len() >= self.sizes.strangers
            && let Some(most) = self.source_with_most()
        {
            self.displace(&most);
        }
        let number = self.next;
        self.next += 1;
        *self.of.entry(source.clone()).or_default() += 1;
        self.all.insert(number, (source, displaced));
        number
    }

    /// Returns the source with the most strangers, within the site with the most strangers.
    fn source_with_most(&self) -> Option<S> {
        let mut sites: HashMap<S, usize> = HashMap::new();
        for (source, count) in &self.of {
            *sites.entry(source.site()).or_default() += count;
        }
        let rank = |(source, count): &(&S, &usize)| (sites.get(&source.site()).copied(), **count);
        self.of.iter().max_by_key(rank).map(|(most, _)| most.clone())
    }

    /// Displaces the oldest stranger of a source.
    fn displace(&mut self, source: &S) {
        let own = self.all.iter().filter(|(_, (other, _))| other == source);
        let Some(oldest) = own.map(|(number, _)| *number).min() else { return };
        if let Some(displaced) = self.remove(oldest) {
            displaced.notify_one();
        }
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Notify>> {
        let (source, displaced) = self.all.remove(&number)?;
        if let Some(count) = self.of.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&source);
            }
        }
        Some(displaced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { strangers: 8, each_source: 4, known: 6, administrators: 2, each_caller: 2 };

    fn is_displaced<S: Source>(place: &StrangersPlace<S>) -> bool {
        !place.places.lock().all.contains_key(&place.number)
    }

    #[test]
    fn source_with_many_unauthenticated_clients_displaces_its_oldest() {
        let places = Places::new(SIZES);
        let held: Vec<_> = (0..10).map(|_| places.enter(Some(1))).collect();
        let displaced: Vec<bool> = held.iter().map(is_displaced).collect();
        assert_eq!(displaced, [[true; 6].as_slice(), &[false; 4]].concat());
        assert!(!is_displaced(&places.enter(Some(2))), "another source has a place");
    }

    #[test]
    fn a_newcomer_displaces_a_stranger_of_the_source_with_most() {
        let places = Places::new(SIZES);
        let mut held: Vec<_> =
            [1, 1, 1, 2, 2, 3, 4, 5].into_iter().map(|source| places.enter(Some(source))).collect();
        held.push(places.enter(Some(6)));
        let displaced: Vec<bool> = held.iter().map(is_displaced).collect();
        assert_eq!(displaced, [true, false, false, false, false, false, false, false, false]);
        assert_eq!(places.lock().all.len(), SIZES.strangers);
    }

    #[test]
    fn site_with_many_networks_displaces_its_own_clients() {
        let places = Places::new(SIZES);
        let network = |site: u16, network: u16| IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 0]);
        let other = [places.enter(network(1, 0)), places.enter(IpAddr::from([192, 0, 2, 1]))];
        let held: Vec<_> = (0..100).map(|number| places.enter(network(2, number))).collect();
        assert!(!other.iter().any(is_displaced), "others keep their places");
        assert_eq!(held.iter().filter(|place| !is_displaced(place)).count(), SIZES.strangers - other.len());
    }

    #[tokio::test]
    async fn displaced_client_is_notified() {
        let places = Places::new(SIZES);
        let first = places.enter(Some(1));
        let _others: Vec<_> = (0..4).map(|_| places.enter(Some(1))).collect();
        first.displaced().notified().await;
    }

    #[test]
    fn strangers_leave_the_places_of_known_callers_alone() {
        let places = Places::new(SIZES);
        let _held: Vec<_> = (0..100).map(|source| places.enter(Some(source))).collect();
        let known: Vec<_> =
            ["a", "a", "b", "b", "c", "c"].map(|name| places.know(name, Role::Viewer)).into_iter().collect();
        assert!(known.iter().all(Option::is_some));
        assert!(places.know("d", Role::Operator).is_none(), "all places are taken");
        drop(known);
        let own: Vec<_> = (0..3).map(|_| places.know("a", Role::Admin)).collect();
        assert_eq!(own.iter().flatten().count(), SIZES.each_caller, "one caller has no more");
    }

    #[test]
    fn administrators_find_a_place_when_others_hold_all() {
        let places: Places<Option<u32>> = Places::new(SIZES);
        let _held: Vec<_> = ["a", "a", "b", "b", "c", "c"]
            .map(|name| places.know(name, Role::Operator))
            .into_iter()
            .collect();
        assert!(places.know("d", Role::Operator).is_none());
        let own: Vec<_> = (0..3).map(|_| places.know("root", Role::Admin)).collect();
        assert_eq!(own.iter().flatten().count(), 2);
        assert!(places.know("another", Role::Admin).is_none(), "their places are taken too");
        drop(own);
        assert!(places.know("another", Role::Admin).is_some());
    }

    #[test]
    fn places_that_are_given_back_are_forgotten() {
        let places = Places::new(SIZES);
        (0..10_000).for_each(|source| drop(places.enter(Some(source))));
        let strangers = places.lock();
        assert!(strangers.all.is_empty() && strangers.of.is_empty());
    }
}
