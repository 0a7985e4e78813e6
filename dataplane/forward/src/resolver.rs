//! Address resolution for ports that have no kernel below: ARP (RFC 826, RFC 1122, 2.3.2) and neighbour discovery
//! (RFC 4861, 7) have the same states, so one machine serves both.
//!
//! The machine is pure: events and the moment in, [`Action`]s out. Whoever runs it sends the requests and keeps a
//! [`NeighbourTable`](crate::NeighbourTable) by the actions. After RFC 4861, 7.3: a neighbour is asked for at most
//! once a second, three times; an answer holds for 30 seconds, then it is used on but probed at its next use.

mod places;
mod requests;
mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;
use millrace_units::{Instant, PortId};
use millrace_wire::MacAddr;

use crate::{NeighbourKey, RateLimit};
use places::Places;
pub use requests::Origin;
use state::{Entry, State};

/// Neighbours for which time has passed that are looked after at once.
const AT_ONCE: usize = 64;

/// Times and bounds of a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolverSettings {
    /// Time between two requests for the same neighbour, default 1 second; not less by RFC 1122, 2.3.2.1.
    pub retry: Duration,
    /// Requests before giving up, default 3.
    pub tries: u8,
    /// How long an answer holds, default 30 seconds.
    pub reachable: Duration,
    /// How long a neighbour that is not used is remembered, default 10 minutes.
    pub stale: Duration,
    /// How long a neighbour that did not answer is taken to be unreachable, default 1 second.
    pub failed: Duration,
    /// Requests for new neighbours of each port; default 200 a second in bursts of 50. Each port of arrival and each source has a share
    /// that others can't take.
    pub requests: RateLimit,
    /// Places for neighbours of all ports, default 8,192; a quarter may be unresolved, and an eighth may hold neighbours of one
    /// port that only spoke to the router.
    pub capacity: usize,
    /// Least time between two defences of an own address, default 10 seconds (RFC 5227, 2.4).
    pub defend: Duration,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self {
            retry: Duration::from_secs(1),
            tries: 3,
            reachable: Duration::from_secs(30),
            stale: Duration::from_secs(600),
            failed: Duration::from_secs(1),
            requests: RateLimit { per_second: 200, burst: 50 },
            capacity: 8192,
            defend: Duration::from_secs(10),
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send an ARP request or neighbour solicitation for `key.address` by `key.port`: to all, or to one station.
    SendRequest {
        /// Whom to ask for.
        key: NeighbourKey,
        /// The station to ask, when it is known and only to be confirmed.
        to: Option<MacAddr>,
    },
    /// Packets to the neighbour go to this station from now on; send those that wait.
    Resolved {
        /// The neighbour.
        key: NeighbourKey,
        /// Its station.
        mac: MacAddr,
    },
    /// The neighbour did not answer; report those that wait as unreachable.
    Failed {
        /// The neighbour.
        key: NeighbourKey,
    },
    /// Nothing is known about the neighbour any more; those that wait for it wait in vain.
    Forgotten {
        /// The neighbour.
        key: NeighbourKey,
    },
    /// A station uses one of the router's own addresses.
    Conflict {
        /// The own address.
        key: NeighbourKey,
        /// The station.
        mac: MacAddr,
        /// Whether to send an announcement now, which is not to happen too often.
        defend: bool,
    },
}

/// What came of asking for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solicited {
    /// An answer is awaited: hold the packet.
    Pending,
    /// It is known already.
    Known(MacAddr),
    /// It did not answer a moment ago.
    Failed,
    /// Too many neighbours are asked for: drop the packet.
    Limited,
}

/// How a station named its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// By asking for an address of ours: an ARP request to us, or a neighbour solicitation with a source address.
    Solicitation,
    /// By an answer or an announcement.
    Advertisement {
        /// It answered us: an ARP reply to our address, or the solicited flag of a neighbour advertisement.
        solicited: bool,
        /// It replaces what is known: true in ARP, the override flag in neighbour discovery.
        overrides: bool,
    },
}

