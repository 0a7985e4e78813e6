//! Packets that match the filters of a set.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use millrace_classify::{Candidate, Filter, PortRange};
use millrace_packet::FlowKey;
use millrace_units::PortId;

use super::FilterSet;
use crate::random::Random;

/// Frequency at which the filters of a set match packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Popularity {
    /// Equal frequency for all filters.
    Uniform,
    /// Zipf's law over a random order of the filters: the n-th filter gets 1/n of the first filter's packets.
    Zipf,
}

/// Returns `count` packets. Each packet is made to match one filter, but a filter of higher precedence may
/// match it, too.
pub fn trace(set: &FilterSet, popularity: Popularity, count: usize, seed: u64) -> Vec<Candidate> {
    let mut random = Random::new(seed);
    let mut order: Vec<&Filter> = set.filters.iter().collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last + 1));
    }
    let weight = |number: usize| if popularity == Popularity::Zipf { 1.0 / (number + 1) as f64 } else { 1.0 };
    let mut sums: Vec<f64> = (0..order.len()).map(weight).collect();
    for index in 1..sums.len() {
        sums[index] += sums[index - 1];
    }
    let total = sums.last().copied().unwrap_or(0.0);
    let mut draw = || {
        let wanted = random.fraction() * total;
        let chosen = sums.partition_point(|sum| *sum <= wanted).min(order.len() - 1);
        packet(order[chosen], &mut random)
    };
    (0..count).map(|_| draw()).collect()
}

/// Returns a packet that matches a filter. Fields that the filter leaves open are random.
fn packet(filter: &Filter, random: &mut Random) -> Candidate {
    let v6 = [filter.source(), filter.destination()].iter().flatten().any(|net| net.addr().is_ipv6());
    let protocol = filter.protocol().map_or(if random.below(4) == 0 { 17 } else { 6 }, |protocol| protocol.0);
    let mut port = |range| match range {
        PortRange::Any if [6, 17].contains(&protocol) => 1 + random.below(65_535) as u16,
        PortRange::Any => 0,
        PortRange::Ports { first, last } => first + random.below(usize::from(last - first) + 1) as u16,
    };
    let ports = (port(filter.source_port()), port(filter.destination_port()));
    let (source, destination) = (host(filter.source(), random), host(filter.destination(), random));
    let key = if v6 {
        FlowKey::v6(Ipv6Addr::from(source), Ipv6Addr::from(destination), protocol, ports, PortId(1))
    } else {
        let v4 = |address: u128| Ipv4Addr::from(address as u32);
        FlowKey::v4(v4(source), v4(destination), protocol, ports, PortId(1))
    };
    Candidate::plain(key)
}

/// Returns a random address in a prefix; an IPv4 address is in the lower 32 bits. Without a prefix, any
/// address.
fn host(net: Option<IpNet>, random: &mut Random) -> u128 {
    let drawn = u128::from(random.bits()) << 64 | u128::from(random.bits());
    let Some(net) = net else { return drawn };
    let (address, length) = match net.addr() {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let free = u32::from(length - net.prefix_len());
    address | drawn & !u128::MAX.checked_shl(free).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use millrace_packet::Family;

    use super::super::{Style, generate};
    use super::*;

    #[test]
    fn each_packet_meets_a_filter() {
        for family in [Family::V4, Family::V6] {
            let set = generate(Style::Fw, family, 300, 1);
            let filters: Vec<_> =
                set.filters.iter().map(|filter| filter.compile(|_| None).unwrap()).collect();
            for popularity in [Popularity::Uniform, Popularity::Zipf] {
                for packet in trace(&set, popularity, 500, 2) {
                    assert!(filters.iter().any(|filter| filter.matches(&packet)), "{packet:?}");
                }
            }
        }
    }
}
