//! Packets and filters as words, which are compared under masks; for tuple space search and the cutting tree.

use millrace_packet::Family;
use millrace_wire::Protocol;

use crate::candidate::{EXCEPTIONS_SHIFT, PORTS_UNKNOWN};
use crate::{Candidate, CompiledFilter, PortRange};

/// Flag for known transport ports. It is in *meta*, the upper half of the last word of a key, which also
/// holds the protocol (bits 0 to 7) and the ingress port (bits 16 to 31).
const PORTS_KNOWN: u32 = 1 << 8;

/// [`PORTS_KNOWN`] for each protocol with ports, 0 for other protocols.
const HAVING_PORTS: [u32; 256] = {
    let (mut known, mut protocol) = ([0; 256], 0);
    while protocol < 256 {
        known[protocol] = if Protocol(protocol as u8).has_ports() { PORTS_KNOWN } else { 0 };
        protocol += 1;
    }
    known
};

/// Packet as numbers: `words` holds source and destination address, then one word of *meta* (protocol,
/// ingress port and a flag) and [`varying`](Candidate::varying). `ports` holds both ports.
///
/// `W` is the number of 64-bit words: 2 for IPv4, where both addresses share a word, and 5 for IPv6, where
/// each address takes two words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key<const W: usize> {
    pub words: [u64; W],
    /// Source port in the upper half, destination port in the lower half.
    pub ports: u32,
}

/// Number of words of an IPv4 key.
pub(super) const V4: usize = 2;
/// Number of words of an IPv6 key.
pub(super) const V6: usize = 5;

/// Returns the family whose keys have `words` words.
pub(super) const fn family(words: usize) -> Family {
    if words == V4 { Family::V4 } else { Family::V6 }
}

/// Packs two addresses (IPv4 in the upper 32 bits), *meta* and *varying* into words.
#[inline(always)]
fn pack<const W: usize>(source: u128, destination: u128, meta: u32, varying: u32) -> [u64; W] {
    let mut words = [0; W];
    if W == V4 {
        words[0] = (source >> 96 << 32 | destination >> 96) as u64;
    } else {
        let addresses = [source >> 64, source, destination >> 64, destination];
        for (word, bits) in words.iter_mut().zip(addresses) {
            *word = bits as u64;
        }
    }
    words[W - 1] = u64::from(meta) << 32 | u64::from(varying);
    words
}

impl<const W: usize> Key<W> {
    /// Key of zeros, a placeholder for unused places.
    pub const ZERO: Self = Self { words: [0; W], ports: 0 };

    /// Creates the key of a packet, which must belong to this family.
    #[inline(always)]
    pub fn of(candidate: &Candidate) -> Self {
        let key = &candidate.key;
        let address = |bytes: &[u8; 16]| u128::from_be_bytes(*bytes);
        let unread = candidate.exceptions.bits() & PORTS_UNKNOWN.bits();
        // Computes `Candidate::ports_known` without a branch.
        let known = if unread == 0 { HAVING_PORTS[usize::from(key.protocol)] } else { 0 };
        let meta = u32::from(key.protocol) | known | u32::from(key.port.0) << 16;
        Self {
            words: pack(
                address(key.source_bytes()),
                address(key.destination_bytes()),
                meta,
                candidate.varying(),
            ),
            ports: u32::from(key.source_port) << 16 | u32::from(key.destination_port),
        }
    }
}

/// Conditions of a filter, for packets of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Condition<const W: usize> {
    value: [u64; W],
    mask: [u64; W],
    /// Lowest source port and lowest destination port.
    first: [u16; 2],
    /// Highest minus lowest port, for source and destination ports.
    width: [u16; 2],
}

