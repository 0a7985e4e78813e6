//! Twin of the forwarding of bpf/flow_cache.h: a slow and simple Rust version, for comparison with the
//! programs.

#[cfg(test)]
use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_packet::OffloadEgress;

use super::KEY_BYTES;
use crate::classifier::dry_runs::ones_complement;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: [u8; 2] = [1, 58];

/// Frame as the flow cache reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    pub key: [u8; KEY_BYTES],
    pub network_length: usize,
    /// Offset of a partial checksum; `None` if the checksum is complete.
    pub partial: Option<usize>,
}

/// Reads the flow of a frame that arrived at `port`, if the flow cache may forward the frame. The packet must
/// be unfragmented and without options. Its protocol must be known, and its TTL must allow forwarding.
pub(crate) fn read(frame: &[u8], port: u16) -> Option<Read> {
    let network = frame.get(14..).filter(|_| is_station(&frame[6..12]))?;
    let (addresses, protocol, transport_at, network_length) = match frame[12..14] {
        [0x08, 0x00] => ipv4(network)?,
        [0x86, 0xdd] => ipv6(network)?,
        _ => return None,
    };
    let padded = frame.len() <= 60 && network.len() > network_length;
    if network.len() != network_length && !padded {
        return None;
    }
    let transport = &network[transport_at..network_length];
    let (ports, partial) = ports(&addresses, protocol, transport)?;
    let partial = partial.map(|at| 14 + transport_at + at);
    let mut key = [0; KEY_BYTES];
    let half = addresses.len() / 2;
    key[..half].copy_from_slice(&addresses[..half]);
    key[16..16 + half].copy_from_slice(&addresses[half..]);
    key[32..34].copy_from_slice(&ports.0.to_ne_bytes());
    key[34..36].copy_from_slice(&ports.1.to_ne_bytes());
    key[36] = protocol;
    key[37] = if half == 4 { 4 } else { 6 };
    key[38..40].copy_from_slice(&port.to_ne_bytes());
    Some(Read { key, network_length, partial })
}

/// Returns whether an address may be the source of a frame: neither a multicast address nor zero.
fn is_station(address: &[u8]) -> bool {
    address[0] & 1 == 0 && address.iter().any(|byte| *byte != 0)
}

type Network = (Vec<u8>, u8, usize, usize);

fn ipv4(network: &[u8]) -> Option<Network> {
    let header = network.get(..20)?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    let plain = header[0] == 0x45 && length >= 20 && fragment == 0 && header[8] > 1;
    let whole = plain && network.len() >= length && ones_complement(header) == 0xffff;
    whole.then(|| (header[12..20].to_vec(), header[9], 20, length))
}

fn ipv6(network: &[u8]) -> Option<Network> {
    let header = network.get(..40)?;
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let plain = header[0] >> 4 == 6 && payload > 0 && header[7] > 1;
    let whole = plain && network.len() >= 40 + payload;
    whole.then(|| (header[8..40].to_vec(), header[6], 40, 40 + payload))
}

/// Returns the ports, and the offset of a partial checksum.
fn ports(addresses: &[u8], protocol: u8, transport: &[u8]) -> Option<((u16, u16), Option<usize>)> {
    let word = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
    if ICMP.contains(&protocol) {
        return Some(((0, 0), None));
    }
    let field = match protocol {
        TCP if transport.len() >= 20 => 16,
        UDP if transport.len() >= 8 => 6,
        _ => return None,
    };
    let length = (transport.len() as u16).to_be_bytes();
    let pseudo = ones_complement(&[addresses, &[0, protocol], &length].concat());
    Some(((word(0), word(2)), (word(field) == pseudo).then_some(field)))
}

/// Returns the frame that the flow cache sends for a received frame.
pub(crate) fn forwarded(frame: &[u8], flow: &OffloadEgress) -> Vec<u8> {
    let (read, mut frame) = (read(frame, 0).expect("a plain packet"), frame.to_vec());
    if let Some(at) = read.partial {
        let transport = if frame[12] == 8 { 34 } else { 54 };
        // The checksum field contains the sum of the pseudo-header.
        let sum = !ones_complement(&frame[transport..14 + read.network_length]);
        let sum = if sum == 0 && read.key[36] == UDP { 0xffff } else { sum };
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    frame[..6].copy_from_slice(&flow.destination.0);
    frame[6..12].copy_from_slice(&flow.source.0);
    if frame[12..14] == [0x86, 0xdd] {
        frame[14 + 7] -= 1;
    } else {
        frame[14 + 8] -= 1;
        frame[14 + 10..14 + 12].fill(0);
        let checksum = !ones_complement(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

/// Returns the key of a UDP flow with the ports 4000 and 9, as in the test packets.
#[cfg(test)]
pub(crate) fn udp_key(from: &str, to: &str, port: u16) -> [u8; KEY_BYTES] {
    let addresses = match (from.parse::<Ipv4Addr>(), to.parse::<Ipv4Addr>()) {
        (Ok(from), Ok(to)) => [from.octets(), to.octets()].concat(),
        _ => [from, to].map(|text| text.parse::<Ipv6Addr>().unwrap().octets()).concat(),
    };
    let half = addresses.len() / 2;
    let mut key = [0; KEY_BYTES];
    key[..half].copy_from_slice(&addresses[..half]);
    key[16..16 + half].copy_from_slice(&addresses[half..]);
    key[32..34].copy_from_slice(&4000_u16.to_ne_bytes());
    key[34..36].copy_from_slice(&9_u16.to_ne_bytes());
    (key[36], key[37]) = (UDP, if half == 4 { 4 } else { 6 });
    key[38..40].copy_from_slice(&port.to_ne_bytes());
    key
}
