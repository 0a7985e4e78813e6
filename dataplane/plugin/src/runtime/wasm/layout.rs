//! Byte layout of the binary interface's structures in a plugin's memory: little-endian.

use std::mem::{offset_of, size_of};

use millrace_packet::Packet;
use millrace_plugin_abi::PacketConnection;
use millrace_plugin_abi::binary::{RawBacklog, RawCall, RawFlowEnd, RawPacket, packet_flags, verdict};

use crate::runtime::raw_packet::{MOST_TAG, Written, transport_offset};

pub(super) const CALL: usize = size_of::<RawCall>();
pub(in crate::runtime) const PACKET: usize = size_of::<RawPacket>();
pub(in crate::runtime) const BACKLOG: usize = size_of::<RawBacklog>();
pub(in crate::runtime) const FLOW_END: usize = size_of::<RawFlowEnd>();

/// Offsets of fields in the description of a packet.
const FLAGS: usize = offset_of!(RawPacket, flags);
const TAG: usize = offset_of!(RawPacket, tag);
const VERDICT: usize = offset_of!(RawPacket, verdict);
const REASON: usize = offset_of!(RawPacket, reason);
const TARGET: usize = offset_of!(RawPacket, target);
const UNTIL: usize = offset_of!(RawPacket, until);

/// Writes the bytes of a field into a structure at an offset.
#[inline(always)]
fn put_field<const N: usize>(structure: &mut [u8], at: usize, field: [u8; N]) {
    let place = structure.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
    debug_assert!(place.is_some(), "a field of {N} bytes at {at}");
    if let Some(place) = place {
        *place = field;
    }
}

/// Writes fields of a structure at their offsets.
macro_rules! put {
    ($bytes:ident, $structure:ident as $type:ident: $($field:ident)*) => {$(
        put_field(&mut $bytes, offset_of!($type, $field), $structure.$field.to_le_bytes());
    )*};
}

pub(super) fn call_bytes(call: &RawCall) -> [u8; CALL] {
    let mut bytes = [0; CALL];
    put!(bytes, call as RawCall: size packet_size count now packets);
    bytes
}

/// Encodes the description of a packet in eight words. Eight stores cost a third of one store per field, and
/// every packet needs a description.
#[inline]
pub(in crate::runtime) fn words(packet: &RawPacket) -> [u64; PACKET / 8] {
    let at = |value: u64, bit: u32| value << bit;
    let RawPacket { size, flags, length, window, window_length, network, transport, ether_type, .. } =
        *packet;
    let RawPacket { family, protocol, tag, exceptions, port, number, state, .. } = *packet;
    let RawPacket { flow, source_port, destination_port, verdict, reason, target, connection, until, .. } =
        *packet;
    [
        u64::from(size) | at(flags.into(), 16) | at(length.into(), 32),
        window,
        u64::from(window_length)
            | at(network.into(), 16)
            | at(transport.into(), 32)
            | at(ether_type.into(), 48),
        u64::from(family)
            | at(protocol.into(), 8)
            | at(tag.into(), 16)
            | at(exceptions.into(), 24)
            | at(port.into(), 32)
            | at(number.into(), 48),
        state,
        u64::from(flow) | at(source_port.into(), 32) | at(destination_port.into(), 48),
        u64::from(verdict) | at(reason.into(), 8) | at(target.into(), 16) | at(connection.into(), 32),
        until,
    ]
}

/// Writes the description of a packet.
#[inline]
pub(super) fn put_packet(packet: &RawPacket, place: &mut [u8; PACKET]) {
    let (slots, _) = place.as_chunks_mut::<8>();
    for (slot, word) in slots.iter_mut().zip(words(packet)) {
        *slot = word.to_le_bytes();
    }
}

/// Writes a packet's flow or connection into its description: number, address of the state, and whether the packet is
/// the first.
pub(super) fn put_flow(description: &mut [u8; PACKET], flow: u32, state: u64, is_first: bool) {
    put_field(description, offset_of!(RawPacket, flow), flow.to_le_bytes());
    put_field(description, offset_of!(RawPacket, state), state.to_le_bytes());
    if is_first {
        let flags = u16::from_le_bytes([description[FLAGS], description[FLAGS + 1]]);
        put_field(description, FLAGS, (flags | packet_flags::FIRST).to_le_bytes());
    }
}

/// Writes the connection of a packet into its description.
pub(super) fn put_connection(description: &mut [u8; PACKET], connection: PacketConnection) {
    put_field(description, offset_of!(RawPacket, connection), (connection.status as u32).to_le_bytes());
    if connection.is_reply {
        let flags = u16::from_le_bytes([description[FLAGS], description[FLAGS + 1]]);
        put_field(description, FLAGS, (flags | packet_flags::REPLY).to_le_bytes());
    }
}

/// Updates lengths and offsets in a description after a host function changed the packet. `window` is the
/// length of the window.
pub(super) fn put_shape(description: &mut [u8; PACKET], packet: &Packet, window: usize) {
    let flags = u16::from_le_bytes([description[FLAGS], description[FLAGS + 1]]);
    let more = if packet.len() > window { packet_flags::MORE } else { 0 };
    put_field(description, FLAGS, (flags & !packet_flags::MORE | more).to_le_bytes());
    put_field(description, offset_of!(RawPacket, length), (packet.len() as u32).to_le_bytes());
    put_field(description, offset_of!(RawPacket, window_length), (window as u16).to_le_bytes());
    put_field(description, offset_of!(RawPacket, network), (packet.network_offset() as u16).to_le_bytes());
    put_field(description, offset_of!(RawPacket, transport), transport_offset(packet).to_le_bytes());
}

