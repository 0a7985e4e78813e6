//! Flows by number, and the order of their packets.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_packet::FlowKey;
use millrace_testkit::Random;
use millrace_units::PortId;

use crate::family::Family;

/// Returns the flow key of flow `number`. Different numbers have different keys, which show no pattern.
#[inline]
pub(super) fn key(family: Family, number: u32) -> FlowKey {
    let (first, second) = (scramble(u64::from(number)), scramble(u64::from(number) ^ 1 << 40));
    let ports = ((number >> 16) as u16, second as u16);
    match family {
        // The low 16 bits of the number are in the address, the other bits in the port. So all keys differ.
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

/// Maps a number to a random-looking one. Different numbers have different results.
#[inline]
pub(super) fn scramble(number: u64) -> u64 {
    Random::new(number).bits()
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
}
