//! Receive and parse stages in one, for plain frames. A plain frame is Ethernet with at most one VLAN tag,
//! and IPv4 without options or IPv6 without extension headers. It is no fragment, has a TTL above 1, carries
//! TCP or UDP, and lies in a single memory frame.
//!
//! The reader doesn't change other frames, or frames that fail any check. It leaves them to
//! [`receive`](crate::ingress::receive) and [`parse`](mod@crate::parse). A plain frame gets the same fate,
//! annotations and flow key as from these two stages.

use std::net::Ipv4Addr;

use millrace_classify::{FlowTable, NearKey};
use millrace_packet::{BATCH_SIZE, Exceptions, Family, FlowKey, Opened, Packet};
use millrace_units::{Amount, PortId};
use millrace_wire::EtherType;
use millrace_wire::checksum::is_valid_header;

use crate::parse::tags::Tags;
use crate::ports::{DeviceId, PortTable};
use crate::work::{Alike, Bits, BriefReading, Work};

const LINK: usize = 14;
const TAGGED: usize = LINK + 4;
/// Length in bytes of the shortest plain frame: IPv4 and UDP without a tag.
const SHORTEST: usize = LINK + 20 + 8;
/// EtherTypes in network byte order, read as little-endian words.
const IPV4: u16 = EtherType::IPV4.0.swap_bytes();
const IPV6: u16 = EtherType::IPV6.0.swap_bytes();
const VLAN: u16 = EtherType::VLAN.0.swap_bytes();
/// Mask of the EtherType and the byte after it, in a little-endian word that starts at the EtherType.
const TYPE_AND_FIRST: u32 = 0xff_ffff;
/// Value of the three bytes of [`TYPE_AND_FIRST`] for IPv4 without options.
const PLAIN_IPV4: u32 = IPV4 as u32 | 0x45 << 16;
/// Address family in the last word of an IPv4 flow key.
const V4: u64 = (Family::V4 as u64) << 40;
/// Mask of the more-fragments bit and the fragment offset in the second word of an IPv4 header
/// (identification, flags, offset), read as a little-endian word.
const NOT_WHOLE: u32 = 0xff3f_0000;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Mask of the destination address and the source's group bit (multicast) in the first 8 bytes of a frame.
const DESTINATION_AND_GROUP: u64 = 0x1_ffff_ffff_ffff;
/// MAC address word that no frame's destination equals.
const NOBODY: u64 = u64::MAX;

/// Distance in packets between the prefetch of a packet's first bytes and their reading. Packet metadata
/// needs no prefetch: reception has just written it.
const FRAMES_AHEAD: usize = 6;

/// Ingress port, with the values that each plain frame is checked against.
#[derive(Clone, Copy)]
struct Arrival {
    port: PortId,
    /// MAC address of the port in the low 48 bits, in the byte order of a frame's first 8 bytes; [`NOBODY`]
    /// if the port accepts no plain frames.
    mac: u64,
    mtu: usize,
    /// Last word of an IPv4 flow key whose only non-zero fields are this ingress port and the family.
    last: u64,
    /// Contribution of the ingress port to the hashes of flow keys.
    hash: u64,
}

impl Arrival {
    /// Returns the port that receives a device's frames with the given VLAN id; 0 means untagged.
    fn at(ports: &PortTable, device: DeviceId, vlan: u16, flows: &FlowTable) -> Self {
        let tags = if vlan == 0 { Tags::NONE } else { Tags::single(vlan) };
        let mut arrival = Self { port: PortId::NONE, mac: NOBODY, mtu: 0, last: 0, hash: 0 };
        let Some(port) = ports.by_tags(device, tags) else { return arrival };
        let Some(settings) = ports.get(port).map(|entry| &entry.settings) else { return arrival };
        if settings.up && settings.mac.is_unicast() {
            let [a, b, c, d, e, f] = settings.mac.0;
            let nowhere = Ipv4Addr::UNSPECIFIED;
            arrival = Self {
                port,
                mac: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
                mtu: settings.mtu.into(),
                last: FlowKey::v4(nowhere, nowhere, 0, (0, 0), port).last_word(),
                hash: flows.hash_of_port(port),
            };
        }
        arrival
    }

