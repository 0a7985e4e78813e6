//! Keyed hash of flow keys.

use millrace_packet::{Family, FlowKey};
use millrace_units::{PortId, SplitMix};

/// Bit position of the ingress port in the last word of a key.
const PORT_SHIFT: u32 = 48;

/// Returns a keyed hash of the five-tuple, so packets with different ingress ports have the same hash. A
/// sender that doesn't know `seed` can't choose flows whose hashes collide.
pub fn flow_hash(key: &FlowKey, seed: u64) -> u32 {
    FlowHash::new(seed).of_both(key).1
}

/// Returns a keyed hash of the addresses, ports and protocol that is the same for both directions of a connection. A sender
/// that doesn't know `seed` can't choose connections whose hashes collide.
pub fn connection_hash(key: &FlowKey, seed: u64) -> u32 {
    FlowHash::new(seed).of_connection(key)
}

/// Keyed hash of flow keys. The key of the hash is drawn at the table's creation.
///
/// The words of the flow key go through NH, an almost universal hash, here with 64-bit words (UMAC: Black,
/// Halevi, Krawczyk, Krovetz and Rogaway, CRYPTO '99, section 4). A sender that doesn't know the hash's key
/// can't choose two flow keys that collide with a probability above 2^-64.
///
/// A multiplication with further words of the hash's key reduces the 128 bits to 64. The result is the hash
/// of the five-tuple. Last, the ingress port is multiplied by another word of the hash's key and added, which
/// yields the hash of all six fields.
#[derive(Clone)]
pub(in crate::flow_table) struct FlowHash {
    secrets: [u64; 6],
    fold: [u64; 2],
    variant: u64,
    port: u64,
}

impl FlowHash {
    /// Derives the words of the hash from `seed` by [`SplitMix`].
    pub fn new(seed: u64) -> Self {
        let mut words = SplitMix::new(seed);
        let mut next = || words.word();
        let secrets = std::array::from_fn(|_| next());
        Self { secrets, fold: [next(), next()], variant: next() | 1, port: next() | 1 }
    }

    /// Returns the hash of all six fields.
    #[inline(always)]
    pub fn of(&self, key: &FlowKey) -> u64 {
        self.of_both(key).0
    }

    /// Returns the hash of all six fields, and the hash of the five-tuple as [`flow_hash`] returns it.
    #[inline(always)]
    pub fn of_both(&self, key: &FlowKey) -> (u64, u32) {
        let last = key.last_word();
        self.both(self.of_five(key, last & ((1 << PORT_SHIFT) - 1)), last)
    }

    /// Returns the hash of the connection of a key, as [`connection_hash`] returns it: the hash of the two endpoints, the
    /// lower one first.
    #[inline]
    pub fn of_connection(&self, key: &FlowKey) -> u32 {
        let (source, destination) = (key.source_bytes(), key.destination_bytes());
        let (from, to) = (u64::from(key.source_port), u64::from(key.destination_port));
        let protocol = u64::from(key.protocol);
        let sum = match key.family() {
            Family::V4 => {
                let [from, to] = [(source, from), (destination, to)]
                    .map(|(address, port)| (word(address, 0) & 0xffff_ffff) << 16 | port);
                self.product(0, from.min(to) | protocol << 48, from.max(to))
            }
            Family::V6 => {
                let [from, to] = [(source, from), (destination, to)]
                    .map(|(address, port)| (u128::from_be_bytes(*address), port));
                let (low, high) = (from.min(to), from.max(to));
                self.product(0, low.0 as u64, (low.0 >> 64) as u64)
                    .wrapping_add(self.product(2, high.0 as u64, (high.0 >> 64) as u64))
                    .wrapping_add(self.product(4, low.1 | high.1 << 16 | protocol << 32, 0))
            }
        };
        let folded = self.fold(sum);
        (folded ^ folded >> 32) as u32
    }

    /// Returns both hashes of an IPv4 key. `last` is the key's last word without the ingress port, `port` the
    /// [term of the ingress port](Self::of_port).
    #[inline(always)]
    pub fn of_both4(&self, addresses: u64, last: u64, port: u64) -> (u64, u32) {
        let five = self.fold(self.product(0, addresses, last));
        (five.wrapping_add(port), (five ^ five >> 32) as u32)
    }

    /// Returns the term that an ingress port adds to the hash of all six fields.
    #[inline(always)]
    pub fn of_port(&self, port: PortId) -> u64 {
        u64::from(port.0).wrapping_mul(self.port)
    }

    #[inline(always)]
    fn both(&self, five: u64, last: u64) -> (u64, u32) {
        (five.wrapping_add((last >> PORT_SHIFT).wrapping_mul(self.port)), (five ^ five >> 32) as u32)
    }

    #[inline(always)]
    fn of_five(&self, key: &FlowKey, last: u64) -> u64 {
        let (source, destination) = (key.source_bytes(), key.destination_bytes());
        let sum = match key.family() {
            Family::V4 => {
                let addresses = word(source, 0) & 0xffff_ffff | word(destination, 0) << 32;
                self.product(0, addresses, last)
            }
            Family::V6 => self
                .product(0, word(source, 0), last)
                .wrapping_add(self.product(2, word(source, 8), word(destination, 0)))
                .wrapping_add(self.product(4, word(destination, 8), 0)),
        };
        self.fold(sum)
    }

    #[inline(always)]
    fn fold(&self, sum: u128) -> u64 {
        let folded = u128::from(sum as u64 ^ self.fold[0]) * u128::from((sum >> 64) as u64 ^ self.fold[1]);
        folded as u64 ^ (folded >> 64) as u64
    }

