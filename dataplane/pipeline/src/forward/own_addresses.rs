//! Invalid source addresses: the router's own addresses, and broadcast addresses of its subnets.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::FixedState;

/// Set of invalid source addresses: the router's own addresses, and broadcast addresses of its subnets.
#[derive(Debug)]
pub(crate) struct OwnAddresses {
    addresses: HashSet<IpAddr, FixedState>,
    /// Bloom filter of the addresses: 64 bits, one hash function. An address whose bit is clear is not in the
    /// set (Bloom, 1970).
    marks: u64,
}

impl OwnAddresses {
    pub fn new(seed: u64) -> Self {
        Self { addresses: HashSet::with_hasher(FixedState::with_seed(seed)), marks: 0 }
    }

    pub fn insert(&mut self, address: IpAddr) {
        self.addresses.insert(address);
        self.marks |= mark(address);
    }

    pub fn remove(&mut self, address: &IpAddr) {
        if self.addresses.remove(address) {
            self.marks = self.addresses.iter().fold(0, |marks, address| marks | mark(*address));
        }
    }

    #[inline]
    pub fn contains(&self, address: &IpAddr) -> bool {
        match *address {
            IpAddr::V4(address) => self.contains4(address),
            IpAddr::V6(address) => self.contains6(address),
        }
    }

    /// Returns whether an IPv4 address is in the set.
    #[inline(always)]
    pub fn contains4(&self, address: Ipv4Addr) -> bool {
        self.is_marked(word4(address)) && self.is_there(address.into())
    }

    /// Returns whether an IPv6 address is in the set.
    #[inline(always)]
    pub fn contains6(&self, address: Ipv6Addr) -> bool {
        self.is_marked(word6(address)) && self.is_there(address.into())
    }

    /// Returns whether an address may be in the set, by its `word`.
    #[inline(always)]
    fn is_marked(&self, word: u64) -> bool {
        self.marks >> bit_of(word) & 1 != 0
    }

    #[cold]
    #[inline(never)]
    fn is_there(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }
}

/// Returns a mask with the Bloom filter bit of an address.
fn mark(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => 1 << bit_of(word4(address)),
        IpAddr::V6(address) => 1 << bit_of(word6(address)),
    }
}

#[inline(always)]
fn word4(address: Ipv4Addr) -> u64 {
    u32::from_ne_bytes(address.octets()).into()
}

#[inline(always)]
fn word6(address: Ipv6Addr) -> u64 {
    let bits = u128::from_ne_bytes(address.octets());
    bits as u64 ^ (bits >> 64) as u64
}

/// Returns the bit of the Bloom filter for an address, 0 to 63. `word`: the address as one word.
#[inline(always)]
fn bit_of(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn own_addresses_equal_a_set(steps in prop::collection::vec((any::<bool>(), 0_u8..40, any::<bool>()), 0..200)) {
            let (mut own, mut twin) = (OwnAddresses::new(7), HashSet::new());
            let address = |number: u8, v6| match v6 {
                false => IpAddr::from([10, 0, number, 1]),
                true => IpAddr::from([0xfd00, 0, 0, u16::from(number), 0, 0, 0, 1]),
            };
            for (add, number, v6) in steps {
                let address = address(number, v6);
                if add {
                    own.insert(address);
                    twin.insert(address);
                } else {
                    own.remove(&address);
                    twin.remove(&address);
                }
            }
            for number in 0..40 {
                for v6 in [false, true] {
                    let address = address(number, v6);
                    prop_assert_eq!(own.contains(&address), twin.contains(&address));
                }
            }
        }
    }
}