    /// Returns whether a frame with these first bytes is addressed to the port, and has a non-zero unicast
    /// source address.
    #[inline(always)]
    fn is_addressed(&self, start: &[u8; SHORTEST]) -> bool {
        // The first word holds the destination and two bytes of the source; the second word holds all six
        // bytes of the source.
        word(start, 0) & DESTINATION_AND_GROUP == self.mac && word(start, 6) << 16 != 0
    }

    /// Adds packets and bytes to the receive counters of the port.
    fn count(&self, ports: &mut PortTable, amount: Amount) {
        if let Some(entry) = ports.get_mut(self.port) {
            entry.count.rx_packets += amount.packets;
            entry.count.rx_bytes += amount.bytes;
        }
    }
}

/// Arrays for the results of reading a batch, by packet index.
struct Notes<'a> {
    nears: &'a mut [NearKey; BATCH_SIZE],
    keys: &'a mut [FlowKey; BATCH_SIZE],
    hashes: &'a mut [u64; BATCH_SIZE],
}

/// Counts of the plain frames in a batch.
#[derive(Default)]
struct Reading {
    /// Packets and bytes of the plain frames.
    amount: Amount,
    /// Number of IPv6 packets among the plain frames.
    v6: usize,
}

/// Reads the plain frames of a batch from `device` in [brief](BriefReading::brief), with the results of the
/// receive and parse stages. Adds the indices of all other frames to `others`. Prefetches the flow table's
/// buckets if the router has a flow table.
pub(super) fn read_plain(
    ports: &mut PortTable,
    device: DeviceId,
    work: &mut Work,
    (flows, remembers): (&FlowTable, bool),
    others: &mut Vec<u16>,
) {
    let arrival = Arrival::at(ports, device, 0, flows);
    let Work { packets, reading: BriefReading { nears, .. }, keys, hashes, .. } = work;
    let notes = Notes { nears: nears.all_mut(), keys: keys.all_mut(), hashes: hashes.all_mut() };
    let Reading { amount, v6 } = match remembers {
        true => read_untagged::<true>(packets, arrival, notes, flows, others),
        false => read_untagged::<false>(packets, arrival, notes, flows, others),
    };
    arrival.count(ports, amount);
    if others.is_empty() {
        work.reading.alike = if v6 == 0 { Alike::Plain4 } else { Alike::Plain };
    } else {
        read_tagged(ports, device, work, flows, others);
    }
    work.reading.brief = Bits::of(work.packets.len());
    others.iter().for_each(|index| _ = work.reading.brief.take(usize::from(*index)));
}

/// Reads the untagged plain frames of a batch that `arrival` received. With `FETCH`, prefetches the flow
/// table's buckets.
#[inline(never)]
fn read_untagged<const FETCH: bool>(
    packets: &mut [Packet],
    arrival: Arrival,
    notes: Notes<'_>,
    flows: &FlowTable,
    others: &mut Vec<u16>,
) -> Reading {
    let Notes { nears, keys, hashes } = notes;
    let (mut bytes, mut v6, before) = (0, 0, others.len());
    let count = packets.len().min(BATCH_SIZE);
    let packets = &mut packets[..count];
    for index in 0..count {
        if let Some(ahead) = packets.get(index + FRAMES_AHEAD) {
            ahead.prefetch();
        }
        let place = (&mut nears[index], &mut keys[index], &mut hashes[index]);
        match arrival.read::<FETCH>(&mut packets[index], place, flows, &mut v6) {
            Some(length) => bytes += length as u64,
            None => others.push(index as u16),
        }
    }
    Reading { amount: Amount { packets: (count - (others.len() - before)) as u64, bytes }, v6 }
}