impl<const W: usize> Condition<W> {
    /// Returns the conditions of `filter` on packets of this family; `None` if the filter matches only
    /// packets of the other family.
    pub fn of(filter: &CompiledFilter) -> Option<Self> {
        let other = |own: Option<Family>| own.is_some_and(|own| own != family(W));
        if other(filter.source.family) || other(filter.destination.family) {
            return None;
        }
        let (source, destination) = (filter.source_port, filter.destination_port);
        let (mut meta, mut under) = (0, 0);
        if let Some(protocol) = filter.protocol {
            meta |= u32::from(protocol);
            under |= 0xff;
        }
        if let Some(port) = filter.incoming {
            meta |= u32::from(port.0) << 16;
            under |= 0xffff << 16;
        }
        if !source.is_any() || !destination.is_any() {
            meta |= PORTS_KNOWN;
            under |= PORTS_KNOWN;
        }
        let ends = |range| match range {
            PortRange::Any => (0, u16::MAX),
            PortRange::Ports { first, last } => (first, last - first),
        };
        let (from, to) = (ends(source), ends(destination));
        Some(Self {
            value: pack(filter.source.value, filter.destination.value, meta, filter.varying_value),
            mask: pack(filter.source.mask, filter.destination.mask, under, filter.varying_mask),
            first: [from.0, to.0],
            width: [from.1, to.1],
        })
    }

    /// Whether a packet meets all conditions.
    #[inline(always)]
    pub fn matches(&self, key: &Key<W>) -> bool {
        let mut differs = 0;
        for index in 0..W {
            differs |= (key.words[index] ^ self.value[index]) & self.mask[index];
        }
        let outside =
            |port: u32, side: usize| (port as u16).wrapping_sub(self.first[side]) > self.width[side];
        (differs == 0) & !outside(key.ports >> 16, 0) & !outside(key.ports, 1)
    }

    /// Returns required value and mask of the key's words.
    pub fn words(&self) -> (&[u64; W], &[u64; W]) {
        (&self.value, &self.mask)
    }

    /// Returns the lowest and highest source port, then the lowest and highest destination port.
    pub fn ports(&self) -> [(u16, u16); 2] {
        [0, 1].map(|side| (self.first[side], self.first[side] + self.width[side]))
    }

    /// Returns a key that meets the condition in all bits of the condition's tuple.
    pub fn example(&self) -> Key<W> {
        Key { words: self.value, ports: u32::from(self.first[0]) << 16 | u32::from(self.first[1]) }
    }

    /// Returns the bits of the key in which all matching packets agree.
    pub fn tuple(&self) -> Tuple<W> {
        let agree = |side: usize| {
            let (first, last) = (self.first[side], self.first[side] + self.width[side]);
            let length = (first ^ last).leading_zeros();
            u32::from(u16::MAX.checked_shl(16 - length).unwrap_or(0))
        };
        Tuple { words: self.mask, ports: agree(0) << 16 | agree(1) }
    }
}

/// Set of key bits. In tuple space search, each hash table belongs to one tuple, and is keyed by these bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Tuple<const W: usize> {
    pub words: [u64; W],
    pub ports: u32,
}

impl<const W: usize> Tuple<W> {
    /// Empty set of bits.
    pub const NONE: Self = Self { words: [0; W], ports: 0 };

    /// Returns a set of leading address bits: `source` of the source, `destination` of the destination.
    fn prefixes(source: u32, destination: u32) -> Self {
        let mask = |length: u32| u128::MAX.checked_shl(128 - length).unwrap_or(0);
        Self { words: pack(mask(source), mask(destination), 0, 0), ports: 0 }
    }

    /// Returns the number of source address bits and of destination address bits.
    pub fn lengths(&self) -> (u32, u32) {
        let bits = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum();
        match W {
            V4 => ((self.words[0] >> 32).count_ones(), (self.words[0] as u32).count_ones()),
            _ => (bits(&self.words[..2]), bits(&self.words[2..4])),
        }
    }

