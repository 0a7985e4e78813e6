//! Which flow the fragments of a packet belong to: only the first one has the transport ports.
//!
//! The ports of a first fragment are remembered under what all fragments of the packet share (RFC 791, RFC 8200, 4.5):
//! the addresses, the protocol, the identification, and here the port of arrival. Those behind it then get its flow.

use std::time::Duration;

use millrace_packet::FlowKey;
use millrace_units::Instant;

/// How long fragments may follow the first (RFC 791, 3.2, wants at least 15 seconds for reassembly).
const LIFETIME: Duration = Duration::from_secs(15);
/// Packets whose fragments are followed at a time.
const SETS: usize = 1024;
const WAYS: usize = 4;

/// A fragment of a larger packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// The identification that all fragments of the packet have.
    pub identification: u32,
    /// Whether it is the first.
    pub first: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    /// Ports of the first fragment; in the key itself they are zero.
    ports: (u16, u16),
    key: FlowKey,
    identification: u32,
    until: Instant,
}

/// The packets whose fragments are on their way: at most 4,096; beyond that the oldest of a set is forgotten.
pub struct FragmentTable {
    sets: Box<[[Option<Entry>; WAYS]]>,
}

impl std::fmt::Debug for FragmentTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FragmentTable").finish_non_exhaustive()
    }
}

impl Default for FragmentTable {
    fn default() -> Self {
        Self { sets: vec![[None; WAYS]; SETS].into_boxed_slice() }
    }
}

impl FragmentTable {
    /// Remembers a first fragment, whose `key` has its ports; `hash` is a keyed hash of the key without ports.
    pub fn begin(&mut self, key: &FlowKey, hash: u64, identification: u32, now: Instant) {
        let (bare, ports) = (without_ports(key), (key.source_port, key.destination_port));
        let set = &mut self.sets[place(hash, identification)];
        let is_same = |entry: &Entry| entry.key == bare && entry.identification == identification;
        let own = set.iter().position(|entry| entry.as_ref().is_some_and(is_same));
        let oldest = || (0..WAYS).min_by_key(|way| set[*way].map_or(Instant::ZERO, |entry| entry.until));
        let way = own.or_else(oldest).unwrap_or(0);
        set[way] = Some(Entry { ports, key: bare, identification, until: now + LIFETIME });
    }

    /// Gives the key of a fragment behind the first the ports of that; `false` when the first was not seen.
    pub fn follow(&self, key: &mut FlowKey, hash: u64, identification: u32, now: Instant) -> bool {
        let bare = without_ports(key);
        let set = &self.sets[place(hash, identification)];
        let found = set
            .iter()
            .flatten()
            .find(|entry| entry.key == bare && entry.identification == identification && entry.until > now);
        if let Some(entry) = found {
            (key.source_port, key.destination_port) = entry.ports;
        }
        found.is_some()
    }
}

/// The key that all fragments of a packet have.
pub fn without_ports(key: &FlowKey) -> FlowKey {
    let mut bare = *key;
    (bare.source_port, bare.destination_port) = (0, 0);
    bare
}

fn place(hash: u64, identification: u32) -> usize {
    let mixed = (hash ^ u64::from(identification)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % SETS
}

#[cfg(test)]
mod tests {
    use millrace_units::PortId;

    use super::*;

    fn key(last: u8, ports: (u16, u16)) -> FlowKey {
        FlowKey::v4([10, 0, 0, last].into(), [10, 0, 1, 1].into(), 17, ports, PortId(1))
    }

    #[test]
    fn fragments_get_the_ports_of_their_first_one_while_it_lasts() {
        let mut table = FragmentTable::default();
        table.begin(&key(1, (5, 6)), 7, 99, Instant::ZERO);
        let mut follower = key(1, (0, 0));
        assert!(table.follow(&mut follower, 7, 99, Instant::ZERO));
        assert_eq!(follower, key(1, (5, 6)));
        for (last, identification) in [(1, 98), (2, 99)] {
            assert!(!table.follow(&mut key(last, (0, 0)), 7, identification, Instant::ZERO));
        }
        assert!(!table.follow(&mut key(1, (0, 0)), 7, 99, Instant::ZERO + LIFETIME));
    }

    #[test]
    fn a_flood_of_first_fragments_displaces_only_the_oldest_of_a_set() {
        let mut table = FragmentTable::default();
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(millis);
        for last in 0..5 {
            table.begin(&key(last, (1, 2)), 7, 1, at(last.into()));
        }
        let known = |last: u8| table.follow(&mut key(last, (0, 0)), 7, 1, at(6));
        assert_eq!((0..5).map(known).collect::<Vec<_>>(), [false, true, true, true, true]);
    }
}
