//! Address resolution for ports without a kernel stack. ARP (RFC 826, RFC 1122, 2.3.2) and neighbour
//! discovery (RFC 4861, 7) have the same states, so one state machine serves both.
//!
//! The state machine is pure: it takes events and the time, and returns [`Action`]s. Its caller sends the
//! requests, and updates a [`NeighbourTable`](crate::NeighbourTable) by the actions. A new neighbour causes
//! up to three requests, at most one a second (RFC 4861, 7.3). An answer is valid for 30 seconds. After that,
//! packets still go to the neighbour, but its next use also starts a probe.

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

/// Maximum number of due neighbours handled by a call of [`Resolver::poll`].
const AT_ONCE: usize = 64;

/// Times and limits of a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolverSettings {
    /// Time between two requests for the same neighbour, default 1 second, the minimum of RFC 1122, 2.3.2.1.
    pub retry: Duration,
    /// Number of requests before giving up, default 3.
    pub tries: u8,
    /// Time that an answer is valid, default 30 seconds.
    pub reachable: Duration,
    /// Time that an unused neighbour is remembered, default 10 minutes.
    pub stale: Duration,
    /// Time for which packets to a neighbour are refused after it has not answered, default 1 second.
    pub failed: Duration,
    /// Rate limit of requests for new neighbours, for each egress port; default 200 a second in bursts of 50.
    /// Each ingress port and each source address has a share that others can't take.
    pub requests: RateLimit,
    /// Maximum number of neighbours of all ports, default 8,192. A quarter may be unresolved. Per port, an
    /// eighth may be neighbours that only sent requests to the router.
    pub capacity: usize,
    /// Minimum time between two defences of one of the router's addresses, default 10 seconds (RFC 5227,
    /// 2.4).
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

/// Action that the resolver wants its caller to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send an ARP request or neighbour solicitation for `key.address` out of port `key.port`: unicast to
    /// `to`, or broadcast (ARP) or multicast (neighbour discovery) if `to` is `None`.
    SendRequest {
        /// Neighbour to resolve or confirm.
        key: NeighbourKey,
        /// MAC address of a known neighbour that is to be confirmed; `None` for a broadcast or multicast
        /// request.
        to: Option<MacAddr>,
    },
    /// Send packets for this neighbour to `mac` from now on, and release its held packets.
    Resolved {
        /// Resolved neighbour.
        key: NeighbourKey,
        /// MAC address of the neighbour.
        mac: MacAddr,
    },
    /// The neighbour did not answer. Send "host unreachable" about its held packets.
    Failed {
        /// Failed neighbour.
        key: NeighbourKey,
    },
    /// The resolver has removed the neighbour, so no answer will release its held packets.
    Forgotten {
        /// Removed neighbour.
        key: NeighbourKey,
    },
    /// Another station uses one of the router's own addresses.
    Conflict {
        /// The router's address.
        key: NeighbourKey,
        /// MAC address of the other station.
        mac: MacAddr,
        /// Whether to send an announcement of the address now; announcements are rate-limited.
        defend: bool,
    },
}

/// Result of [`Resolver::solicit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solicited {
    /// Hold the packet: an answer is expected.
    Pending,
    /// The neighbour is known already.
    Known(MacAddr),
    /// The neighbour has failed to answer a moment ago.
    Failed,
    /// Drop the packet: too many neighbours are unresolved, or the request rate is exceeded.
    Limited,
}

/// Kind of ARP or neighbour discovery message that carries its sender's MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Request for an address of the router: an ARP request, or a neighbour solicitation with a source
    /// address.
    Solicitation,
    /// Answer or announcement.
    Advertisement {
        /// Whether the message answers the router: an ARP reply to its address, or the solicited flag of a
        /// neighbour advertisement.
        solicited: bool,
        /// Whether the message may replace a known MAC address: always in ARP; the override flag in neighbour
        /// discovery.
        overrides: bool,
    },
}

/// State machine of address resolution for the neighbours at ports without a kernel stack.
#[derive(Debug)]
pub struct Resolver {
    settings: ResolverSettings,
    places: Places,
    /// Neighbours at ports whose link went down; they are to be removed.
    gone: Vec<NeighbourKey>,
    /// The router's own addresses, with the time of the last defence of each.
    own: HashMap<NeighbourKey, Option<Instant>, FixedState>,
}