    /// Whether this set includes all bits of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        let words = self.words.iter().zip(&other.words).all(|(own, other)| other & !own == 0);
        words && other.ports & !self.ports == 0
    }

    /// Returns the set with fewer bits: rounds each number of address bits down to the next number in
    /// `ladder`, and keeps the bits of a port only if all of them are in the set. Drops the flags for known
    /// ports, too.
    pub fn rounded(&self, ladder: &[u32]) -> Self {
        let step = |own: u32| ladder.iter().copied().filter(|step| *step <= own).max().unwrap_or(0);
        let (source, destination) = self.lengths();
        let mut rounded = Self::prefixes(step(source), step(destination));
        // Drop the flags for known ports. Every filter with a condition on ports has them, so they hardly
        // separate filters.
        let known = u64::from(PORTS_KNOWN) << 32 | u64::from(PORTS_UNKNOWN.bits()) << EXCEPTIONS_SHIFT;
        rounded.words[W - 1] = self.words[W - 1] & !known;
        for half in [0xffff, 0xffff << 16] {
            if self.ports & half == half {
                rounded.ports |= half;
            }
        }
        rounded
    }

    /// Returns the address bits of this set.
    pub fn addresses(&self) -> Self {
        let mut words = self.words;
        words[W - 1] = 0;
        Self { words, ports: 0 }
    }

    /// Returns the number of bits.
    pub fn bits(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum::<u32>() + self.ports.count_ones()
    }

    /// Returns a hash of these bits of a key.
    #[inline(always)]
    pub fn hash(&self, key: &Key<W>) -> u32 {
        let mut sum = u64::from(key.ports & self.ports).wrapping_mul(FACTORS[W]);
        for ((word, mask), factor) in key.words.iter().zip(&self.words).zip(FACTORS) {
            sum = sum.wrapping_add((word & mask).wrapping_mul(factor));
        }
        // Keep the upper bits of the sum: they depend on all bits of the key, unlike the lower bits.
        ((sum ^ sum >> 32).wrapping_mul(FACTORS[W]) >> 32) as u32
    }
}

/// Odd constants without a pattern: the initial values of SHA-512 (fractional digits of the square roots of
/// 2, 3, 5, 7, 11, 13), made odd.
const FACTORS: [u64; 6] = [
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filter::tests::{any_candidate, any_filter, resolve};

    fn matches<const W: usize>(filter: &CompiledFilter, candidate: &Candidate) -> Option<bool> {
        (candidate.key.family() == family(W))
            .then(|| Condition::<W>::of(filter).is_some_and(|own| own.matches(&Key::of(candidate))))
    }

    fn agrees<const W: usize>(filter: &CompiledFilter, candidate: &Candidate) -> bool {
        let Some(condition) = Condition::<W>::of(filter) else { return true };
        let key = Key::of(candidate);
        let tuple = condition.tuple();
        candidate.key.family() != family(W)
            || !condition.matches(&key)
            || [tuple, tuple.rounded(&[8, 31, 127])]
                .into_iter()
                .all(|tuple| tuple.hash(&key) == tuple.hash(&condition.example()))
    }

    proptest! {
        #[test]
        fn words_match_as_the_filter_does(filter in any_filter(), candidate in any_candidate()) {
            let filter = filter.compile(resolve).unwrap();
            let found = matches::<V4>(&filter, &candidate).or_else(|| matches::<V6>(&filter, &candidate));
            prop_assert_eq!(found, Some(filter.matches(&candidate)));
        }

        #[test]
        fn matching_keys_agree_with_the_example_in_their_tuple_bits(
            filter in any_filter(), candidate in any_candidate(),
        ) {
            let filter = filter.compile(resolve).unwrap();
            prop_assert!(agrees::<V4>(&filter, &candidate) && agrees::<V6>(&filter, &candidate));
        }
    }

    #[test]
    fn port_range_yields_the_common_bits_of_its_ports() {
        let tuple = |text| Condition::<V4>::of(&crate::filter::tests::compiled(text)).unwrap().tuple().ports;
        assert_eq!(tuple("sport 7 dport 1024-1535"), 0xffff_fe00);
        assert_eq!(tuple("dport 1024-65535"), 0);
        assert_eq!(tuple("sport 0-65535"), 0);
        assert_eq!(tuple("src 1.2.3.4"), 0);
    }

    #[test]
    fn addresses_are_rounded_down_to_a_step() {
        let full = Condition::<V4>::of(&crate::filter::tests::compiled(
            "src 1.2.3.4 dst 1.2.3.0/27 proto udp dport 7",
        ));
        let tuple = full.unwrap().tuple();
        let rounded = tuple.rounded(&[8, 24, 28]);
        let meta = 0xff << 32;
        assert_eq!(rounded, Tuple { words: [0xffff_fff0_ffff_ff00, meta], ports: 0xffff });
        assert!(tuple.covers(&rounded) && !rounded.covers(&tuple));
        assert_eq!(tuple.rounded(&[30]).lengths(), (30, 0));
    }
}
