//! Shapes: filters as sets of packets, which can be compared and subtracted.

use millrace_packet::Family;
use millrace_wire::Protocol;

use crate::candidate::{EXCEPTIONS_SHIFT, FLAGS_KNOWN, FLAGS_SHIFT, PORTS_UNKNOWN};
use crate::{CompiledFilter, PortRange};

/// Filter as a set of packets: conditions on bits, and port ranges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Families of the packets: bit 0 for IPv4, bit 1 for IPv6.
    pub families: u8,
    /// Condition on the varying word, the protocol, the ingress port, and the flag for known ports.
    pub other: Bits<u64>,
    pub source: Bits<u128>,
    pub destination: Bits<u128>,
    pub ports: [(u16, u16); 2],
}

/// Condition on bits: the bits of `mask` must equal those of `value`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits<B> {
    pub value: B,
    pub mask: B,
}

pub(super) const PROTOCOL_SHIFT: u32 = 32;
pub(super) const INCOMING_SHIFT: u32 = 40;
pub(super) const PORTS_KNOWN: u64 = 1 << 56;
/// Bit for known TCP flags. The bits of the flags follow.
pub(super) const FLAGS_KNOWN_BIT: u64 = FLAGS_KNOWN as u64;
pub(super) const FLAG_BITS: u64 = 0xff << FLAGS_SHIFT;
pub(super) const NO_PORTS: u64 = (PORTS_UNKNOWN.bits() as u64) << EXCEPTIONS_SHIFT;

impl Bits<u64> {
    fn require(&mut self, value: u64, mask: u64) {
        self.value |= value;
        self.mask |= mask;
    }
}

macro_rules! relations {
    ($word:ty) => {
        impl Bits<$word> {
            #[inline]
            fn covers(&self, other: &Self) -> bool {
                (self.mask & !other.mask) | ((self.value ^ other.value) & self.mask) == 0
            }

            #[inline]
            fn overlaps(&self, other: &Self) -> bool {
                (self.value ^ other.value) & self.mask & other.mask == 0
            }

            /// Adds to this condition the highest bit that `other` has a condition on and that this condition
            /// lacks. Returns a copy of this condition that requires the opposite value of the bit. Returns
            /// `None` if there is no such bit.
            fn split(&mut self, other: &Self) -> Option<Self> {
                let more = other.mask & !self.mask;
                let bit = (more != 0).then(|| 1 << more.ilog2())?;
                let outside = Self { value: self.value | !other.value & bit, mask: self.mask | bit };
                (self.value, self.mask) = (self.value | other.value & bit, self.mask | bit);
                Some(outside)
            }
        }
    };
}

relations!(u64);
relations!(u128);

impl Shape {
    /// Returns the set of packets that a filter matches.
    pub fn of(filter: &CompiledFilter) -> Self {
        let family = filter.source.family.or(filter.destination.family);
        let families = match family {
            None => 0b11,
            Some(Family::V4) => 0b01,
            Some(Family::V6) => 0b10,
        };
        let mut other = Bits { value: filter.varying_value.into(), mask: filter.varying_mask.into() };
        if let Some(protocol) = filter.protocol {
            other.require(u64::from(protocol) << PROTOCOL_SHIFT, 0xff << PROTOCOL_SHIFT);
        }
        if let Some(port) = filter.incoming {
            other.require(u64::from(port.0) << INCOMING_SHIFT, 0xffff << INCOMING_SHIFT);
        }
        let asks_for_ports = !filter.source_port.is_any() || !filter.destination_port.is_any();
        // The ports are also known if the filter requires a protocol with ports, and excludes packets with
        // unreadable ports.
        let has_ports = filter.protocol.is_some_and(|protocol| Protocol(protocol).has_ports());
        let readable = other.mask & NO_PORTS == NO_PORTS && other.value & NO_PORTS == 0;
        if asks_for_ports || has_ports && readable {
            other.require(PORTS_KNOWN, PORTS_KNOWN);
        }
        let ports = [filter.source_port, filter.destination_port].map(|range| match range {
            PortRange::Any => (0, u16::MAX),
            PortRange::Ports { first, last } => (first, last),
        });
        let bits = |address: &crate::filter::Masked| Bits { value: address.value, mask: address.mask };
        Self { families, other, source: bits(&filter.source), destination: bits(&filter.destination), ports }
    }

