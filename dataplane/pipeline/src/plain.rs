//! Stages receive and parse in one, for plain frames: Ethernet with at most one VLAN tag, IPv4 without options or IPv6
//! without extension headers, no fragment, TCP or UDP, hops left, in one piece.
//!
//! Of a frame that is anything else, or that any check of the two stages would object to, nothing is said and nothing is
//! noted: [`receive`](crate::receive) and [`parse`](crate::parse) say what it is. What is said of a plain frame is what
//! they would have said.

use millrace_packet::{Exceptions, FlowKey, Packet};
use millrace_units::PortId;
use millrace_wire::checksum;

use crate::parse::flow_hash;
use crate::ports::{DeviceId, PortTable};
use crate::tags::Tags;
use crate::work::Varying;

const LINK: usize = 14;
const TAGGED: usize = LINK + 4;
/// The shortest plain frame: IPv4 and UDP without a tag.
const SHORTEST: usize = LINK + 20 + 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The six bytes of an address in a word that was read from the frame.
const ADDRESS: u64 = 0xffff_ffff_ffff;
/// No address in a frame is this.
const NOBODY: u64 = u64::MAX;

/// What was read of a plain frame.
pub(crate) struct Plain {
    pub key: FlowKey,
    pub varying: Varying,
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

    /// Reads a frame if it is plain, and notes on it what the stages note.
    #[inline(always)]
    pub fn read(&mut self, ports: &mut PortTable, packet: &mut Packet, seed: u64) -> Option<Plain> {
        let data = packet.data();
        let start = data.first_chunk::<SHORTEST>()?;
        let tag = match [start[12], start[13]] {
            [0x08, 0x00] | [0x86, 0xdd] => 0,
            [0x81, 0x00] => u16::from_be_bytes([start[14], start[15]]) & 0xfff,
            _ => return None,
        };
        let is_tagged = start[12] == 0x81;
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
        let network = if is_tagged { TAGGED } else { LINK };
        if length > self.mtu + network {
            return None;
        }
        let bytes = &data[network..];
        let (plain, header_len, total_len) = match if is_tagged { start[17] } else { start[13] } {
            0x00 if !is_tagged || start[16] == 0x08 => (self.v4(bytes)?, 20, be16(bytes, 2)),
            0xdd if !is_tagged || start[16] == 0x86 => (self.v6(bytes)?, 40, 40 + be16(bytes, 4)),
            _ => return None,
        };
        packet.truncate(network + total_len);
        packet.set_network(network);
        packet.set_transport(network + header_len);
        packet.port = self.port;
        packet.exceptions = Exceptions::NONE;
        packet.hash = flow_hash(&plain.key, seed);
        self.packets += 1;
        self.bytes += length as u64;
        Some(plain)
    }

    #[inline(always)]
    fn v4(&self, bytes: &[u8]) -> Option<Plain> {
        let header = bytes.first_chunk::<28>()?;
        let total_len = be16(header, 2);
        let (protocol, fragment) = (header[9], be16(header, 6) & 0x3fff);
        let [ip @ .., _, _, _, _, _, _, _, _] = header;
        let is_sane = header[0] == 0x45
            && header[8] > 1
            && fragment == 0
            && total_len <= bytes.len()
            && checksum::sum(ip).is_valid();
        let tcp_flags = transport(bytes, protocol, 20, total_len).filter(|_| is_sane)?;
        let address = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]].into();
        let ports = (be16(header, 20) as u16, be16(header, 22) as u16);
        let key = FlowKey::v4(address(12), address(16), protocol, ports, self.port);
        Some(Plain { key, varying: Varying { tcp_flags, dscp: header[1] >> 2 } })
    }

    #[inline(always)]
    fn v6(&self, bytes: &[u8]) -> Option<Plain> {
        let header = bytes.first_chunk::<48>()?;
        let total_len = 40 + be16(header, 4);
        let is_sane = header[0] >> 4 == 6 && header[7] > 1 && total_len <= bytes.len();
        let tcp_flags = transport(bytes, header[6], 40, total_len).filter(|_| is_sane)?;
        let address = |at: usize| {
            let mut address = [0; 16];
            address.copy_from_slice(&header[at..at + 16]);
            address.into()
        };
        let ports = (be16(header, 40) as u16, be16(header, 42) as u16);
        let key = FlowKey::v6(address(8), address(24), header[6], ports, self.port);
        let dscp = (header[0] & 0xf) << 2 | header[1] >> 6;
        Some(Plain { key, varying: Varying { tcp_flags, dscp } })
    }
}

/// The flags of TCP, none of UDP; `None` for other protocols, and for a transport header that is cut.
#[inline(always)]
fn transport(bytes: &[u8], protocol: u8, header_len: usize, total_len: usize) -> Option<Option<u8>> {
    match protocol {
        UDP if total_len >= header_len + 8 => Some(None),
        TCP if total_len >= header_len + 20 => bytes.get(header_len + 13).copied().map(Some),
        _ => None,
    }
}

#[inline(always)]
fn word(bytes: &[u8; SHORTEST], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[inline(always)]
fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}
