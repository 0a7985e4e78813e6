//! Reference implementation of all route tables, a list of prefixes with linear search; and random operations
//! for tests.

use proptest::prelude::*;

use super::PrefixBits;

#[derive(Default)]
pub(crate) struct LinearOracle<A>(pub Vec<(A, u8, u32)>);

impl<A: PrefixBits> LinearOracle<A> {
    pub fn remove(&mut self, address: A, length: u8) -> Option<u32> {
        let at = self.0.iter().position(|(a, l, _)| (*a, *l) == (address.masked(length), length))?;
        Some(self.0.remove(at).2)
    }

    pub fn insert(&mut self, address: A, length: u8, value: u32) -> Option<u32> {
        let old = self.remove(address, length);
        self.0.push((address.masked(length), length, value));
        old
    }

    pub fn lookup_prefix(&self, address: A) -> Option<(A, u8, u32)> {
        let matches = self.0.iter().filter(|(a, l, _)| address.masked(*l) == *a);
        matches.max_by_key(|(_, l, _)| *l).copied()
    }
}

/// Returns random operations with few different octets, so that prefixes nest and repeat. Their lengths
/// include 0 and the maximum.
pub(crate) fn operations4() -> impl Strategy<Value = Vec<(bool, u32, u8, u32)>> {
    let octet = prop::sample::select(vec![0u8, 1, 127, 128, 129, 255]);
    let address = prop::array::uniform4(octet).prop_map(u32::from_be_bytes);
    let length = prop_oneof![Just(0), Just(8), Just(16), Just(24), Just(32), 0u8..=32];
    prop::collection::vec((prop::bool::weighted(0.7), address, length, 0u32..50), 1..40)
}

pub(crate) fn operations6() -> impl Strategy<Value = Vec<(bool, u128, u8, u32)>> {
    let octet = prop::sample::select(vec![0u8, 1, 128, 255]);
    let address = prop::array::uniform16(octet).prop_map(u128::from_be_bytes);
    let near = (address, 0u32..128).prop_map(|(address, shift)| address >> shift);
    let length = prop_oneof![Just(0), Just(48), Just(64), Just(127), Just(128), 0u8..=128];
    prop::collection::vec((prop::bool::weighted(0.7), near, length, 0u32..50), 1..30)
}
