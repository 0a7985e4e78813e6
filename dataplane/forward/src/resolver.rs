//! Address resolution for ports that have no kernel below: ARP (RFC 826, RFC 1122, 2.3.2) and neighbour discovery
//! (RFC 4861, 7) have the same states, so one machine serves both.
//!
//! The machine is pure: events and the moment in, [`Action`]s out. Whoever runs it sends the requests and keeps a
//! [`NeighbourTable`](crate::NeighbourTable) by the actions. After RFC 4861, 7.3: a neighbour is asked for at most
//! once a second, three times; an answer holds for 30 seconds, then it is used on but probed at its next use.

mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::FixedState;
use millrace_units::{Instant, PortId};
use millrace_wire::MacAddr;

use crate::{NeighbourKey, RateLimit, TokenBucket};
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
    /// Requests for new neighbours, over all ports; default 200 a second in bursts of 50.
    pub requests: RateLimit,
    /// Neighbours that are remembered, default 8,192; a quarter may be unresolved.
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
    entries: HashMap<NeighbourKey, Entry, FixedState>,
    deadlines: BTreeSet<(Instant, NeighbourKey)>,
    /// Neighbours in the order in which they were asked for; some may be resolved by now, or gone.
    asked: VecDeque<NeighbourKey>,
    unresolved: usize,
    /// Neighbours behind links that went down, to be forgotten.
    gone: Vec<NeighbourKey>,
    requests: TokenBucket,
    /// The router's own addresses, with the last defence of each.
    own: HashMap<NeighbourKey, Option<Instant>, FixedState>,
}

impl Resolver {
    /// Without neighbours. `seed` should be random.
    pub fn new(settings: ResolverSettings, seed: u64) -> Self {
        Self {
            settings,
            entries: HashMap::with_hasher(FixedState::with_seed(seed)),
            deadlines: BTreeSet::new(),
            asked: VecDeque::new(),
            unresolved: 0,
            gone: Vec::new(),
            requests: TokenBucket::new(settings.requests),
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
        self.put(key, Entry { state: State::Static(mac), deadline: Instant::FOREVER });
        actions.push(Action::Resolved { key, mac });
    }

    /// A packet wants to go to this neighbour, and the table did not know it.
    pub fn solicit(&mut self, key: NeighbourKey, now: Instant, actions: &mut Vec<Action>) -> Solicited {
        if let Some(entry) = self.entries.get(&key) {
            return match entry.state {
                State::Incomplete { .. } => Solicited::Pending,
                State::Failed => Solicited::Failed,
                State::Static(mac) | State::Reachable(mac) | State::Stale(mac) | State::Probe { mac, .. } => {
                    Solicited::Known(mac)
                }
            };
        }
        if !self.make_room(false, actions) || !self.requests.take(now) {
            return Solicited::Limited;
        }
        self.put(key, Entry { state: State::Incomplete { tries: 1 }, deadline: now + self.settings.retry });
        actions.push(Action::SendRequest { key, to: None });
        Solicited::Pending
    }

    /// The neighbour was used since the last scan of the table.
    pub fn used(&mut self, key: NeighbourKey, now: Instant, actions: &mut Vec<Action>) {
        if let Some(Entry { state: State::Stale(mac), .. }) = self.entries.get(&key) {
            let mac = *mac;
            let state = State::Probe { mac, tries: 1 };
            self.put(key, Entry { state, deadline: now + self.settings.retry });
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
        let known = self.entries.get(&key).map(|entry| entry.state);
        let Some(next) = state::after_heard(known, mac, how) else { return false };
        if known.is_none() && !self.make_room(true, actions) {
            return false;
        }
        let deadline = now + self.lifetime(next);
        self.put(key, Entry { state: next, deadline });
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
            && let Some((deadline, key)) = self.deadlines.first().copied()
            && deadline <= now
        {
            left -= 1;
            let Some(entry) = self.entries.get(&key) else {
                self.deadlines.remove(&(deadline, key));
                continue;
            };
            self.fall_due(key, entry.state, now, actions);
        }
    }

    fn fall_due(&mut self, key: NeighbourKey, state: State, now: Instant, actions: &mut Vec<Action>) {
        let next = match state::after_deadline(state, self.settings.tries) {
            Some(next) => next,
            None => return self.forget(key, actions),
        };
        self.put(key, Entry { state: next, deadline: now + self.lifetime(next) });
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
        self.deadlines.first().map(|(deadline, _)| *deadline).filter(|deadline| *deadline != Instant::FOREVER)
    }

    /// Forgets a neighbour, static or not.
    pub fn forget(&mut self, key: NeighbourKey, actions: &mut Vec<Action>) {
        if let Some(entry) = self.entries.remove(&key) {
            self.deadlines.remove(&(entry.deadline, key));
            self.unresolved -= usize::from(entry.state.mac().is_none());
            actions.push(Action::Forgotten { key });
        }
    }

    /// Forgets the own addresses of a port, and with the next [polls](Self::poll) the neighbours that it learned there: the link went
    /// down.
    pub fn link_down(&mut self, port: PortId) {
        let learned = |(key, entry): (&NeighbourKey, &Entry)| {
            (key.port == port && !matches!(entry.state, State::Static(_))).then_some(*key)
        };
        self.gone.extend(self.entries.iter().filter_map(learned));
        self.own.retain(|key, _| key.port != port);
    }

    /// How many neighbours are remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn put(&mut self, key: NeighbourKey, entry: Entry) {
        let resolved = entry.state.mac().is_some();
        let old = self.entries.insert(key, entry);
        if let Some(old) = old {
            self.deadlines.remove(&(old.deadline, key));
        }
        self.deadlines.insert((entry.deadline, key));
        let was_unresolved = old.is_some_and(|old| old.state.mac().is_none());
        self.unresolved -= usize::from(was_unresolved);
        self.unresolved += usize::from(!resolved);
        if !resolved && !was_unresolved {
            self.queue(key);
        }
    }

    fn queue(&mut self, key: NeighbourKey) {
        if self.asked.len() > self.settings.capacity / 2 + 1 {
            let entries = &self.entries;
            self.asked.retain(|key| entries.get(key).is_some_and(|entry| entry.state.mac().is_none()));
        }
        self.asked.push_back(key);
    }

    /// Whether there is room for one more, after evicting the unresolved one that was asked for first if need be.
    fn make_room(&mut self, resolved: bool, actions: &mut Vec<Action>) -> bool {
        let full = self.entries.len() >= self.settings.capacity;
        let max_unresolved = (self.settings.capacity / 4).max(1);
        if !full && (resolved || self.unresolved < max_unresolved) {
            return true;
        }
        while let Some(key) = self.asked.pop_front() {
            if self.entries.get(&key).is_some_and(|entry| entry.state.mac().is_none()) {
                self.forget(key, actions);
                return true;
            }
        }
        false
    }
}
