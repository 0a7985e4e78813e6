//! Frames that benchmarks send through the measured system.

use std::net::{IpAddr, Ipv4Addr};

use millrace_wire::checksum::Sum;

use super::network::{GENERATOR, GENERATOR_MAC, GENERATOR6, ROUTER_MAC};

/// Length of the shortest Ethernet frame in memory, in bytes. The frame check sequence is only on the wire,
/// where the frame has 64 bytes.
pub(crate) const SHORTEST: usize = 60;

/// UDP packet in an Ethernet frame, padded to the shortest length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpFrame {
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
}

/// Returns a packet from the first host of the test network to an address behind the router.
pub(crate) fn udp(destination: IpAddr) -> UdpFrame {
    UdpFrame {
        source_mac: GENERATOR_MAC,
        destination_mac: ROUTER_MAC,
        source: if destination.is_ipv4() { GENERATOR.into() } else { GENERATOR6.into() },
        destination,
        source_port: 10_000,
        destination_port: 9,
    }
}

impl UdpFrame {
    /// Returns the bytes of the frame at the shortest length.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes_of(SHORTEST)
    }

    /// Returns the bytes of the frame, padded to a given length; unpadded if the frame is longer.
    pub fn bytes_of(&self, length: usize) -> Vec<u8> {
        let length = length.max(SHORTEST);
        let ethernet = [self.destination_mac, self.source_mac].concat();
        let packet = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => self.ipv4(source, destination, length),
            (source, destination) => self.ipv6(octets(source), octets(destination), length),
        };
        [ethernet, packet].concat()
    }

    /// Returns the bytes of the frame with the given TTL; IPv4 only.
    pub fn with_ttl(&self, ttl: u8) -> Vec<u8> {
        let mut frame = self.bytes();
        frame[14 + 8] = ttl;
        frame[14 + 10..14 + 12].fill(0);
        let sum = Sum::new().bytes(&frame[14..34]).checksum();
        frame[14 + 10..14 + 12].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn ipv4(&self, source: Ipv4Addr, destination: Ipv4Addr, length: usize) -> Vec<u8> {
        let udp_length = length - 14 - 20;
        let [high, low] = ((20 + udp_length) as u16).to_be_bytes();
        let mut header = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0];
        header.extend(source.octets());
        header.extend(destination.octets());
        let sum = Sum::new().bytes(&header).checksum();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        let pseudo = Sum::new().bytes(&header[12..20]);
        [vec![8, 0], header, self.udp(udp_length, pseudo)].concat()
    }

    fn ipv6(&self, source: [u8; 16], destination: [u8; 16], length: usize) -> Vec<u8> {
        // The frame has room for at least a UDP header and a few bytes of data.
        let udp_length = length.saturating_sub(14 + 40).max(16);
        let [high, low] = (udp_length as u16).to_be_bytes();
        let mut header = vec![0x60, 0, 0, 0, high, low, 17, 64];
        header.extend(source);
        header.extend(destination);
        let pseudo = Sum::new().bytes(&header[8..40]);
        [vec![0x86, 0xdd], header, self.udp(udp_length, pseudo)].concat()
    }

    fn udp(&self, length: usize, pseudo: Sum) -> Vec<u8> {
        let mut udp =
            [self.source_port, self.destination_port, length as u16, 0].map(u16::to_be_bytes).concat();
        udp.resize(length, 0);
        let sum = pseudo.word(17).word(length as u16).bytes(&udp).checksum();
        udp[6..8].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
        udp
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(source: &str, destination: &str) -> Vec<u8> {
        between(source, destination).bytes()
    }

    fn between(source: &str, destination: &str) -> UdpFrame {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        let (source_mac, destination_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        UdpFrame { source_mac, destination_mac, source, destination, source_port: 1000, destination_port: 9 }
    }

    #[test]
    fn an_ipv4_frame_is_of_the_shortest_length_with_right_checksums() {
        let frame = frame("10.0.0.1", "10.0.0.2");
        assert_eq!((frame.len(), &frame[12..14]), (60, &[8, 0][..]));
        assert!(Sum::new().bytes(&frame[14..34]).folded() == 0xffff);
        let pseudo = Sum::new().bytes(&frame[26..34]).word(17).word(26);
        assert_eq!(pseudo.bytes(&frame[34..]).folded(), 0xffff);
    }

    #[test]
    fn longer_frames_have_the_length_that_was_asked_for() {
        let (source, destination) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let v6 = UdpFrame { source, destination, ..between("10.0.0.1", "10.0.0.2") };
        let v4 = between("10.0.0.1", "10.0.0.2").bytes_of(1514);
        assert_eq!((v4.len(), &v4[16..18]), (1514, &1500_u16.to_be_bytes()[..]));
        assert!(Sum::new().bytes(&v4[14..34]).folded() == 0xffff);
        let v6 = v6.bytes_of(566);
        assert_eq!((v6.len(), &v6[18..20]), (566, &512_u16.to_be_bytes()[..]));
    }

    #[test]
    fn an_ipv6_frame_has_a_right_checksum() {
        let frame = frame("fd00::1", "fd00::2");
        assert_eq!((frame.len(), &frame[12..14]), (70, &[0x86, 0xdd][..]));
        assert_eq!(Sum::new().bytes(&frame[22..54]).word(17).word(16).bytes(&frame[54..]).folded(), 0xffff);
    }
}