/// Reads the tagged plain frames among `others`, and removes the indices of these frames from `others`.
#[inline(never)]
fn read_tagged(
    ports: &mut PortTable,
    device: DeviceId,
    work: &mut Work,
    flows: &FlowTable,
    others: &mut Vec<u16>,
) {
    // VLAN id and port of the previous frame, which the next frame usually has too, and the amount read so
    // far.
    let mut last: Option<(u16, Arrival, Amount)> = None;
    others.retain(|index| {
        let index = usize::from(*index);
        let tag = work.packets.at(index).data().first_chunk().and_then(tag_of);
        let Some(tag) = tag else { return true };
        if last.is_none_or(|(vlan, ..)| vlan != tag) {
            if let Some((_, arrival, amount)) = last {
                arrival.count(ports, amount);
            }
            last = Some((tag, Arrival::at(ports, device, tag, flows), Amount::default()));
        }
        let Some((_, arrival, amount)) = &mut last else { return true };
        let place = (&mut work.reading.nears[index], &mut work.keys[index], &mut work.hashes[index]);
        let length = arrival.read_tagged(work.packets.at_mut(index), place, flows);
        length.map(|length| *amount += Amount::packet(length)).is_none()
    });
    if let Some((_, arrival, amount)) = last {
        arrival.count(ports, amount);
    }
}

/// Returns the VLAN id of a frame with one tag; `None` for other frames, and if the id is 0.
fn tag_of(start: &[u8; SHORTEST]) -> Option<u16> {
    let tag = half(start, 14).swap_bytes() & 0xfff;
    (half(start, 12) == VLAN && tag != 0).then_some(tag)
}

/// Places for the results of one packet: compact flow key, flow key, hash.
type Place<'a> = (&'a mut NearKey, &'a mut FlowKey, &'a mut u64);

impl Arrival {
    /// Reads an untagged frame, and returns its length in bytes; `None` if it is not plain. Adds 1 to `v6`
    /// for an IPv6 packet.
    #[inline(always)]
    fn read<const FETCH: bool>(
        &self,
        packet: &mut Packet,
        place: Place<'_>,
        flows: &FlowTable,
        v6: &mut usize,
    ) -> Option<usize> {
        let opened = packet.open();
        let start = opened.data().first_chunk::<SHORTEST>()?;
        if !self.is_addressed(start) {
            return None;
        }
        if quarter(start, 12) & TYPE_AND_FIRST == PLAIN_IPV4 {
            return self.v4::<LINK, FETCH>(opened, place, flows);
        }
        if half(start, 12) != IPV6 {
            return None;
        }
        *v6 += 1;
        self.v6::<LINK, FETCH>(opened, place, flows)
    }

    /// Reads a tagged frame, and returns its length in bytes; `None` if it is not plain.
    fn read_tagged(&self, packet: &mut Packet, place: Place<'_>, flows: &FlowTable) -> Option<usize> {
        let opened = packet.open();
        let start = opened.data().first_chunk::<SHORTEST>()?;
        if !self.is_addressed(start) {
            return None;
        }
        if quarter(start, 16) & TYPE_AND_FIRST == PLAIN_IPV4 {
            return self.v4::<TAGGED, true>(opened, place, flows);
        }
        if half(start, 16) != IPV6 {
            return None;
        }
        self.v6::<TAGGED, true>(opened, place, flows)
    }