impl Resolver {
    /// Creates a resolver without neighbours. `seed` should be random.
    pub fn new(settings: ResolverSettings, seed: u64) -> Self {
        Self {
            settings,
            places: Places::new(settings.requests, seed),
            gone: Vec::new(),
            own: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    /// Adds one of the router's own addresses.
    pub fn add_own(&mut self, key: NeighbourKey) {
        self.own.insert(key, None);
    }

    /// Removes one of the router's own addresses.
    pub fn remove_own(&mut self, key: NeighbourKey) {
        self.own.remove(&key);
    }

    /// Returns whether an address is the router's own at that port.
    pub fn is_own(&self, key: NeighbourKey) -> bool {
        self.own.contains_key(&key)
    }

    /// Sets a static neighbour.
    pub fn set_static(&mut self, key: NeighbourKey, mac: MacAddr, actions: &mut Vec<Action>) {
        self.places.put(key, Entry { state: State::Static(mac), deadline: Instant::FOREVER, wanted: true });
        actions.push(Action::Resolved { key, mac });
    }

    /// Returns the result that [`solicit`](Self::solicit) would have for a neighbour, but changes nothing;
    /// `None` for a neighbour that the resolver doesn't know.
    pub fn expected(&self, key: NeighbourKey) -> Option<Solicited> {
        Some(match self.places.get(key)?.state {
            State::Incomplete { .. } => Solicited::Pending,
            State::Failed => Solicited::Failed,
            State::Static(mac) | State::Reachable(mac) | State::Stale(mac) | State::Probe { mac, .. } => {
                Solicited::Known(mac)
            }
        })
    }

    /// Starts the resolution of a neighbour that a packet needs and that the neighbour table lacks.
    pub fn solicit(
        &mut self,
        key: NeighbourKey,
        origin: Origin,
        now: Instant,
        actions: &mut Vec<Action>,
    ) -> Solicited {
        if let Some(solicited) = self.expected(key) {
            return solicited;
        }
        if !self.places.take_request(key.port, origin, now) || !self.make_room(key.port, actions) {
            return Solicited::Limited;
        }
        let state = State::Incomplete { tries: 1 };
        self.places.put(key, Entry { state, deadline: now + self.settings.retry, wanted: true });
        actions.push(Action::SendRequest { key, to: None });
        Solicited::Pending
    }

    /// Handles the report that a neighbour was used since the last report. Starts a probe if the neighbour is
    /// stale.
    pub fn used(&mut self, key: NeighbourKey, now: Instant, actions: &mut Vec<Action>) {
        if let Some(Entry { state: State::Stale(mac), wanted, .. }) = self.places.get(key) {
            let state = State::Probe { mac, tries: 1 };
            self.places.put(key, Entry { state, deadline: now + self.settings.retry, wanted });
            actions.push(Action::SendRequest { key, to: Some(mac) });
        }
    }

    /// Handles a message that claims `mac` for `key.address`. Returns whether the resolver accepts the claim.
    /// It refuses a multicast, broadcast or zero `mac` (AR-02), a claim to the router's own address (AR-03),
    /// and an advertisement of an unknown neighbour (AR-04, ND-04).
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

    /// Handles neighbours whose deadline has passed: repeats requests, marks neighbours as failed, or removes
    /// them.
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

    /// Returns the time at which [`poll`](Self::poll) next has work; `None` if it has none.
    pub fn next_event(&self) -> Option<Instant> {
        if !self.gone.is_empty() {
            return Some(Instant::ZERO);
        }
        let first = self.places.first_deadline().map(|(deadline, _)| deadline);
        first.filter(|deadline| *deadline != Instant::FOREVER)
    }

    /// Removes a neighbour, static or not.
    pub fn forget(&mut self, key: NeighbourKey, actions: &mut Vec<Action>) {
        if self.places.remove(key) {
            actions.push(Action::Forgotten { key });
        }
    }

    /// Handles a link that went down: removes the own addresses of the port now, and its learned neighbours
    /// with the next [polls](Self::poll).
    pub fn link_down(&mut self, port: PortId) {
        let learned = |(key, entry): (NeighbourKey, Entry)| {
            (key.port == port && !matches!(entry.state, State::Static(_))).then_some(key)
        };
        self.gone.extend(self.places.iter().filter_map(learned));
        self.own.retain(|key, _| key.port != port);
    }

    /// Returns the number of neighbours in the resolver.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether the resolver has no neighbour.
    pub fn is_empty(&self) -> bool {
        self.places.len() == 0
    }

    /// Returns whether there is room for a neighbour that sent a request to the router and that no packet
    /// waits for. Such a neighbour displaces no other.
    fn has_room_for_stranger(&self, port: PortId) -> bool {
        let share = (self.settings.capacity / 8).max(1);
        self.places.len() < self.settings.capacity && self.places.unconfirmed(port) < share
    }

    /// Makes room for a neighbour that a packet waits for, by removing others. Returns whether there is room.
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
