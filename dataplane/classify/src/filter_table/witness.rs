//! Random packets that match a filter. If such a packet matches no better filter, the filter can win.

use millrace_wire::Protocol;

use super::shape::{
    Bits, FLAG_BITS, FLAGS_KNOWN_BIT, INCOMING_SHIFT, NO_PORTS, PORTS_KNOWN, PROTOCOL_SHIFT, Shape,
};

/// Number of random packets that are tried for a filter.
const TRIES: usize = 64;
/// Bits of an IPv4 address in a shape.
const IPV4_BITS: u128 = (u32::MAX as u128) << 96;

/// Tries random packets of `shape`. Returns whether one of them is outside all of `shapes` with the indexes
/// `places`.
pub(super) fn is_alone(shape: &Shape, shapes: &[Shape], places: &[usize]) -> bool {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..TRIES).any(|number| {
        packet(shape, number, &mut random)
            .is_some_and(|packet| !places.iter().any(|place| shapes[*place].covers(&packet)))
    })
}

/// Creates a random packet of a shape; `None` if the random fields contradict each other.
fn packet(shape: &Shape, number: usize, random: &mut Random) -> Option<Shape> {
    let families = match shape.families {
        0b11 => 1 << (number & 1),
        one => one,
    };
    let room = if families == 0b01 { IPV4_BITS } else { u128::MAX };
    let mut address = |bits: &Bits<u128>| {
        let free = random.next() << 64 | random.next();
        Bits { value: bits.value | free & room & !bits.mask, mask: u128::MAX }
    };
    let (source, destination) = (address(&shape.source), address(&shape.destination));
    let ports = shape.ports.map(|(first, last)| {
        let port = first + (random.next() % (u128::from(last - first) + 1)) as u16;
        (port, port)
    });
    let other = other(&shape.other, number, random)?;
    Some(Shape { families, other, source, destination, ports })
}

/// Creates all fields of a packet except addresses and ports. Sets only those exceptions that the shape
/// requires.
fn other(asked: &Bits<u64>, number: usize, random: &mut Random) -> Option<Bits<u64>> {
    let free = |bits: u64, value: u64| value & bits & !asked.mask;
    let protocols = [Protocol::UDP.0, Protocol::TCP.0, Protocol::ICMP.0, random.next() as u8];
    let protocol = u64::from(protocols[number / 2 % 4]);
    let mut value = asked.value & !PORTS_KNOWN;
    value |= free(0xff << PROTOCOL_SHIFT, protocol << PROTOCOL_SHIFT);
    value |= free(0xffff << INCOMING_SHIFT, (random.next() as u64 & 0xffff) << INCOMING_SHIFT);
    let protocol = Protocol((value >> PROTOCOL_SHIFT) as u8);
    if protocol == Protocol::TCP && value & NO_PORTS == 0 {
        // If the transport header of a TCP packet is readable, its flags are known.
        value |= free(FLAGS_KNOWN_BIT, FLAGS_KNOWN_BIT);
        value |= free(FLAG_BITS, random.next() as u64);
    }
    if protocol.has_ports() && value & NO_PORTS == 0 {
        value |= PORTS_KNOWN;
    }
    let has_flags = value & FLAGS_KNOWN_BIT != 0;
    let can_be = (has_flags || value & FLAG_BITS == 0) && (!has_flags || protocol == Protocol::TCP);
    let is_asked_for = (value ^ asked.value) & asked.mask == 0;
    (can_be && is_asked_for).then_some(Bits { value, mask: u64::MAX })
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u128 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper half has the better random bits.
        u128::from(self.0.rotate_left(32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::compiled;

    #[test]
    fn packets_are_of_their_shape_and_show_which_filters_can_win() {
        let shapes: Vec<Shape> = ["src 10.0.0.0/9", "src 10.128.0.0/9", "proto tcp", "proto udp dport 7"]
            .map(|filter| Shape::of(&compiled(filter)))
            .into();
        let alone = |text: &str, places: &[usize]| is_alone(&Shape::of(&compiled(text)), &shapes, places);
        assert!(!alone("src 10.0.0.0/8", &[0, 1]) && alone("src 10.0.0.0/8", &[0, 2, 3]));
        assert!(alone("*", &[0, 1, 2, 3]) && !alone("proto tcp flags syn", &[0, 2]));
        let mut random = Random(7);
        for text in
            ["dst 2001::/16 dport 5-9", "src 10.0.0.0/8 proto tcp flags syn/syn+ack", "exceptions fragment"]
        {
            let shape = Shape::of(&compiled(text));
            let packets: Vec<Shape> =
                (0..TRIES).filter_map(|number| packet(&shape, number, &mut random)).collect();
            assert!(!packets.is_empty() && packets.iter().all(|packet| shape.covers(packet)), "{text}");
        }
    }
}
