//! Half-open connections by destination, in bounded memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_plugin_abi::{Family, FlowKey};
use serde_json::{Value, json};

use crate::handshake::State;
use crate::settings::Settings;

/// Maximum number of destinations in a reply.
const TOP: usize = 10;

/// Saved state: number of half-open connections without a destination entry, and all entries. An entry holds:
/// whether it is IPv6, address, prefix length, count.
pub(crate) type Saved = (u64, Vec<(bool, [u8; 16], u8, u64)>);

/// Destination of connections: a network with the configured prefix length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Destination {
    is_v6: bool,
    /// Address as a number, the first octet on top. An IPv4 address is in the upper 32 bits.
    address: u128,
    bits: u8,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = if self.is_v6 {
            Ipv6Addr::from_bits(self.address).fmt(f)?;
            128
        } else {
            Ipv4Addr::from_bits((self.address >> 96) as u32).fmt(f)?;
            32
        };
        if self.bits < longest { write!(f, "/{}", self.bits) } else { Ok(()) }
    }
}

/// Number of half-open connections for each destination.
pub(crate) struct Destinations {
    /// Entries: destinations with their number of half-open connections.
    known: HashMap<Destination, u64>,
    limit: usize,
    bits: (u8, u8),
    /// Number of half-open connections to destinations without an entry.
    pub elsewhere: u64,
    /// Number of half-open connections to all destinations.
    pub half_open: u64,
}

impl Destinations {
    /// Creates an empty table, and allocates all its memory. The table is at most half full, so it never
    /// grows.
    pub fn new(settings: &Settings) -> Self {
        Self {
            known: HashMap::with_capacity(2 * settings.destinations),
            limit: settings.destinations,
            bits: (settings.prefix, settings.prefix6),
            elsewhere: 0,
            half_open: 0,
        }
    }

    fn of(&self, key: &FlowKey) -> Destination {
        let (is_v6, bits) = match key.family() {
            Family::V4 => (false, self.bits.0),
            Family::V6 => (true, self.bits.1),
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        Destination { is_v6, address: u128::from_be_bytes(*key.destination_bytes()) & mask, bits }
    }

    /// Adds a half-open connection. Returns the new state of the connection's handshake. This state also
    /// tells whether the destination has an entry.
    #[inline]
    pub fn add(&mut self, key: &FlowKey) -> State {
        self.half_open += 1;
        let destination = self.of(key);
        if let Some(count) = self.known.get_mut(&destination) {
            *count += 1;
        } else if self.known.len() < self.limit {
            self.known.insert(destination, 1);
        } else {
            self.elsewhere += 1;
            return State::HalfOpenElsewhere;
        }
        State::HalfOpen
    }

    /// Removes a half-open connection. `state` is the state of its handshake.
    #[inline]
    pub fn remove(&mut self, key: &FlowKey, state: State) {
        let destination = self.of(key);
        let here = self.known.get_mut(&destination).filter(|_| state != State::HalfOpenElsewhere);
        if let Some(count) = here {
            *count -= 1;
            if *count == 0 {
                self.known.remove(&destination);
            }
        } else if self.elsewhere > 0 {
            self.elsewhere -= 1;
        } else {
            // The attempt began at the previous instance, which handed over no state, so these counts don't
            // contain it.
            return;
        }
        self.half_open = self.half_open.saturating_sub(1);
    }

    pub fn save(&self) -> Saved {
        let all = self.known.iter().map(|(destination, count)| {
            (destination.is_v6, destination.address.to_be_bytes(), destination.bits, *count)
        });
        (self.elsewhere, all.collect())
    }

    /// Restores a saved state. Adds counts to `elsewhere` if they are for another prefix length or find no
    /// free entry.
    pub fn restore(&mut self, (elsewhere, all): Saved) {
        self.known.clear();
        (self.elsewhere, self.half_open) = (elsewhere, elsewhere);
        for (is_v6, address, bits, count) in all {
            let own_bits = if is_v6 { self.bits.1 } else { self.bits.0 };
            let destination = Destination { is_v6, address: u128::from_be_bytes(address), bits };
            if bits == own_bits && count > 0 && self.known.len() < self.limit {
                self.known.insert(destination, count);
            } else {
                self.elsewhere = self.elsewhere.saturating_add(count);
            }
            self.half_open = self.half_open.saturating_add(count);
        }
    }

    /// Returns the destination with the most half-open connections, and their number.
    pub fn worst(&self) -> Option<(Destination, u64)> {
        let all = self.known.iter().map(|(destination, count)| (*destination, *count));
        all.max_by_key(|(destination, count)| (*count, Reverse(*destination)))
    }

    /// Returns the destinations with the most half-open connections, the worst first.
    pub fn read(&self) -> Vec<Value> {
        let mut all: Vec<_> = self.known.iter().collect();
        all.sort_by_key(|(destination, count)| (Reverse(**count), **destination));
        all.truncate(TOP);
        all.into_iter().map(|(destination, count)| entry(&destination.to_string(), *count)).collect()
    }
}

fn entry(destination: &str, half_open: u64) -> Value {
    json!({ "destination": destination, "half_open": half_open })
}

/// Merges the destinations in the replies of several workers. Returns up to ten, those with the most
/// half-open connections.
pub(crate) fn joined(replies: &[Value]) -> Value {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for one in replies.iter().filter_map(|reply| reply.get("top")?.as_array()).flatten() {
        let (name, count) = (one.get("destination").and_then(Value::as_str), one.get("half_open"));
        let (Some(name), Some(count)) = (name, count.and_then(Value::as_u64)) else { continue };
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name, count)),
        }
    }
    sums.sort_by_key(|(_, count)| Reverse(*count));
    sums.truncate(TOP);
    sums.into_iter().map(|(name, count)| entry(name, count)).collect()
}

#[cfg(test)]
mod tests {
    use millrace_units::PortId;

    use super::*;

    #[test]
    fn the_table_takes_no_memory_while_destinations_come_and_go() {
        let settings = json!({ "destinations": 100 }).as_object().cloned().unwrap();
        let mut destinations = Destinations::new(&Settings::new(&settings).unwrap());
        let begun = destinations.known.capacity();
        let key = |number: u32| {
            let there = Ipv4Addr::from_bits(number.wrapping_mul(2_654_435_761));
            FlowKey::v4(Ipv4Addr::LOCALHOST, there, 6, (1, 2), PortId(0))
        };
        let mut states: Vec<_> = (0..150).map(|number| destinations.add(&key(number))).collect();
        assert_eq!((destinations.known.len(), destinations.elsewhere), (100, 50));
        for number in 150..20_000 {
            let oldest = states.remove(0);
            destinations.remove(&key(number - 150), oldest);
            states.push(destinations.add(&key(number)));
            // A hash map uses up spare capacity by removals until it rehashes in place. It must never grow.
            assert!(destinations.known.capacity() <= begun, "{number}");
        }
        assert_eq!(destinations.half_open, 150);
    }
}
