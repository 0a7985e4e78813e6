//! Route tables of the Internet's size, and addresses to look up. The tables are generated from the
//! Internet's distribution of prefix lengths.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use millrace_testkit::Random;

use crate::family::Family;

/// Prefix of a table. The prefix's address, IPv4 or IPv6, is in the leading bits of a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Prefix {
    pub bits: u128,
    pub length: u8,
    /// Number of the prefix's route, below [`ROUTES`].
    pub route: u32,
}

/// Number of different routes in a table: about as many as a large router has neighbours.
pub(super) const ROUTES: u32 = 256;
/// Number of addresses in a stream: too many for a cache.
pub(super) const ADDRESSES: usize = 1 << 20;

/// Converts bits and length to an [`IpNet`].
pub(super) fn net(family: Family, bits: u128, length: u8) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::from_bits((bits >> 96) as u32), length).into(),
        Family::V6 => Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), length).into(),
    }
}

/// Returns a table of about `count` prefixes in random order; every call returns the same table.
pub(super) fn table(family: Family, count: usize) -> Vec<Prefix> {
    let mut made = Made { random: Random::new(1), seen: HashSet::new(), prefixes: Vec::new() };
    match family {
        Family::V4 => made.ipv4(count),
        Family::V6 => made.ipv6(count),
    }
    made.random.shuffle(&mut made.prefixes);
    made.prefixes
}

/// Returns a random number below `end`.
fn below(random: &mut Random, end: usize) -> usize {
    ((u128::from(random.bits()) * end as u128) >> 64) as usize
}

/// Keeps the first `length` bits of `bits`, and sets the others at random.
fn inside(random: &mut Random, bits: u128, length: u8) -> u128 {
    let any = u128::from(random.bits()) << 64 | u128::from(random.bits());
    bits | any & !mask(length)
}

/// Returns a mask of the first `length` bits.
fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

/// Number of IPv4 prefixes by length, in each of the former classes A, B and C. There are 1,076,801 in all,
/// as counted for DPDK's LPM test (app/test/test_lpm_perf.c).
const LENGTHS4: [(u8, [usize; 3]); 29] = [
    (3, [1, 0, 0]),
    (5, [2, 1, 0]),
    (6, [1, 1, 0]),
    (7, [3, 1, 0]),
    (8, [185, 3, 12]),
    (9, [26, 3, 8]),
    (10, [16, 30, 9]),
    (11, [39, 25, 33]),
    (12, [144, 168, 69]),
    (13, [233, 305, 237]),
    (14, [528, 569, 1007]),
    (15, [866, 1129, 1717]),
    (16, [3856, 50800, 14663]),
    (17, [3268, 1645, 8070]),
    (18, [5662, 1820, 16185]),
    (19, [17301, 3506, 48261]),
    (20, [22226, 3258, 36870]),
    (21, [11147, 3424, 33960]),
    (22, [16746, 4971, 50638]),
    (23, [17120, 6885, 61422]),
    (24, [77578, 39771, 466549]),
    (25, [401, 424, 1829]),
    (26, [656, 170, 4824]),
    (27, [1107, 433, 4927]),
    (28, [1121, 92, 5914]),
    (29, [2316, 366, 10254]),
    (30, [717, 377, 4905]),
    (31, [10, 2, 1]),
    (32, [66, 200, 716]),
];
const SUM4: usize = 1_076_801;
/// First address and prefix length of each class. Class A includes network 0, which real tables lack.
const CLASSES: [(u128, u8); 3] = [(0, 1), (0x8 << 124, 2), (0xc << 124, 3)];

/// Lengths of the prefixes that registries allocate to providers, and the share of each length in all IPv6
/// prefixes, in per mille. No other prefix of the table contains these prefixes.
const PROVIDERS6: [(u8, usize); 8] =
    [(20, 1), (24, 1), (26, 1), (28, 1), (29, 23), (30, 3), (31, 2), (32, 120)];
/// Lengths of the prefixes inside allocations that are announced separately, and the share of each length in
/// all IPv6 prefixes, in per mille.
const PIECES6: [(u8, usize); 19] = [
    (33, 9),
    (34, 8),
    (35, 4),
    (36, 50),
    (38, 9),
    (39, 3),
    (40, 80),
    (41, 4),
    (42, 18),
    (43, 4),
    (44, 110),
    (45, 15),
    (46, 40),
    (47, 23),
    (48, 455),
    (52, 2),
    (56, 4),
    (64, 8),
    (128, 2),
];
/// IPv6 address ranges of the registries.
const REGISTRIES6: [(u128, u8); 6] = [
    (0x2001 << 112, 16),
    (0x2400 << 112, 12),
    (0x2600 << 112, 12),
    (0x2800 << 112, 12),
    (0x2a00 << 112, 12),
    (0x2c00 << 112, 12),
];