    /// Whether this set contains every packet of `other`.
    #[inline]
    pub fn covers(&self, other: &Self) -> bool {
        self.other.covers(&other.other)
            && self.source.covers(&other.source)
            && self.destination.covers(&other.destination)
            && other.families & !self.families == 0
            && self.ports.iter().zip(&other.ports).all(|(own, other)| own.0 <= other.0 && other.1 <= own.1)
    }

    /// Whether some packet is in both sets.
    #[inline]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.other.overlaps(&other.other)
            && self.source.overlaps(&other.source)
            && self.destination.overlaps(&other.destination)
            && other.families & self.families != 0
            && self.ports.iter().zip(&other.ports).all(|(own, other)| own.0 <= other.1 && other.0 <= own.1)
            && !(self.lacks_ports() && other.knows_ports() || self.knows_ports() && other.lacks_ports())
    }

    /// Whether all packets of the set have known ports.
    fn knows_ports(&self) -> bool {
        self.other.mask & PORTS_KNOWN != 0
    }

    /// Whether all packets of the set have a protocol without ports.
    fn lacks_ports(&self) -> bool {
        // A piece of a shape may fix only some bits of the protocol.
        let given = self.other.mask >> PROTOCOL_SHIFT & 0xff == 0xff;
        given && !Protocol((self.other.value >> PROTOCOL_SHIFT) as u8).has_ports()
    }

    /// Returns the number of bits that this shape fixes and `other` leaves open. Both shapes must overlap.
    /// The fewer such bits there are, the larger is the share of `other` that this shape covers.
    pub fn bits_beyond(&self, other: &Self) -> u32 {
        let addresses = (self.source.mask & !other.source.mask).count_ones()
            + (self.destination.mask & !other.destination.mask).count_ones();
        let ports = |port: usize| {
            let ((first, last), (from, to)) = (other.ports[port], self.ports[port]);
            let count = |first: u16, last: u16| 1 + u32::from(last) - u32::from(first);
            count(first, last).ilog2() - count(first.max(from), last.min(to)).ilog2()
        };
        let families = u32::from(other.families & !self.families != 0);
        (self.other.mask & !other.other.mask).count_ones() + addresses + ports(0) + ports(1) + families
    }

    /// Returns the packets of this shape that are outside `other`, as disjoint pieces. Both shapes must
    /// overlap.
    pub fn without(&self, other: &Self) -> Vec<Self> {
        let (mut pieces, mut rest) = (Vec::new(), *self);
        if rest.families & !other.families != 0 {
            pieces.push(Self { families: rest.families & !other.families, ..rest });
            rest.families &= other.families;
        }
        while let Some(outside) = rest.other.split(&other.other) {
            pieces.push(Self { other: outside, ..rest });
        }
        while let Some(source) = rest.source.split(&other.source) {
            pieces.push(Self { source, ..rest });
        }
        while let Some(destination) = rest.destination.split(&other.destination) {
            pieces.push(Self { destination, ..rest });
        }
        for port in 0..2 {
            let ((first, last), (from, to)) = (rest.ports[port], other.ports[port]);
            let mut with = |range| {
                let mut piece = rest;
                piece.ports[port] = range;
                pieces.push(piece);
            };
            if first < from {
                with((first, from - 1));
            }
            if last > to {
                with((to + 1, last));
            }
            rest.ports[port] = (first.max(from), last.min(to));
        }
        pieces.retain(|piece| !piece.is_impossible());
        pieces
    }

    /// Whether the conditions contradict each other, so no packet is in the set. Detects only some
    /// contradictions.
    fn is_impossible(&self) -> bool {
        let asked = |bits: u64| (self.other.mask & bits == bits).then_some(self.other.value & bits);
        let flags_unknown = asked(FLAGS_KNOWN_BIT) == Some(0);
        if flags_unknown && self.other.value & FLAG_BITS != 0 {
            return true;
        }
        let (mask, value) =
            [self.other.mask, self.other.value].map(|word| word >> PROTOCOL_SHIFT & 0xff).into();
        let mut protocols = (0..=u8::MAX).filter(|protocol| u64::from(*protocol) & mask == value);
        match asked(PORTS_KNOWN) {
            None => false,
            Some(0) => asked(NO_PORTS) == Some(0) && protocols.all(|protocol| Protocol(protocol).has_ports()),
            Some(_) => {
                self.other.value & NO_PORTS != 0 || !protocols.any(|protocol| Protocol(protocol).has_ports())
            }
        }
    }
}
