//! Packets and filters as words that are compared under masks.

use millrace_packet::Family;

use crate::{Candidate, CompiledFilter, PortRange};

/// Where the words are that are no addresses, counted from the end.
const META: usize = 2;
const VARYING: usize = 1;

/// In the meta word, beside the protocol (bits 0 to 7) and the incoming port (16 to 31): the transport ports are known.
const PORTS_KNOWN: u32 = 1 << 8;

/// A packet: source, destination, meta and varying words, and both ports in one word.
///
/// `W` is 4 for IPv4, where an address is a word, and 10 for IPv6, where it is four.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key<const W: usize> {
    pub words: [u32; W],
    /// Source port above, destination port below.
    pub ports: u32,
}

/// Words in an address.
pub(super) const fn address_words(words: usize) -> usize {
    (words - 2) / 2
}

/// The family whose keys have `words` words.
pub(super) const fn family(words: usize) -> Family {
    if address_words(words) == 1 { Family::V4 } else { Family::V6 }
}

impl<const W: usize> Key<W> {
    /// The packet, which must be of this family.
    #[inline(always)]
    pub fn of(candidate: &Candidate) -> Self {
        let (key, length) = (&candidate.key, address_words(W));
        let mut words = [0; W];
        let known = if candidate.ports_known() { PORTS_KNOWN } else { 0 };
        for index in 0..length {
            words[index] = word(key.source_bytes(), index);
            words[length + index] = word(key.destination_bytes(), index);
        }
        words[W - META] = u32::from(key.protocol) | known | u32::from(key.port.0) << 16;
        words[W - VARYING] = candidate.varying();
        Self { words, ports: u32::from(key.source_port) << 16 | u32::from(key.destination_port) }
    }
}

/// Word `index`, in the order of significance, of an address.
#[inline(always)]
fn word(bytes: &[u8; 16], index: usize) -> u32 {
    let (words, _) = bytes.as_chunks::<4>();
    words.get(index).map_or(0, |word| u32::from_be_bytes(*word))
}

/// A filter's conditions on the packets of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Condition<const W: usize> {
    value: [u32; W],
    mask: [u32; W],
    /// Lowest source and destination port.
    first: [u16; 2],
    /// Highest port less the lowest.
    width: [u16; 2],
}

impl<const W: usize> Condition<W> {
    /// What `filter` asks of this family's packets; `None` when it asks for the other family.
    pub fn of(filter: &CompiledFilter) -> Option<Self> {
        let other = |own: Option<Family>| own.is_some_and(|own| own != family(W));
        if other(filter.source.family) || other(filter.destination.family) {
            return None;
        }
        let length = address_words(W);
        let (mut value, mut mask) = ([0; W], [0; W]);
        for index in 0..length {
            for (place, address) in [(index, &filter.source), (length + index, &filter.destination)] {
                value[place] = word(&address.value.to_be_bytes(), index);
                mask[place] = word(&address.mask.to_be_bytes(), index);
            }
        }
        let (source, destination) = (filter.source_port, filter.destination_port);
        let meta = [
            filter.protocol.map(|protocol| (u32::from(protocol), 0xff)),
            filter.incoming.map(|port| (u32::from(port.0) << 16, 0xffff << 16)),
            (!source.is_any() || !destination.is_any()).then_some((PORTS_KNOWN, PORTS_KNOWN)),
        ];
        for (bits, under) in meta.into_iter().flatten() {
            value[W - META] |= bits;
            mask[W - META] |= under;
        }
        value[W - VARYING] = filter.varying_value;
        mask[W - VARYING] = filter.varying_mask;
        let ends = |range| match range {
            PortRange::Any => (0, u16::MAX),
            PortRange::Ports { first, last } => (first, last - first),
        };
        let (source, destination) = (ends(source), ends(destination));
        Some(Self { value, mask, first: [source.0, destination.0], width: [source.1, destination.1] })
    }

    /// Whether a packet meets them all.
    #[inline(always)]
    pub fn matches(&self, key: &Key<W>) -> bool {
        let mut differs = 0;
        for index in 0..W {
            differs |= (key.words[index] ^ self.value[index]) & self.mask[index];
        }
        let outside =
            |port: u32, side: usize| (port as u16).wrapping_sub(self.first[side]) > self.width[side];
        differs |= u32::from(outside(key.ports >> 16, 0)) | u32::from(outside(key.ports, 1));
        differs == 0
    }

    /// A packet that meets the conditions in all the bits that a tuple can ask for.
    pub fn example(&self) -> Key<W> {
        Key { words: self.value, ports: u32::from(self.first[0]) << 16 | u32::from(self.first[1]) }
    }

    /// All the bits in which packets that meet the conditions agree.
    pub fn tuple(&self) -> Tuple<W> {
        let agree = |side: usize| {
            let (first, last) = (self.first[side], self.first[side] + self.width[side]);
            let length = (first ^ last).leading_zeros();
            u32::from(u16::MAX.checked_shl(16 - length).unwrap_or(0))
        };
        Tuple { words: self.mask, ports: agree(0) << 16 | agree(1) }
    }
}