    /// Returns the hash of a variant record, from the hash of its flow. The base record, variant 0, has the
    /// hash of the flow.
    #[inline(always)]
    pub fn with_variant(&self, hash: u64, variant: u32) -> u64 {
        hash.wrapping_add(u64::from(variant).wrapping_mul(self.variant))
    }

    #[inline(always)]
    fn product(&self, at: usize, one: u64, other: u64) -> u128 {
        u128::from(one.wrapping_add(self.secrets[at])) * u128::from(other.wrapping_add(self.secrets[at + 1]))
    }
}

impl std::fmt::Debug for FlowHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FlowHash(secret)")
    }
}

#[inline(always)]
fn word(bytes: &[u8; 16], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn every_field_and_the_seed_matter() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let (c, d) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let (one, two) = (PortId(1), PortId(2));
        let keys = [
            FlowKey::v4(a, b, 6, (1, 2), one),
            FlowKey::v4(b, a, 6, (1, 2), one),
            FlowKey::v4(a, b, 17, (1, 2), one),
            FlowKey::v4(a, b, 6, (2, 1), one),
            FlowKey::v4(a, b, 6, (1, 3), one),
            FlowKey::v4(a, b, 6, (1, 2), two),
            FlowKey::v6(c, d, 6, (1, 2), one),
            FlowKey::v6(d, c, 6, (1, 2), one),
            FlowKey::v6(d, d, 6, (1, 2), one),
        ];
        let hashes = |seed| keys.map(|key| FlowHash::new(seed).of(&key));
        let all: HashSet<u64> = hashes(1).into_iter().chain(hashes(2)).collect();
        assert_eq!(all.len(), 2 * keys.len());
    }

    #[test]
    fn flow_hash_is_independent_of_the_ingress_port() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let of = |source, port| flow_hash(&FlowKey::v4(a, b, 17, (source, 53), PortId(port)), 3);
        assert_eq!((of(1, 1), of(2, 1)), (of(1, 2), of(2, PortId::NONE.0)));
        let different: HashSet<u32> = (0..1000).map(|source| of(source, 1)).collect();
        assert_eq!(different.len(), 1000);
    }

    #[test]
    fn both_directions_of_a_connection_have_one_hash() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let (c, d) = (Ipv6Addr::LOCALHOST, Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2));
        let mut all = HashSet::new();
        for (from, to) in (0..1000).map(|port| (port, port * 7 % 1000)) {
            let keys = [
                (FlowKey::v4(a, b, 6, (from, to), PortId(1)), FlowKey::v4(b, a, 6, (to, from), PortId(2))),
                (FlowKey::v6(c, d, 6, (from, to), PortId(1)), FlowKey::v6(d, c, 6, (to, from), PortId(2))),
            ];
            for (one, other) in keys {
                assert_eq!(connection_hash(&one, 3), connection_hash(&other, 3));
                assert_ne!(connection_hash(&one, 3), connection_hash(&one, 4));
                all.insert(connection_hash(&one, 3));
            }
            all.insert(connection_hash(&FlowKey::v4(a, b, 17, (from, to), PortId(1)), 3));
        }
        assert_eq!(all.len(), 3000, "ports, protocols and addresses matter");
        // Exchanged ports make another connection.
        let [one, other] = [(1, 2), (2, 1)].map(|ports| FlowKey::v4(a, b, 6, ports, PortId(1)));
        assert_ne!(connection_hash(&one, 3), connection_hash(&other, 3));
    }

    #[test]
    fn a_key_of_words_has_the_hash_of_the_key() {
        for number in 0..1000_u64 {
            let key = FlowKey::v4_of_words(
                number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                number.wrapping_mul(0xbf58_476d_1ce4_e5b9) & 0xffff_00ff_ffff_ffff | 4 << 40,
            );
            let addresses = word(key.source_bytes(), 0) | word(key.destination_bytes(), 0) << 32;
            let hash = FlowHash::new(number);
            let last = key.last_word() & 0xffff_ffff_ffff;
            assert_eq!(hash.of_both4(addresses, last, hash.of_port(key.port)), hash.of_both(&key));
        }
    }

    #[test]
    fn base_record_has_the_hash_of_its_flow() {
        let hash = FlowHash::new(7);
        assert_eq!(hash.with_variant(99, 0), 99);
        let variants: HashSet<u64> = (0..1000).map(|variant| hash.with_variant(99, variant)).collect();
        assert_eq!(variants.len(), 1000);
    }

    /// Distributes keys with consecutive numbers, as a port scan sends them, over 4,096 bins. Chi-squared of
    /// random keys is 4,095 on average, with a standard deviation of 90.
    #[test]
    fn keys_in_sequence_spread_over_all_parts_of_the_hash() {
        let bins = 4096;
        for seed in 0..4 {
            let hash = FlowHash::new(seed);
            for shift in [0, 20, 32, 52] {
                let mut counts = vec![0_u32; bins];
                for number in 0..100_000_u32 {
                    let key = FlowKey::v4(
                        Ipv4Addr::from(0x0a00_0000 + number),
                        Ipv4Addr::new(10, 9, 9, 9),
                        6,
                        (80, 80),
                        PortId(1),
                    );
                    counts[(hash.of(&key) >> shift) as usize % bins] += 1;
                }
                let expected = 100_000.0 / bins as f64;
                let chi: f64 =
                    counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
                assert!((3600.0..4600.0).contains(&chi), "seed {seed}, shift {shift}: {chi}");
            }
        }
    }
}