    /// Reads an IPv4 packet without options after a link header of `NETWORK` bytes. Returns the length of the
    /// frame in bytes; `None` if it is not plain.
    #[inline(always)]
    fn v4<const NETWORK: usize, const FETCH: bool>(
        &self,
        packet: Opened<'_>,
        (near, _, hash): Place<'_>,
        flows: &FlowTable,
    ) -> Option<usize> {
        let header = packet.data().get(NETWORK..)?.first_chunk::<28>()?;
        let (length, room) = (packet.data().len(), packet.data().len() - NETWORK);
        let total_len = usize::from(half(header, 2).swap_bytes());
        let (hops, protocol) = (header[8], header[9]);
        // The words are little-endian: the first byte of the header is the lowest byte of the first word.
        let (first, second, third) = (word(header, 0), word(header, 8), word(header, 16));
        let is_plain = quarter(header, 4) & NOT_WHOLE == 0
            && hops > 1
            && total_len <= room
            && room <= self.mtu
            && (protocol == UDP && total_len >= 20 + 8 || protocol == TCP && total_len >= 20 + 20)
            && is_valid_header(first, second, third as u32)
            && packet.is_linear();
        if !is_plain {
            return None;
        }
        let addresses = second >> 32 | third << 32;
        let last = ports_of(third >> 32) | u64::from(protocol) << 32;
        let (of_record, of_flow) = flows.hashes4(addresses, last | V4, self.hash);
        *near = NearKey::v4(addresses, last | self.last);
        *hash = of_record;
        if FETCH {
            flows.prefetch(of_record);
        }
        self.note::<NETWORK>(packet, 20, total_len, of_flow);
        Some(length)
    }

    /// Reads an IPv6 packet without extension headers after a link header of `NETWORK` bytes. Returns the
    /// length of the frame in bytes; `None` if it is not plain.
    #[inline(always)]
    fn v6<const NETWORK: usize, const FETCH: bool>(
        &self,
        packet: Opened<'_>,
        (near, key, hash): Place<'_>,
        flows: &FlowTable,
    ) -> Option<usize> {
        let header = packet.data().get(NETWORK..)?.first_chunk::<48>()?;
        let (length, room) = (packet.data().len(), packet.data().len() - NETWORK);
        let first = word(header, 0);
        let total_len = 40 + usize::from(((first >> 32) as u16).swap_bytes());
        let next_header = (first >> 48) as u8;
        let is_plain = first & 0xf0 == 0x60
            && first >> 56 > 1
            && total_len <= room
            && room <= self.mtu
            && (next_header == UDP && total_len >= 40 + 8 || next_header == TCP && total_len >= 40 + 20)
            && packet.is_linear();
        if !is_plain {
            return None;
        }
        let address =
            |at| (u128::from(word(header, at)) | u128::from(word(header, at + 8)) << 64).to_le_bytes().into();
        let ports = ports_of(word(header, 40));
        let ports = (ports as u16, (ports >> 16) as u16);
        let own = FlowKey::v6(address(8), address(24), next_header, ports, self.port);
        let (of_record, of_flow) = flows.hashes(&own);
        (*near, *key, *hash) = (NearKey::of(&own), own, of_record);
        if FETCH {
            flows.prefetch(of_record);
        }
        self.note::<NETWORK>(packet, 40, total_len, of_flow);
        Some(length)
    }

    /// Sets the annotations of a plain packet. `header_len`: length of the network header in bytes.
    /// `total_len`: length of header and payload in bytes.
    #[inline(always)]
    fn note<const NETWORK: usize>(&self, packet: Opened<'_>, header_len: u16, total_len: usize, hash: u32) {
        let network = NETWORK as u16;
        let annotations = packet.note(NETWORK + total_len, network, network + header_len);
        annotations.port = self.port;
        annotations.exceptions = Exceptions::NONE;
        annotations.hash = hash;
    }
}

/// Returns the ports from the first four bytes of a transport header: the source port in bits 16 to 31, the
/// destination port in bits 0 to 15.
#[inline(always)]
fn ports_of(bytes: u64) -> u64 {
    u64::from((bytes as u32).swap_bytes().rotate_left(16))
}

/// Reads eight bytes at offset `at` as a little-endian word.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default())
}

/// Reads four bytes at offset `at` as a little-endian word.
#[inline(always)]
fn quarter<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default())
}

/// Reads two bytes at offset `at` as a little-endian word.
#[inline(always)]
fn half<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes(bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests;