/// The bits of a key that a table of the space looks at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Tuple<const W: usize> {
    pub words: [u32; W],
    pub ports: u32,
}

impl<const W: usize> Tuple<W> {
    /// No bits.
    pub const NONE: Self = Self { words: [0; W], ports: 0 };

    /// Whether all bits of `other` are among these.
    pub fn covers(&self, other: &Self) -> bool {
        let words = self.words.iter().zip(&other.words).all(|(own, other)| other & !own == 0);
        words && other.ports & !self.ports == 0
    }

    /// These bits, but of both addresses only as many as a step of the `ladder` of prefix lengths says, and nothing
    /// else unless `rest`.
    pub fn rounded(&self, ladder: &[u32], rest: bool) -> Self {
        let mut rounded = if rest { *self } else { Self::NONE };
        let length = address_words(W);
        for start in [0, length] {
            let own: u32 = self.words[start..start + length].iter().map(|word| word.count_ones()).sum();
            let step = ladder.iter().copied().filter(|step| *step <= own).max().unwrap_or(0);
            for index in 0..length {
                rounded.words[start + index] = prefix_word(step, index);
            }
        }
        for half in [0xffff, 0xffff << 16] {
            if rounded.ports & half != half {
                rounded.ports &= !half;
            }
        }
        rounded
    }

    /// A number that all keys have in common that agree in these bits.
    #[inline(always)]
    pub fn hash(&self, key: &Key<W>) -> u32 {
        // NH of UMAC (RFC 4418, section 5.2.2): products of pairs of words, a constant added to each; then one more
        // multiplication, because NH's own lower bits are weak.
        let masked = |index: usize| key.words[index] & self.words[index];
        let mut sum = u64::from(key.ports & self.ports).wrapping_mul(FACTOR);
        for pair in 0..W / 2 {
            let left = masked(2 * pair).wrapping_add(CONSTANTS[2 * pair]);
            let right = masked(2 * pair + 1).wrapping_add(CONSTANTS[2 * pair + 1]);
            sum = sum.wrapping_add(u64::from(left) * u64::from(right));
        }
        let product = u128::from(sum ^ FACTOR) * u128::from(LAST_FACTOR);
        (product >> 48) as u32
    }
}

/// Word `index` of the mask of a prefix.
pub(super) fn prefix_word(length: u32, index: usize) -> u32 {
    let inside = length.saturating_sub(32 * index as u32).min(32);
    u32::MAX.checked_shl(32 - inside).unwrap_or(0)
}

/// Odd numbers without a pattern: the first digits of the golden ratio, and of the square root of 2.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const LAST_FACTOR: u64 = 0x6a09_e667_f3bc_c909;
/// The first words of SHA-256's table: digits of cube roots.
const CONSTANTS: [u32; 10] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
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
            || [(true, true), (false, true), (false, false)].into_iter().all(|(exact, rest)| {
                let tuple = if exact { tuple } else { tuple.rounded(&[8, 31, 127], rest) };
                tuple.hash(&key) == tuple.hash(&condition.example())
            })
    }

    proptest! {
        #[test]
        fn words_match_as_the_filter_does(filter in any_filter(), candidate in any_candidate()) {
            let filter = filter.compile(resolve).unwrap();
            let found = matches::<4>(&filter, &candidate).or_else(|| matches::<10>(&filter, &candidate));
            prop_assert_eq!(found, Some(filter.matches(&candidate)));
        }

        #[test]
        fn what_matches_agrees_with_the_example_in_the_bits_of_its_tuples(
            filter in any_filter(), candidate in any_candidate(),
        ) {
            let filter = filter.compile(resolve).unwrap();
            prop_assert!(agrees::<4>(&filter, &candidate) && agrees::<10>(&filter, &candidate));
        }
    }

    #[test]
    fn a_range_of_ports_gives_the_bits_that_all_its_ports_share() {
        let tuple = |text| Condition::<4>::of(&crate::filter::tests::compiled(text)).unwrap().tuple().ports;
        assert_eq!(tuple("sport 7 dport 1024-1535"), 0xffff_fe00);
        assert_eq!(tuple("dport 1024-65535"), 0);
        assert_eq!(tuple("sport 0-65535"), 0);
        assert_eq!(tuple("src 1.2.3.4"), 0);
    }

    #[test]
    fn addresses_are_rounded_down_to_a_step() {
        let full = Condition::<4>::of(&crate::filter::tests::compiled(
            "src 1.2.3.4 dst 1.2.3.0/27 proto udp dport 7",
        ));
        let tuple = full.unwrap().tuple();
        let rounded = tuple.rounded(&[0, 8, 24, 28], false);
        assert_eq!(rounded, Tuple { words: [0xffff_fff0, 0xffff_ff00, 0, 0], ports: 0 });
        assert!(tuple.covers(&rounded) && !rounded.covers(&tuple));
        assert_eq!(tuple.rounded(&[0, 8, 24, 28], true).ports, 0xffff);
    }
}
