//! Stages receive and parse in one, for plain frames: Ethernet with at most one VLAN tag, IPv4 without options or IPv6
//! without extension headers, no fragment, TCP or UDP, hops left, in one piece.
//!
//! Of a frame that is anything else, or that any check of the two stages would object to, nothing is said and nothing is
//! noted on it: [`receive`](crate::receive) and [`parse`](crate::parse) say what it is. What is said of a plain frame is what
//! they would have said.

use std::net::Ipv4Addr;

use millrace_classify::{FlowTable, NearKey};
use millrace_packet::{BATCH_SIZE, Exceptions, Family, FlowKey, Opened, Packet};
use millrace_units::{Amount, PortId};
use millrace_wire::EtherType;
use millrace_wire::checksum::is_valid_header;

use crate::ports::{DeviceId, PortTable};
use crate::tags::Tags;
use crate::work::{Alike, Bits, Work};

const LINK: usize = 14;
const TAGGED: usize = LINK + 4;
/// The shortest plain frame: IPv4 and UDP without a tag.
const SHORTEST: usize = LINK + 20 + 8;
/// EtherTypes as they come, the first byte lowest.
const IPV4: u16 = EtherType::IPV4.0.swap_bytes();
const IPV6: u16 = EtherType::IPV6.0.swap_bytes();
const VLAN: u16 = EtherType::VLAN.0.swap_bytes();
/// An EtherType, and the first byte of what follows, in a word that was read from the frame; and what stands there before an IPv4 header
/// without options.
const TYPE_AND_FIRST: u32 = 0xff_ffff;
const PLAIN_IPV4: u32 = IPV4 as u32 | 0x45 << 16;
/// The family in the last word of the key of an IPv4 packet.
const V4: u64 = (Family::V4 as u64) << 40;
/// Of identification, flags and place in the second word of an IPv4 header, as they come: all that says that it is a fragment.
const NOT_WHOLE: u32 = 0xff3f_0000;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Of the first word of a frame, the destination and the bit that says that the source is a group.
const DESTINATION_AND_GROUP: u64 = 0x1_ffff_ffff_ffff;
/// No address in a frame is this.
const NOBODY: u64 = u64::MAX;

/// How many packets ahead their first bytes are fetched. Their metadata, which say where these are, were written when they were received.
const FRAMES_AHEAD: usize = 6;

/// A port as plain frames are held against it.
#[derive(Clone, Copy)]
struct Arrival {
    port: PortId,
    /// Its address as in the first word of a frame; [`NOBODY`] when nothing plain comes in by it.
    mac: u64,
    mtu: usize,
    /// The last word of the keys of IPv4 packets that come in by it, without what the packet says; and what it adds to their hashes.
    last: u64,
    hash: u64,
}

impl Arrival {
    /// The port of a device whose frames have this VLAN id, 0 for none.
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

    /// Whether a frame that begins so is sent to the port, by a station.
    #[inline(always)]
    fn is_addressed(&self, start: &[u8; SHORTEST]) -> bool {
        // The source's two first bytes are those behind the destination in one word, all six the lowest of another.
        word(start, 0) & DESTINATION_AND_GROUP == self.mac && word(start, 6) << 16 != 0
    }

    /// Counts what came in by it.
    fn count(&self, ports: &mut PortTable, amount: Amount) {
        if let Some(entry) = ports.get_mut(self.port) {
            entry.count.rx_packets += amount.packets;
            entry.count.rx_bytes += amount.bytes;
        }
    }
}

/// Where what is found out of packets is noted.
struct Notes<'a> {
    nears: &'a mut [NearKey; BATCH_SIZE],
    keys: &'a mut [FlowKey; BATCH_SIZE],
    hashes: &'a mut [u64; BATCH_SIZE],
}

/// What a batch turned out to be.
#[derive(Default)]
struct Reading {
    /// Its plain frames.
    amount: Amount,
    /// How many of them are of IPv6.
    v6: usize,
}

/// Reads the plain frames of a batch from `device`, in [brief](Work::brief), and notes on them what the stages note; the numbers of all
/// others are added to `others`. Buckets are fetched where flows are remembered.
pub(crate) fn read_plain(
    ports: &mut PortTable,
    device: DeviceId,
    work: &mut Work,
    (flows, remembers): (&FlowTable, bool),
    others: &mut Vec<u16>,
) {
    let arrival = Arrival::at(ports, device, 0, flows);
    let Work { packets, nears, keys, hashes, .. } = work;
    let notes = Notes { nears: nears.all_mut(), keys: keys.all_mut(), hashes: hashes.all_mut() };
    let Reading { amount, v6 } = match remembers {
        true => read_untagged::<true>(packets, arrival, notes, flows, others),
        false => read_untagged::<false>(packets, arrival, notes, flows, others),
    };
    arrival.count(ports, amount);
    if others.is_empty() {
        work.alike = if v6 == 0 { Alike::Plain4 } else { Alike::Plain };
    } else {
        read_tagged(ports, device, work, flows, others);
    }
    work.brief = Bits::of(work.packets.len());
    others.iter().for_each(|index| _ = work.brief.take(usize::from(*index)));
}

/// Reads those that have no tag, and came in by this port.
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

/// Reads those that have a tag, of those that are left.
#[inline(never)]
fn read_tagged(
    ports: &mut PortTable,
    device: DeviceId,
    work: &mut Work,
    flows: &FlowTable,
    others: &mut Vec<u16>,
) {
    // The VLAN of the last frame: that of the next one, as a rule.
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
        let place = (&mut work.nears[index], &mut work.keys[index], &mut work.hashes[index]);
        let length = arrival.read_tagged(work.packets.at_mut(index), place, flows);
        length.map(|length| *amount += Amount::packet(length)).is_none()
    });
    if let Some((_, arrival, amount)) = last {
        arrival.count(ports, amount);
    }
}

/// The VLAN id of a frame with one tag, if it is not 0.
fn tag_of(start: &[u8; SHORTEST]) -> Option<u16> {
    let tag = half(start, 14).swap_bytes() & 0xfff;
    (half(start, 12) == VLAN && tag != 0).then_some(tag)
}

/// The notes on one packet.
type Place<'a> = (&'a mut NearKey, &'a mut FlowKey, &'a mut u64);

impl Arrival {
    /// Reads a frame without a tag if it is plain; its length, then. Those of IPv6 are counted in `v6`.
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

    /// The same of one with a tag.
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

    /// Reads an IPv4 packet without options behind a link header of so many bytes.
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
        // The lowest byte of each is the first one.
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

    /// The same for an IPv6 packet.
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

    /// Notes on a packet what is noted on each: its network packet has so many bytes, so many of them in the header.
    #[inline(always)]
    fn note<const NETWORK: usize>(&self, packet: Opened<'_>, header_len: u16, total_len: usize, hash: u32) {
        let network = NETWORK as u16;
        let annotations = packet.note(NETWORK + total_len, network, network + header_len);
        annotations.port = self.port;
        annotations.exceptions = Exceptions::NONE;
        annotations.hash = hash;
    }
}

/// Source and destination port, the source port lowest, of four bytes as they come.
#[inline(always)]
fn ports_of(bytes: u64) -> u64 {
    u64::from((bytes as u32).swap_bytes().rotate_left(16))
}

/// The eight bytes at a place that is a constant.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default())
}

/// The four bytes at a place that is a constant, the first one lowest.
#[inline(always)]
fn quarter<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default())
}

/// The two bytes at a place that is a constant, the first one lowest.
#[inline(always)]
fn half<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes(bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests;
