//! Stages receive and parse in one, for plain frames: Ethernet with at most one VLAN tag, IPv4 without options or IPv6
//! without extension headers, no fragment, TCP or UDP, hops left, in one piece.
//!
//! Of a frame that is anything else, or that any check of the two stages would object to, nothing is said and nothing is
//! noted on it: [`receive`](crate::receive) and [`parse`](crate::parse) say what it is. What is said of a plain frame is what
//! they would have said.

use millrace_classify::FlowTable;
use millrace_packet::{Exceptions, FlowKey, Packet};
use millrace_units::PortId;
use millrace_wire::{EtherType, checksum};

use crate::ports::{DeviceId, PortTable};
use crate::tags::Tags;
use crate::work::Varying;

const LINK: usize = 14;
const TAGGED: usize = LINK + 4;
/// The shortest plain frame: IPv4 and UDP without a tag.
const SHORTEST: usize = LINK + 20 + 8;
/// EtherTypes as they come.
const IPV4: u16 = EtherType::IPV4.0.to_be();
const IPV6: u16 = EtherType::IPV6.0.to_be();
const VLAN: u16 = EtherType::VLAN.0.to_be();
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The six bytes of an address in a word that was read from the frame.
const ADDRESS: u64 = 0xffff_ffff_ffff;
/// No address in a frame is this.
const NOBODY: u64 = u64::MAX;

/// The port that the last plain frame of a batch came in by: that of the next one, as a rule.
pub(crate) struct Arrivals {
    device: DeviceId,
    /// VLAN id of its frames, 0 for none; above all ids at first.
    vlan: u16,
    port: PortId,
    /// Its address as in the first word of a frame; [`NOBODY`] when nothing plain comes in by it.
    mac: u64,
    mtu: usize,
    /// Frames and bytes that are not counted at the port yet.
    packets: u64,
    bytes: u64,
}

impl Arrivals {
    /// Those of a batch from `device`.
    pub fn of(device: DeviceId) -> Self {
        Self { device, vlan: u16::MAX, port: PortId::NONE, mac: NOBODY, mtu: 0, packets: 0, bytes: 0 }
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
        notes: (&mut FlowKey, &mut u64, &mut Varying),
    ) -> bool {
        self.look(ports, packet, flows, notes).is_some()
    }

    #[inline(always)]
    fn look(
        &mut self,
        ports: &mut PortTable,
        packet: &mut Packet,
        flows: &FlowTable,
        (key, hash, varying): (&mut FlowKey, &mut u64, &mut Varying),
    ) -> Option<()> {
        let data = packet.data();
        let start = data.first_chunk::<SHORTEST>()?;
        let outer = half(start, 12);
        let is_tagged = outer == VLAN;
        let tag = if is_tagged { u16::from_be(half(start, 14)) & 0xfff } else { 0 };
        if is_tagged && tag == 0 {
            return None;
        }
        if tag != self.vlan {
            self.turn_to(ports, tag);
        }
        let source = word(start, 6) & ADDRESS;
        let is_ours = word(start, 0) & ADDRESS == self.mac;
        if !is_ours || source & 1 == 1 || source == 0 || !packet.is_linear() {
            return None;
        }
        let length = data.len();
        let (network, ether_type) = if is_tagged { (TAGGED, half(start, 16)) } else { (LINK, outer) };
        if length > self.mtu + network {
            return None;
        }
        let bytes = &data[network..];
        let (is_v4, header_len) = match ether_type {
            IPV4 => (true, 20),
            IPV6 => (false, 40),
            _ => return None,
        };
        let (total_len, dscp) = if is_v4 { self.v4(bytes, key)? } else { self.v6(bytes, key)? };
        let tcp_flags = match key.protocol {
            UDP if total_len >= header_len + 8 => None,
            TCP if total_len >= header_len + 20 => bytes.get(header_len + 13).copied(),
            _ => return None,
        };
        packet.truncate(network + total_len);
        packet.set_network(network);
        packet.set_transport(network + header_len);
        packet.port = self.port;
        packet.exceptions = Exceptions::NONE;
        (*hash, packet.hash) = flows.hashes(key);
        self.packets += 1;
        self.bytes += length as u64;
        *varying = Varying { tcp_flags, dscp };
        Some(())
    }

    /// Puts down the key of an IPv4 packet; its length and its DSCP.
    #[inline(always)]
    fn v4(&self, bytes: &[u8], key: &mut FlowKey) -> Option<(usize, u8)> {
        let header = bytes.first_chunk::<28>()?;
        let [ip @ .., _, _, _, _, _, _, _, _] = header;
        // The lowest byte of each is the first one.
        let (first, second, ports) = (word(header, 0), word(header, 8), word(header, 20));
        let total_len = usize::from(((first >> 16) as u16).swap_bytes());
        let is_sane = first & 0xff == 0x45
            && first >> 48 & 0xff3f == 0
            && second & 0xff > 1
            && total_len <= bytes.len()
            && checksum::is_valid_header(ip);
        if !is_sane {
            return None;
        }
        let address = |word: u64| (word as u32).to_le_bytes().into();
        let (source, destination) = (address(second >> 32), address(word(header, 16)));
        let ports = ((ports as u16).swap_bytes(), ((ports >> 16) as u16).swap_bytes());
        *key = FlowKey::v4(source, destination, (second >> 8) as u8, ports, self.port);
        Some((total_len, (first >> 10) as u8 & 0x3f))
    }

    /// Puts down the key of an IPv6 packet; its length and its DSCP.
    #[inline(always)]
    fn v6(&self, bytes: &[u8], key: &mut FlowKey) -> Option<(usize, u8)> {
        let header = bytes.first_chunk::<48>()?;
        let (first, ports) = (word(header, 0), word(header, 40));
        let total_len = 40 + usize::from(((first >> 32) as u16).swap_bytes());
        let (next_header, hop_limit) = ((first >> 48) as u8, first >> 56);
        if first & 0xf0 != 0x60 || hop_limit <= 1 || total_len > bytes.len() {
            return None;
        }
        let address =
            |at| (u128::from(word(header, at)) | u128::from(word(header, at + 8)) << 64).to_le_bytes().into();
        let ports = ((ports as u16).swap_bytes(), ((ports >> 16) as u16).swap_bytes());
        let dscp = (header[0] & 0xf) << 2 | header[1] >> 6;
        *key = FlowKey::v6(address(8), address(24), next_header, ports, self.port);
        Some((total_len, dscp))
    }
}

/// The eight bytes at a place that is a constant.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The two bytes at a place that is a constant, as they come.
#[inline(always)]
fn half<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}