struct Made {
    random: Random,
    seen: HashSet<(u128, u8)>,
    prefixes: Vec<Prefix>,
}

impl Made {
    fn add(&mut self, bits: u128, length: u8) -> bool {
        let bits = bits & mask(length);
        let new = self.seen.insert((bits, length));
        if new {
            let route = below(&mut self.random, ROUTES as usize) as u32;
            self.prefixes.push(Prefix { bits, length, route });
        }
        new
    }

    fn ipv4(&mut self, count: usize) {
        for (length, classes) in LENGTHS4 {
            for ((class, class_length), wanted) in CLASSES.into_iter().zip(classes) {
                // Take at most three quarters of the existing prefixes. The counts come from a router with
                // several tables, and exceed the number of existing 16-bit prefixes.
                let room = 1usize << length.saturating_sub(class_length).min(30);
                let wanted = (wanted * count / SUM4).min(room * 3 / 4);
                let end = self.prefixes.len() + wanted;
                while self.prefixes.len() < end {
                    let bits = inside(&mut self.random, class, class_length);
                    self.add(bits, length);
                }
            }
        }
        while self.prefixes.len() < count {
            let (class, length) = CLASSES[below(&mut self.random, 3)];
            let bits = inside(&mut self.random, class, length);
            self.add(bits, 24);
        }
    }

    fn ipv6(&mut self, count: usize) {
        for (length, per_mille) in PROVIDERS6 {
            let end = self.prefixes.len() + per_mille * count / 1000;
            while self.prefixes.len() < end {
                let (registry, registry_length) = REGISTRIES6[below(&mut self.random, REGISTRIES6.len())];
                let bits = inside(&mut self.random, registry, registry_length);
                self.add(bits, length);
            }
        }
        let mut providers: Vec<_> = self.prefixes.iter().map(|prefix| (prefix.bits, prefix.length)).collect();
        self.random.shuffle(&mut providers);
        for (length, per_mille) in PIECES6 {
            // The shares of both tables add up to 1,000 per mille, so the last length ends near `count`, and
            // never above.
            let end = (self.prefixes.len() + per_mille * count / 1000).min(count);
            while self.prefixes.len() < end {
                // The third power favours few providers, which announce many of these prefixes.
                let which = self.random.fraction().powi(3) * providers.len() as f64;
                let (bits, provider_length) = providers[which as usize];
                let bits = inside(&mut self.random, bits, provider_length);
                self.add(bits, length);
            }
        }
    }
}

/// Returns `count` addresses, each in a random prefix; all prefixes are equally likely.
pub(super) fn random(table: &[Prefix], count: usize) -> Vec<u128> {
    let mut random = Random::new(2);
    let mut one = || {
        let prefix = table[below(&mut random, table.len())];
        inside(&mut random, prefix.bits, prefix.length)
    };
    (0..count).map(|_| one()).collect()
}

/// Returns one address per prefix, repeated by Zipf's law: the n-th most frequent address is n times rarer
/// than the most frequent one.
pub(super) fn zipf(table: &[Prefix]) -> Vec<u128> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=table.len()).map(|rank| (sum += 1.0 / rank as f64, sum).1).collect();
    let mut random = Random::new(3);
    let mut one = || {
        let point = random.fraction() * sum;
        let rank = sums.partition_point(|sum| *sum < point).min(table.len() - 1);
        let prefix = table[rank];
        inside(&mut Random::new(rank as u64), prefix.bits, prefix.length)
    };
    (0..ADDRESSES).map(|_| one()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_of_the_size_and_the_lengths_that_were_asked_for() {
        let table = table(Family::V4, 100_000);
        let share = |length| table.iter().filter(|prefix| prefix.length == length).count();
        assert_eq!(table.len(), 100_000);
        assert!((50_000..60_000).contains(&share(24)), "{}", share(24));
        assert!((80..100).contains(&share(32)), "{}", share(32));
        assert_eq!(
            table.iter().map(|prefix| (prefix.bits, prefix.length)).collect::<HashSet<_>>().len(),
            100_000
        );
        let table = super::table(Family::V6, 20_000);
        let share = |length| table.iter().filter(|prefix| prefix.length == length).count();
        assert!((19_900..=20_000).contains(&table.len()), "{}", table.len());
        assert!((9000..9200).contains(&share(48)) && share(32) == 2400, "{} {}", share(48), share(32));
    }

    #[test]
    fn every_address_has_a_prefix() {
        let table = table(Family::V6, 2000);
        for addresses in [random(&table, ADDRESSES), zipf(&table)] {
            let covered =
                |address: u128| table.iter().any(|prefix| address & mask(prefix.length) == prefix.bits);
            assert!(addresses.iter().step_by(1000).all(|address| covered(*address)));
        }
    }
}