pub(in crate::runtime) fn flow_end_bytes(flow: &RawFlowEnd) -> [u8; FLOW_END] {
    let mut bytes = [0; FLOW_END];
    put!(bytes, flow as RawFlowEnd: size family protocol source_port destination_port port reserved flow packets bytes
        state);
    put_field(&mut bytes, offset_of!(RawFlowEnd, source), flow.source);
    put_field(&mut bytes, offset_of!(RawFlowEnd, destination), flow.destination);
    bytes
}

pub(in crate::runtime) fn backlog_bytes(backlog: &RawBacklog) -> [u8; BACKLOG] {
    let mut bytes = [0; BACKLOG];
    put!(bytes, backlog as RawBacklog: size of port queue packets instance_packets bytes instance_bytes payer_bytes
        allowance payer_packets paid);
    bytes
}

/// Returns the tag from a description.
#[inline]
pub(super) fn tag(description: &[u8; PACKET]) -> u8 {
    description[TAG]
}

/// Whether the description has the verdict `PASS` and a valid tag.
#[inline]
pub(super) fn passes(description: &[u8; PACKET]) -> bool {
    description[VERDICT] == verdict::PASS && tag(description) <= MOST_TAG
}

impl Written {
    /// Copies the fields that the plugin may write from a packet's description.
    #[inline]
    pub fn read(bytes: &[u8; PACKET]) -> Self {
        let until = bytes.get(UNTIL..).and_then(|rest| rest.first_chunk());
        Self {
            tag: bytes[TAG],
            verdict: bytes[VERDICT],
            reason: bytes[REASON],
            target: u16::from_le_bytes([bytes[TARGET], bytes[TARGET + 1]]),
            until: until.copied().map_or(0, u64::from_le_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_plugin_abi::ConnectionStatus;

    use super::*;

    #[test]
    fn every_field_has_its_offset() {
        let packet = RawPacket {
            size: 0x0101,
            flags: 0x0202,
            length: 0x0303_0303,
            window: 0x0404_0404_0404_0404,
            window_length: 0x0505,
            network: 0x0606,
            transport: 0x0707,
            ether_type: 0x0808,
            family: 9,
            protocol: 10,
            tag: 11,
            exceptions: 12,
            port: 0x0d0d,
            number: 0x0e0e,
            state: 0x0f0f_0f0f_0f0f_0f0f,
            flow: 0x1010_1010,
            source_port: 0x1111,
            destination_port: 0x1212,
            verdict: 19,
            reason: 20,
            target: 0x1515,
            connection: 0x1616_1616,
            until: 0x1717_1717_1717_1717,
        };
        let mut bytes = [0; PACKET];
        put_packet(&packet, &mut bytes);
        let widths = [2, 2, 4, 8, 2, 2, 2, 2, 1, 1, 1, 1, 2, 2, 8, 4, 2, 2, 1, 1, 2, 4, 8];
        let expected: Vec<u8> =
            (1_u8..).zip(widths).flat_map(|(value, width)| std::iter::repeat_n(value, width)).collect();
        let mut expected: [u8; PACKET] = expected.try_into().unwrap();
        assert_eq!(bytes, expected);
        assert_eq!(
            Written::read(&bytes),
            Written { tag: 11, verdict: 19, reason: 20, target: 0x1515, until: 0x1717_1717_1717_1717 }
        );
        put_flow(&mut bytes, 0x4242_4242, 0x4343_4343_4343_4343, true);
        let flags = 0x0202 | packet_flags::FIRST;
        put_packet(
            &RawPacket { flags, flow: 0x4242_4242, state: 0x4343_4343_4343_4343, ..packet },
            &mut expected,
        );
        assert_eq!(bytes, expected);
        let connection =
            PacketConnection { status: ConnectionStatus::Invalid, is_reply: true, ..Default::default() };
        put_connection(&mut bytes, connection);
        expected[FLAGS] = 6 | packet_flags::REPLY as u8;
        expected[52..56].copy_from_slice(&[4, 0, 0, 0]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn every_field_of_a_backlog_has_its_offset() {
        let backlog = RawBacklog {
            size: 0x0101,
            of: 0x0202,
            port: 0x0303,
            queue: 0x0404,
            packets: 0x0505_0505,
            instance_packets: 0x0606_0606,
            bytes: 0x0707_0707_0707_0707,
            instance_bytes: 0x0808_0808_0808_0808,
            payer_bytes: 0x0909_0909_0909_0909,
            allowance: 0x0a0a_0a0a_0a0a_0a0a,
            payer_packets: 0x0b0b_0b0b,
            paid: 0x0c0c_0c0c,
        };
        let expected: Vec<u8> = (1_u8..)
            .zip([2, 2, 2, 2, 4, 4, 8, 8, 8, 8, 4, 4])
            .flat_map(|(value, width)| std::iter::repeat_n(value, width))
            .collect();
        assert_eq!(backlog_bytes(&backlog).to_vec(), expected);
    }

    #[test]
    fn calls_and_flow_ends_have_their_declared_lengths() {
        let call = RawCall { size: 24, packet_size: 64, count: 3, now: 1 << 40, packets: 4096 };
        let bytes = call_bytes(&call);
        assert_eq!((bytes[0], bytes[2], bytes[4], bytes[13], bytes[17]), (24, 64, 3, 1, 16));
        let flow =
            RawFlowEnd { size: 72, source: [1; 16], destination: [2; 16], packets: 5, ..Default::default() };
        let bytes = flow_end_bytes(&flow);
        assert_eq!((bytes[0], bytes[16], bytes[31], bytes[32], bytes[47], bytes[48]), (72, 1, 1, 2, 2, 5));
    }
}
