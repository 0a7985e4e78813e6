//! Fragment table: finds the flow of a later fragment, since only the first fragment has the transport
//! header.
//!
//! The table stores each first fragment under the fields that all fragments of a packet share (RFC 791, 3.2;
//! RFC 8200, 4.5): addresses, identification, and for IPv4 the protocol. Here the ingress port is another
//! such field. Later fragments of the packet get the flow of the first one. In IPv6, only the first fragment
//! contains the packet's transport protocol.

use std::time::Duration;

use millrace_packet::{Exceptions, Family, FlowKey};
use millrace_units::Instant;
use millrace_wire::Protocol;

use crate::Candidate;

/// Lifetime of an entry: the time that hosts wait for the fragments of a packet (RFC 8200, 4.5; RFC 1122,
/// 3.3.2).
const LIFETIME: Duration = Duration::from_secs(60);
/// Number of sets of the table. Each set holds [`WAYS`] packets.
const SETS: usize = 1024;
const WAYS: usize = 4;

/// Fragment of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Identification that all fragments of the packet share.
    pub identification: u32,
    /// Whether this is the first fragment of the packet.
    pub first: bool,
    /// Offset of the fragment's data in the fragmentable part of the packet, in octets.
    pub offset: u16,
    /// End of the transport header, in octets from the start of the packet's fragmentable part. Only set for
    /// first fragments; 0 if no stage needs it.
    pub headers_end: u16,
}

#[derive(Clone, Copy)]
struct Entry {
    /// Flow key that all fragments of the packet share, as [`fragment_key`] returns it.
    shared: FlowKey,
    /// Flow key of the first fragment.
    key: FlowKey,
    tcp_flags: Option<u8>,
    identification: u32,
    headers_end: u16,
    until: Instant,
}

/// First fragments of up to 4,096 packets. A new packet displaces the oldest entry of a full set.
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
    /// Stores a first fragment. `hash` is a keyed hash of its [`fragment_key`].
    pub fn begin(&mut self, first: &Candidate, hash: u64, fragment: Fragment, now: Instant) {
        let Fragment { identification, headers_end, .. } = fragment;
        let shared = fragment_key(&first.key);
        let Some(set) = self.sets.get_mut(place(hash, identification)) else { return };
        let is_same = |entry: &Entry| entry.shared == shared && entry.identification == identification;
        let own = set.iter().position(|entry| entry.as_ref().is_some_and(is_same));
        let until = |entry: &Option<Entry>| entry.map_or(Instant::ZERO, |entry| entry.until);
        let oldest = || set.iter().map(until).enumerate().min_by_key(|(_, until)| *until).map(|(way, _)| way);
        let way = own.or_else(oldest).unwrap_or(0);
        let (key, tcp_flags, until) = (first.key, first.tcp_flags, now + LIFETIME);
        if let Some(place) = set.get_mut(way) {
            *place = Some(Entry { shared, key, tcp_flags, identification, headers_end, until });
        }
    }

    /// Gives a later fragment the flow key and TCP flags of the first fragment of its packet, so filters
    /// treat both fragments alike. If the protocol has ports, the ports of the later fragment are then known.
    ///
    /// Returns the end of the transport header, in octets from the start of the fragmentable part. Returns
    /// `None`, and leaves the later fragment unchanged, if the table lacks the first fragment.
    pub fn follow(&self, later: &mut Candidate, hash: u64, identification: u32, now: Instant) -> Option<u16> {
        let shared = fragment_key(&later.key);
        let set = self.sets.get(place(hash, identification))?;
        let found = set.iter().flatten().find(|entry| {
            entry.shared == shared && entry.identification == identification && entry.until > now
        });
        let entry = found?;
        (later.key, later.tcp_flags) = (entry.key, entry.tcp_flags);
        if Protocol(entry.key.protocol).has_ports() {
            later.exceptions = Exceptions::from_bits(later.exceptions.bits() & !Exceptions::FRAGMENT.bits());
        }
        Some(entry.headers_end)
    }
}

/// Returns the part of a flow key that all fragments of a packet share: the key without ports, and for IPv6
/// also without the protocol.
pub fn fragment_key(key: &FlowKey) -> FlowKey {
    let mut shared = *key;
    (shared.source_port, shared.destination_port) = (0, 0);
    if key.family() == Family::V6 {
        shared.protocol = Protocol::FRAGMENT.0;
    }
    shared
}

fn place(hash: u64, identification: u32) -> usize {
    let mixed = (hash ^ u64::from(identification)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % SETS
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use millrace_units::PortId;

    use super::*;

    fn first(last: u8, ports: (u16, u16)) -> Candidate {
        let [source, destination] = [[10, 0, 0, last], [10, 0, 1, 1]].map(Ipv4Addr::from);
        let key = FlowKey::v4(source, destination, 6, ports, PortId(1));
        Candidate { tcp_flags: Some(2), dscp: 3, ..Candidate::plain(key) }
    }

    fn first_of(identification: u32) -> Fragment {
        Fragment { identification, first: true, offset: 0, headers_end: 28 }
    }

    fn later(last: u8) -> Candidate {
        Candidate { tcp_flags: None, exceptions: Exceptions::FRAGMENT, ..first(last, (0, 0)) }
    }

    fn followed(table: &FragmentTable, mut later: Candidate, identification: u32, now: Instant) -> Candidate {
        table.follow(&mut later, 7, identification, now);
        later
    }

    #[test]
    fn fragments_get_the_ports_of_the_first_fragment_until_expiry() {
        let mut table = FragmentTable::default();
        table.begin(&first(1, (5, 6)), 7, first_of(99), Instant::ZERO);
        assert_eq!(followed(&table, later(1), 99, Instant::ZERO), first(1, (5, 6)));
        for (last, identification) in [(1, 98), (2, 99)] {
            assert_eq!(followed(&table, later(last), identification, Instant::ZERO), later(last));
        }
        assert_eq!(followed(&table, later(1), 99, Instant::ZERO + LIFETIME), later(1));
    }

    #[test]
    fn ipv6_protocol_comes_from_the_first_fragment() {
        let address = Ipv6Addr::LOCALHOST;
        let packet =
            |protocol, ports| Candidate::plain(FlowKey::v6(address, address, protocol, ports, PortId(1)));
        let mut table = FragmentTable::default();
        table.begin(&packet(17, (5, 6)), 7, first_of(1), Instant::ZERO);
        table.begin(&packet(58, (0, 0)), 7, first_of(2), Instant::ZERO);
        let later = Candidate { exceptions: Exceptions::FRAGMENT, ..packet(60, (0, 0)) };
        assert_eq!(followed(&table, later, 1, Instant::ZERO), packet(17, (5, 6)));
        let echo = Candidate { exceptions: Exceptions::FRAGMENT, ..packet(58, (0, 0)) };
        assert_eq!(followed(&table, later, 2, Instant::ZERO), echo);
    }

    #[test]
    fn a_flood_of_first_fragments_displaces_only_the_oldest_of_a_set() {
        let mut table = FragmentTable::default();
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(millis);
        for last in 0..5 {
            table.begin(&first(last, (1, 2)), 7, first_of(1), at(last.into()));
        }
        let known = |last: u8| followed(&table, later(last), 1, at(6)) == first(last, (1, 2));
        assert_eq!((0..5).map(known).collect::<Vec<_>>(), [false, true, true, true, true]);
    }
}