/// The neighbours of ports without a kernel below.
#[derive(Debug)]
pub struct Resolver {
    settings: ResolverSettings,
    places: Places,
    /// Neighbours behind links that went down, to be forgotten.
    gone: Vec<NeighbourKey>,
    /// The router's own addresses, with the last defence of each.
    own: HashMap<NeighbourKey, Option<Instant>, FixedState>,
}

impl Resolver {
    /// Without neighbours. `seed` should be random.
    pub fn new(settings: ResolverSettings, seed: u64) -> Self {
        Self {
            settings,
            places: Places::new(settings.requests, seed),
            gone: Vec::new(),
            own: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    /// Says that an address is the router's own.
    pub fn add_own(&mut self, key: NeighbourKey) {
        self.own.insert(key, None);
    }

    /// Says that an address is not the router's any more.
    pub fn remove_own(&mut self, key: NeighbourKey) {
        self.own.remove(&key);
    }

    /// Whether an address is one that the router has on that port.
    pub fn is_own(&self, key: NeighbourKey) -> bool {
        self.own.contains_key(&key)
    }

    /// Sets a neighbour's station for good.
    pub fn set_static(&mut self, key: NeighbourKey, mac: MacAddr, actions: &mut Vec<Action>) {
        self.places.put(key, Entry { state: State::Static(mac), deadline: Instant::FOREVER, wanted: true });
        actions.push(Action::Resolved { key, mac });
    }

    /// A packet of an origin wants to go to this neighbour, and the table did not know it.
    pub fn solicit(
        &mut self,
        key: NeighbourKey,
        origin: Origin,
        now: Instant,
        actions: &mut Vec<Action>,
    ) -> Solicited {
        if let Some(entry) = self.places.get(key) {
            return match entry.state {
                State::Incomplete { .. } => Solicited::Pending,
                State::Failed => Solicited::Failed,
                State::Static(mac) | State::Reachable(mac) | State::Stale(mac) | State::Probe { mac, .. } => {
                    Solicited::Known(mac)
                }
            };
        }
        if !self.places.take_request(key.port, origin, now) || !self.make_room(key.port, actions) {
            return Solicited::Limited;
        }
        let state = State::Incomplete { tries: 1 };
        self.places.put(key, Entry { state, deadline: now + self.settings.retry, wanted: true });
        actions.push(Action::SendRequest { key, to: None });
        Solicited::Pending
    }

    /// The neighbour was used since the last scan of the table.
    pub fn used(&mut self, key: NeighbourKey, now: Instant, actions: &mut Vec<Action>) {
        if let Some(Entry { state: State::Stale(mac), wanted, .. }) = self.places.get(key) {
            let state = State::Probe { mac, tries: 1 };
            self.places.put(key, Entry { state, deadline: now + self.settings.retry, wanted });
            actions.push(Action::SendRequest { key, to: Some(mac) });
        }
    }

    /// A station said that `key.address` is at `mac`. Returns whether it was believed: group addresses and zeros are
    /// not stations (AR-02), an own address is not a neighbour's (AR-03), and an advertisement speaks of known
    /// neighbours only (AR-04, ND-04).
    pub fn heard(
        &mut self,
        key: NeighbourKey,
        mac: MacAddr,
        how: Heard,
        now: Instant,
        actions: &mut Vec<Action>,
    ) -> bool {
        if !mac.is_unicast() {
            return false;
        }
        if self.is_own(key) {
            self.conflict(key, mac, now, actions);
            return false;
        }
        let entry = self.places.get(key);
        let known = entry.map(|entry| entry.state);
        let Some(next) = state::after_heard(known, mac, how) else { return false };
        if known.is_none() && !self.has_room_for_stranger(key.port) {
            return false;
        }
        let confirmed = matches!((known, next), (Some(State::Probe { .. }), State::Reachable(_)));
        let wanted = confirmed || entry.is_some_and(|entry| entry.wanted);
        let deadline = now + self.lifetime(next);
        self.places.put(key, Entry { state: next, deadline, wanted });
        let believed = next.mac() == Some(mac);
        if believed && known.and_then(State::mac) != Some(mac) {
            actions.push(Action::Resolved { key, mac });
        }
        believed
    }

    fn lifetime(&self, state: State) -> Duration {
        match state {
            State::Reachable(_) => self.settings.reachable,
            State::Stale(_) => self.settings.stale,
            State::Failed => self.settings.failed,
            State::Incomplete { .. } | State::Probe { .. } => self.settings.retry,
            State::Static(_) => Duration::MAX,
        }
    }

    fn conflict(&mut self, key: NeighbourKey, mac: MacAddr, now: Instant, actions: &mut Vec<Action>) {
        let Some(last) = self.own.get_mut(&key) else { return };
        let defend = last.is_none_or(|last| now >= last + self.settings.defend);
        if defend {
            *last = Some(now);
        }
        actions.push(Action::Conflict { key, mac, defend });
    }

    /// Does what has fallen due: asks again, gives up, forgets.
    pub fn poll(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut left = AT_ONCE;
        while left > 0
            && let Some(key) = self.gone.pop()
        {
            left -= 1;
            self.forget(key, actions);
        }
        while left > 0
            && let Some((deadline, key)) = self.places.first_deadline()
            && deadline <= now
            && let Some(entry) = self.places.get(key)
        {
            left -= 1;
            self.fall_due(key, entry, now, actions);
        }
    }

    fn fall_due(&mut self, key: NeighbourKey, entry: Entry, now: Instant, actions: &mut Vec<Action>) {
        let next = match state::after_deadline(entry.state, self.settings.tries) {
            Some(next) => next,
            None => return self.forget(key, actions),
        };
        self.places.put(key, Entry { state: next, deadline: now + self.lifetime(next), ..entry });
        match next {
            State::Incomplete { .. } => actions.push(Action::SendRequest { key, to: None }),
            State::Probe { mac, .. } => actions.push(Action::SendRequest { key, to: Some(mac) }),
            State::Failed => actions.push(Action::Failed { key }),
            State::Reachable(_) | State::Stale(_) | State::Static(_) => {}
        }
    }

    /// When [`poll`](Self::poll) next has something to do.
    pub fn next_event(&self) -> Option<Instant> {
        if !self.gone.is_empty() {
            return Some(Instant::ZERO);
        }
        let first = self.places.first_deadline().map(|(deadline, _)| deadline);
        first.filter(|deadline| *deadline != Instant::FOREVER)
    }

    /// Forgets a neighbour, static or not.
    pub fn forget(&mut self, key: NeighbourKey, actions: &mut Vec<Action>) {
        if self.places.remove(key) {
            actions.push(Action::Forgotten { key });
        }
    }

    /// Forgets the own addresses of a port, and with the next [polls](Self::poll) the neighbours that it learned there: the link went
    /// down.
    pub fn link_down(&mut self, port: PortId) {
        let learned = |(key, entry): (NeighbourKey, Entry)| {
            (key.port == port && !matches!(entry.state, State::Static(_))).then_some(key)
        };
        self.gone.extend(self.places.iter().filter_map(learned));
        self.own.retain(|key, _| key.port != port);
    }

    /// How many neighbours are remembered.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.places.len() == 0
    }

    /// Whether a neighbour that nobody asked for may have a place: of those there are, none yields to it.
    fn has_room_for_stranger(&self, port: PortId) -> bool {
        let share = (self.settings.capacity / 8).max(1);
        self.places.len() < self.settings.capacity && self.places.unconfirmed(port) < share
    }

    /// Makes room for a neighbour that a packet waits for; whether there is any.
    fn make_room(&mut self, port: PortId, actions: &mut Vec<Action>) -> bool {
        let max_unresolved = (self.settings.capacity / 4).max(1);
        if self.places.unresolved() >= max_unresolved
            && let Some(key) = self.places.unresolved_yields_to(port)
        {
            self.forget(key, actions);
        }
        if self.places.len() >= self.settings.capacity
            && let Some(key) = self.places.yields_to(port)
        {
            self.forget(key, actions);
        }
        self.places.len() < self.settings.capacity
    }
}
