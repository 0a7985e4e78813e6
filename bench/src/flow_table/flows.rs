//! Flows by number, and the order of their packets.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_packet::FlowKey;
use millrace_testkit::Random;
use millrace_units::PortId;

use crate::family::Family;

/// Returns the key of flow `number`. Different flows have different keys, without a pattern.
#[inline]
pub(super) fn key(family: Family, number: u32) -> FlowKey {
    let (first, second) = (scramble(u64::from(number)), scramble(u64::from(number) ^ 1 << 40));
    let ports = ((number >> 16) as u16, second as u16);
    match family {
        // The address has the low 16 bits of the number, and the port has the other bits: all keys differ.
        Family::V4 => {
            let (source, destination) = ((first as u32) & !0xffff | number & 0xffff, (first >> 32) as u32);
            FlowKey::v4(Ipv4Addr::from(source), Ipv4Addr::from(destination), 6, ports, PortId(1))
        }
        Family::V6 => {
            let source = u128::from(first) << 64 | u128::from(number);
            FlowKey::v6(Ipv6Addr::from(source), Ipv6Addr::from(u128::from(second) << 40), 6, ports, PortId(1))
        }
    }
}

/// Maps a number to a random-looking number; different numbers stay different.
#[inline]
pub(super) fn scramble(number: u64) -> u64 {
    Random::new(number).bits()
}

/// Frequency of each flow's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Popularity {
    /// Equal frequency of all flows.
    Uniform,
    /// Frequency of the n-th most frequent flow in proportion to 1/n.
    Zipf,
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Uniform { "uniform" } else { "Zipf" })
    }
}

/// Returns the flow numbers of `packets` packets, out of `flows` flows.
pub(crate) fn order(popularity: Popularity, flows: u32, packets: usize) -> Vec<u32> {
    let random = |packet: usize| scramble(packet as u64 ^ 1 << 50) >> 11;
    match popularity {
        Popularity::Uniform => {
            (0..packets).map(|packet| (random(packet) % u64::from(flows)) as u32).collect()
        }
        // Approximates Zipf's law: finds the x up to which the integral of 1/x from 1/2 is a random part of
        // the whole.
        Popularity::Zipf => {
            let span = (f64::from(flows) + 0.5).ln() - 0.5_f64.ln();
            let rank = |packet| {
                let part = random(packet) as f64 / (1_u64 << 53) as f64;
                ((0.5_f64.ln() + part * span).exp() + 0.5).floor().clamp(1.0, f64::from(flows)) as u32 - 1
            };
            (0..packets).map(rank).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_flows_have_the_same_key() {
        for family in [Family::V4, Family::V6] {
            let keys: HashSet<FlowKey> = (0..100_000).map(|number| key(family, number * 41)).collect();
            assert_eq!(keys.len(), 100_000);
        }
    }

    #[test]
    fn flows_come_as_often_as_they_should() {
        let share = |popularity, flow| {
            let order = order(popularity, 1000, 200_000);
            assert!(order.iter().all(|&flow| flow < 1000));
            order.iter().filter(|&&other| other == flow).count() as f64 / 200_000.0
        };
        assert!((0.0005..0.0015).contains(&share(Popularity::Uniform, 0)));
        // Reference: the sum of 1/n up to 1,000 is 7.485.
        assert!((0.10..0.17).contains(&share(Popularity::Zipf, 0)), "{}", share(Popularity::Zipf, 0));
        assert!((0.011..0.016).contains(&share(Popularity::Zipf, 9)));
    }
}
