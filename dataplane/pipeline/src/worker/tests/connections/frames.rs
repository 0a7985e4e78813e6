//! Frames of the tests.

use millrace_wire::checksum::checksum;

use super::MAC;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;
/// Length of the Ethernet and IPv4 headers.
const HEADERS: usize = 34;

/// Address and port of the client and the server.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub client: ([u8; 4], u16),
    pub server: ([u8; 4], u16),
}

impl Ends {
    /// Returns the ends of packets from the server.
    pub fn turned(self) -> Self {
        Self { client: self.server, server: self.client }
    }
}

fn frame(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    fragment(source, destination, protocol, payload, 0)
}

/// `fragment`: flags and offset of a fragment.
fn fragment(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8], fragment: u16) -> Vec<u8> {
    let length = (20 + payload.len() as u16).to_be_bytes();
    let [high, low] = fragment.to_be_bytes();
    let head = [0x45, 0, length[0], length[1], 0, 7, high, low, 64, protocol, 0, 0];
    let mut header = [&head[..], &source, &destination].concat();
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&MAC.0[..], &[2, 0, 0, 0, 0, 9, 8, 0], &header, payload].concat()
}

/// Returns a TCP segment without data. `numbers`: sequence number and acknowledgment.
pub fn tcp(ends: Ends, flags: u8, numbers: (u32, u32)) -> Vec<u8> {
    let mut segment = [ends.client.1.to_be_bytes(), ends.server.1.to_be_bytes()].concat();
    segment.extend(numbers.0.to_be_bytes());
    segment.extend(numbers.1.to_be_bytes());
    segment.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    frame(ends.client.0, ends.server.0, 6, &segment)
}

/// Returns a UDP datagram with `data` bytes of data.
pub fn udp(ends: Ends, data: usize) -> Vec<u8> {
    let length = (8 + data as u16).to_be_bytes();
    let ports = [ends.client.1.to_be_bytes(), ends.server.1.to_be_bytes()].concat();
    let datagram = [&ports[..], &length, &[0; 2], &vec![0; data]].concat();
    frame(ends.client.0, ends.server.0, 17, &datagram)
}

/// Returns an echo request (type 8) or reply (type 0).
pub fn echo(ends: Ends, kind: u8, data: usize) -> Vec<u8> {
    let message = [&[kind, 0, 0, 0, 0, 77, 0, 1][..], &vec![0; data]].concat();
    frame(ends.client.0, ends.server.0, 1, &message)
}

/// Returns an error of a router, host unreachable, to the source of the quoted packet.
pub fn quoting(router: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    let source = quoted[26..30].try_into().unwrap();
    let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &quoted[14..HEADERS + 8]].concat();
    frame(router, source, 1, &message)
}

/// Returns the two fragments of a frame with more than 800 bytes behind the IPv4 header.
pub fn fragments(whole: &[u8]) -> [Vec<u8>; 2] {
    let (source, destination) = (whole[26..30].try_into().unwrap(), whole[30..34].try_into().unwrap());
    let (first, second) = whole[HEADERS..].split_at(800);
    [
        fragment(source, destination, whole[23], first, 0x2000),
        fragment(source, destination, whole[23], second, 100),
    ]
}
