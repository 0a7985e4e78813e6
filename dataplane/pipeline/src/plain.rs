//! Stages receive and parse in one, for plain frames: Ethernet with at most one VLAN tag, IPv4 without options or IPv6
//! without extension headers, no fragment, TCP or UDP, hops left, in one piece.
//!
//! Of a frame that is anything else, or that any check of the two stages would object to, nothing is said and nothing is
//! noted on it: [`receive`](crate::receive) and [`parse`](crate::parse) say what it is. What is said of a plain frame is what
//! they would have said.

use std::net::Ipv4Addr;

use millrace_classify::FlowTable;
use millrace_packet::{Exceptions, FlowKey, Packet};
use millrace_units::PortId;
use millrace_wire::EtherType;
use millrace_wire::checksum::are_valid_header_words;

use crate::ports::{DeviceId, PortTable};
use crate::tags::Tags;
use crate::work::Varying;

const LINK: usize = 14;
const TAGGED: usize = LINK + 4;
/// The shortest plain frame: IPv4 and UDP without a tag.
const SHORTEST: usize = LINK + 20 + 8;
/// EtherTypes as they come, the first byte lowest.
const IPV4: u16 = EtherType::IPV4.0.swap_bytes();
const IPV6: u16 = EtherType::IPV6.0.swap_bytes();
const VLAN: u16 = EtherType::VLAN.0.swap_bytes();
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The six bytes of an address in a word that was read from the frame.
const ADDRESS: u64 = 0xffff_ffff_ffff;
/// No address in a frame is this.
const NOBODY: u64 = u64::MAX;

/// Where what is found out of a packet is noted.
pub(crate) struct Notes<'a> {
    pub key: &'a mut FlowKey,
    pub hash: &'a mut u64,
    pub varying: &'a mut Varying,
}

/// The port that the last plain frame of a batch came in by: that of the next one, as a rule.
pub(crate) struct Arrivals {
    device: DeviceId,
    /// VLAN id of its frames, 0 for none; above all ids at first.
    vlan: u16,
    port: PortId,
    /// Its address as in the first word of a frame; [`NOBODY`] when nothing plain comes in by it.
    mac: u64,
    mtu: usize,
    /// The last word of the keys of IPv4 packets that come in by it, without what the packet says.
    last: u64,
    /// Frames and bytes that are not counted at the port yet.
    packets: u64,
    bytes: u64,
}

impl Arrivals {
    /// Those of a batch from `device`.
    pub fn of(device: DeviceId) -> Self {
        Self {
            device,
            vlan: u16::MAX,
            port: PortId::NONE,
            mac: NOBODY,
            mtu: 0,
            last: 0,
            packets: 0,
            bytes: 0,
        }
    }

    /// Counts at the port what came in by it.
    pub fn count(&mut self, ports: &mut PortTable) {
        if let Some(entry) = ports.get_mut(self.port) {
            entry.count.rx_packets += std::mem::take(&mut self.packets);
            entry.count.rx_bytes += std::mem::take(&mut self.bytes);
        }
    }

    #[cold]
    fn turn_to(&mut self, ports: &mut PortTable, vlan: u16) {
        self.count(ports);
        let tags = if vlan == 0 { Tags::NONE } else { Tags::single(vlan) };
        self.vlan = vlan;
        (self.port, self.mac, self.mtu) = (PortId::NONE, NOBODY, 0);
        let Some(port) = ports.by_tags(self.device, tags) else { return };
        let Some(settings) = ports.get(port).map(|entry| &entry.settings) else { return };
        if settings.up && settings.mac.is_unicast() {
            let [a, b, c, d, e, f] = settings.mac.0;
            (self.port, self.mtu) = (port, settings.mtu.into());
            self.mac = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
            let (nowhere, nothing) = (Ipv4Addr::UNSPECIFIED, (0, 0));
            self.last = FlowKey::v4(nowhere, nowhere, 0, nothing, port).last_word();
        }
    }

    /// Reads a frame if it is plain, and notes on it what the stages note; whether it is. Its key, hash and varying fields are put
    /// where they belong at once: they are too large to be handed around.
    #[inline(always)]
    pub fn read(
        &mut self,
        ports: &mut PortTable,
        packet: &mut Packet,
        flows: &FlowTable,
        notes: Notes<'_>,
    ) -> bool {
        let Some(start) = packet.data().first_chunk::<SHORTEST>() else { return false };
        let (destination, source) = (word(start, 0) & ADDRESS, word(start, 6));
        let ether_type = (source >> 48) as u16;
        if ether_type == VLAN {
            return self.read_tagged(ports, packet, flows, notes);
        }
        if self.vlan != 0 {
            self.turn_to(ports, 0);
        }
        if !self.is_for_us(destination, source) {
            return false;
        }
        match ether_type {
            IPV4 => self.v4::<LINK>(packet, flows, notes).is_some(),
            IPV6 => self.v6::<LINK>(packet, flows, notes).is_some(),
            _ => false,
        }
    }

