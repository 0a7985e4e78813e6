//! Addresses that are clustered in networks and subnets, and prefixes of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use millrace_packet::Family;

use super::style::Spread;
use crate::random::Random;

/// Pool of addresses for one side (source or destination) of a filter set.
pub(super) struct Pool {
    family: Family,
    /// Host addresses; an IPv4 address is in the lower 32 bits.
    hosts: Vec<u128>,
    skew: f64,
}

impl Pool {
    pub fn new(family: Family, spread: &Spread, filters: usize, random: &mut Random) -> Self {
        let count = |fraction: f64| ((filters as f64 * fraction) as usize).max(8);
        // Each step takes addresses of the previous step, some of them repeatedly, and appends random bits to
        // them.
        let steps: [(f64, u32); 3] = match family {
            Family::V4 => [(spread.networks, 16), (spread.subnets, 8), (spread.hosts, 8)],
            Family::V6 => [(spread.networks, 16), (spread.subnets, 16), (spread.hosts, 64)],
        };
        let mut pool = vec![if family == Family::V4 { 0 } else { 0x2001_0db8 }];
        for (fraction, bits) in steps {
            let next = |index: usize| {
                // Each address of the previous step is used once before any is used twice.
                let base = if index < pool.len() { pool[index] } else { *random.skewed(&pool, spread.skew) };
                // The interface identifier of an IPv6 address is either a small number, or random as one from
                // a hardware address.
                let drawn = match (bits, random.bits()) {
                    (64, drawn) if drawn % 2 == 0 => drawn >> 1 & 0xff,
                    (64, drawn) => drawn,
                    (_, drawn) => drawn & ((1 << bits) - 1),
                };
                base << bits | u128::from(drawn)
            };
            pool = (0..count(fraction)).map(next).collect();
        }
        Self { family, hosts: pool, skew: spread.skew }
    }

    /// Returns a prefix of a random address in the pool. `length` is an IPv4 prefix length; IPv6 prefixes get
    /// its equivalent.
    pub fn prefix(&self, length: u8, random: &mut Random) -> IpNet {
        let host = *random.skewed(&self.hosts, self.skew);
        match self.family {
            Family::V4 => net(Ipv4Addr::from(host as u32).into(), length),
            // Short prefixes are equal: all addresses of the pool have the same first 32 bits.
            Family::V6 => net(Ipv6Addr::from(host).into(), length_in_v6(length)),
        }
    }
}

fn net(address: IpAddr, length: u8) -> IpNet {
    IpNet::new(address, length).expect("a length of the family").trunc()
}

/// Returns the IPv6 equivalent of an IPv4 prefix length. IPv6 sites have 48 bits, and IPv6 subnets 64.
fn length_in_v6(length: u8) -> u8 {
    match length {
        0 => 0,
        1..=2 => 32 + length,
        3..=16 => 32 + length,
        17..=23 => 48 + (length - 17) / 4 * 4,
        24 => 56,
        25..=27 => 60,
        28..=30 => 64,
        31 => 127,
        _ => 128,
    }
}
