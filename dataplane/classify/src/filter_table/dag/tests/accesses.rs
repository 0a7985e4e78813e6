//! Accesses to memory of a lookup, counted (*Router Plugins*, section 7.2, table 2: 20 for IPv4, 24 for IPv6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_packet::FlowKey;
use millrace_units::PortId;

use super::*;
use crate::prefix_match::Accesses;

/// The paper's bounds.
const MOST_4: u32 = 20;
const MOST_6: u32 = 24;
const FILTERS: u32 = 50_000;

/// A cheap source of varied numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0.rotate_left(32)
    }

    fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }
}

#[derive(Clone, Copy)]
enum Hosts {
    /// All addresses differ.
    Many,
    /// Every source meets every destination in many flows.
    Few,
}

fn host(number: u32, six: bool) -> IpAddr {
    // Spread over the address space, so that they have nothing in common.
    let spread = number.wrapping_mul(0x9e37_79b1);
    match six {
        false => Ipv4Addr::from_bits(spread).into(),
        true => Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(spread) << 64 | u128::from(number)).into(),
    }
}

fn flow(random: &mut Random, number: u32, hosts: Hosts, six: bool) -> FlowKey {
    let (source, destination) = match hosts {
        Hosts::Many => (number, number + FILTERS),
        Hosts::Few => (random.below(100), 100 + random.below(100)),
    };
    let protocol = if random.below(2) == 0 { 6 } else { 17 };
    // Each flow has a source port of its own, so that no two are the same.
    let ports = ((number % 65_536) as u16, random.below(65_536) as u16);
    let port = PortId(random.below(4) as u16);
    match (host(source, six), host(destination, six)) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            FlowKey::v4(source, destination, protocol, ports, port)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            FlowKey::v6(source, destination, protocol, ports, port)
        }
        _ => unreachable!("both are of one family"),
    }
}

fn filter_of(key: &FlowKey) -> CompiledFilter {
    let text = format!(
        "src {} dst {} proto {} sport {} dport {} in port",
        key.source(),
        key.destination(),
        key.protocol,
        key.source_port,
        key.destination_port
    );
    text.parse::<Filter>().unwrap().compile(|_| Some(key.port)).unwrap()
}

/// The most and the mean of the accesses of these lookups.
fn counted(table: &DagTable<u32>, keys: impl Iterator<Item = FlowKey>) -> (u32, f64) {
    let (mut most, mut sum, mut lookups) = (0, 0, 0);
    for key in keys {
        let mut accesses = Accesses::default();
        table.lookup_counted(&Candidate::plain(key), &mut accesses);
        most = most.max(accesses.0);
        sum += accesses.0;
        lookups += 1;
    }
    (most, f64::from(sum) / f64::from(lookups))
}

fn flow_filters(hosts: Hosts, six: bool, leaf_filters: usize) -> u32 {
    let mut random = Random(1);
    let keys: Vec<_> = (0..FILTERS).map(|number| flow(&mut random, number, hosts, six)).collect();
    let mut table = DagTable::new(DagConfig { leaf_filters, ..DagConfig::default() });
    for (number, key) in (0..).zip(&keys) {
        table.try_insert(filter_of(key), 0, number).unwrap();
    }
    for (number, key) in (0..).zip(&keys) {
        assert_eq!(table.lookup(&Candidate::plain(*key)).map(|(_, value)| *value), Some(number));
    }
    let hits = counted(&table, keys.iter().copied());
    // Packets that differ from a filter in their ports only, so that they get far.
    let near = keys.iter().copied().map(|mut key| {
        key.destination_port ^= 1;
        key
    });
    let misses = counted(&table, near);
    println!(
        "{FILTERS} flow filters, {} hosts, IPv{}, leaves of {leaf_filters}: hits at most {}, {:.2} on average; misses at \
         most {}, {:.2} on average; {} nodes, {} bytes",
        if matches!(hosts, Hosts::Few) { "few" } else { "many" },
        if six { 6 } else { 4 },
        hits.0,
        hits.1,
        misses.0,
        misses.1,
        table.nodes(),
        table.memory(),
    );
    hits.0.max(misses.0)
}

#[test]
fn fifty_thousand_ipv4_flow_filters_take_at_most_20_accesses() {
    for (hosts, leaf) in [(Hosts::Many, 4), (Hosts::Few, 4), (Hosts::Many, 1), (Hosts::Few, 1)] {
        assert!(flow_filters(hosts, false, leaf) <= MOST_4);
    }
}

#[test]
fn fifty_thousand_ipv6_flow_filters_take_at_most_24_accesses() {
    for (hosts, leaf) in [(Hosts::Many, 4), (Hosts::Few, 4), (Hosts::Many, 1), (Hosts::Few, 1)] {
        assert!(flow_filters(hosts, true, leaf) <= MOST_6);
    }
}