    /// The same for a frame with a VLAN tag.
    #[inline(never)]
    fn read_tagged(
        &mut self,
        ports: &mut PortTable,
        packet: &mut Packet,
        flows: &FlowTable,
        notes: Notes<'_>,
    ) -> bool {
        let Some(start) = packet.data().first_chunk::<SHORTEST>() else { return false };
        let (destination, source) = (word(start, 0) & ADDRESS, word(start, 6));
        let tag = half(start, 14).swap_bytes() & 0xfff;
        let ether_type = half(start, 16);
        if tag == 0 {
            return false;
        }
        if tag != self.vlan {
            self.turn_to(ports, tag);
        }
        if !self.is_for_us(destination, source) {
            return false;
        }
        match ether_type {
            IPV4 => self.v4::<TAGGED>(packet, flows, notes).is_some(),
            IPV6 => self.v6::<TAGGED>(packet, flows, notes).is_some(),
            _ => false,
        }
    }

    /// Whether a frame is sent to the port, by somebody: `source` is that in its lowest six bytes.
    #[inline(always)]
    fn is_for_us(&self, destination: u64, source: u64) -> bool {
        destination == self.mac && source & 1 == 0 && source & ADDRESS != 0
    }

    /// Reads the rest of an IPv4 packet behind a link header of so many bytes.
    #[inline(always)]
    fn v4<const NETWORK: usize>(
        &mut self,
        packet: &mut Packet,
        flows: &FlowTable,
        notes: Notes<'_>,
    ) -> Option<()> {
        let data = packet.data();
        let length = data.len();
        let header = data.get(NETWORK..NETWORK + 28)?.first_chunk::<28>()?;
        // The lowest byte of each is the first one.
        let (first, second, third) = (word(header, 0), word(header, 8), word(header, 16));
        let total_len = usize::from(((first >> 16) as u16).swap_bytes());
        let is_sane = first & 0xff3f_0000_0000_00ff == 0x45
            && second & 0xff > 1
            && total_len <= length - NETWORK
            && length - NETWORK <= self.mtu
            && are_valid_header_words(first, second, third as u32)
            && packet.is_linear();
        if !is_sane {
            return None;
        }
        let protocol = (second >> 8) as u8;
        let tcp_flags = match protocol {
            UDP if total_len >= 20 + 8 => None,
            TCP if total_len >= 20 + 20 => data.get(NETWORK + 20 + 13).copied(),
            _ => return None,
        };
        let addresses = second >> 32 | third << 32;
        let last = ports_of(third >> 32) | u64::from(protocol) << 32 | self.last;
        (*notes.hash, packet.hash) = flows.hashes4(addresses, last);
        flows.prefetch(*notes.hash);
        *notes.key = FlowKey::v4_of_words(addresses, last);
        *notes.varying = Varying { tcp_flags, dscp: (first >> 10) as u8 & 0x3f };
        self.note::<NETWORK>(packet, 20, (length, total_len));
        Some(())
    }

    /// The same for an IPv6 packet.
    #[inline(always)]
    fn v6<const NETWORK: usize>(
        &mut self,
        packet: &mut Packet,
        flows: &FlowTable,
        notes: Notes<'_>,
    ) -> Option<()> {
        let data = packet.data();
        let length = data.len();
        let header = data.get(NETWORK..NETWORK + 48)?.first_chunk::<48>()?;
        let first = word(header, 0);
        let total_len = 40 + usize::from(((first >> 32) as u16).swap_bytes());
        let is_sane = first & 0xf0 == 0x60
            && first >> 56 > 1
            && total_len <= length - NETWORK
            && length - NETWORK <= self.mtu
            && packet.is_linear();
        if !is_sane {
            return None;
        }
        let next_header = (first >> 48) as u8;
        let tcp_flags = match next_header {
            UDP if total_len >= 40 + 8 => None,
            TCP if total_len >= 40 + 20 => data.get(NETWORK + 40 + 13).copied(),
            _ => return None,
        };
        let address =
            |at| (u128::from(word(header, at)) | u128::from(word(header, at + 8)) << 64).to_le_bytes().into();
        let ports = ports_of(word(header, 40) & 0xffff_ffff);
        *notes.key = FlowKey::v6(
            address(8),
            address(24),
            next_header,
            (ports as u16, (ports >> 16) as u16),
            self.port,
        );
        let dscp = (first as u8 & 0xf) << 2 | (first >> 14) as u8 & 3;
        *notes.varying = Varying { tcp_flags, dscp };
        (*notes.hash, packet.hash) = flows.hashes(notes.key);
        flows.prefetch(*notes.hash);
        self.note::<NETWORK>(packet, 40, (length, total_len));
        Some(())
    }

    /// Notes on a packet of so many bytes, of which so many are the network packet's, what is noted on each.
    #[inline(always)]
    fn note<const NETWORK: usize>(
        &mut self,
        packet: &mut Packet,
        header_len: u16,
        (length, total_len): (usize, usize),
    ) {
        if length != NETWORK + total_len {
            packet.truncate(NETWORK + total_len);
        }
        packet.set_headers(NETWORK as u16, header_len);
        packet.port = self.port;
        packet.exceptions = Exceptions::NONE;
        self.packets += 1;
        self.bytes += length as u64;
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
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The two bytes at a place that is a constant, the first one lowest.
#[inline(always)]
fn half<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
