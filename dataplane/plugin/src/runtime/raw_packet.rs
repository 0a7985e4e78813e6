//! Packet descriptions that wasm and native plugins read, and the fields that plugins write into them.

use std::fmt;

use millrace_packet::{Exceptions, FlowKey, Packet};
use millrace_plugin_abi::binary::{
    NO_ALLOWANCE, NO_OFFSET, RawBacklog, RawFlowEnd, RawPacket, backlog, packet_flags, verdict,
};
use millrace_plugin_abi::{Backlog, Family, FlowEnd, Instant, PacketConnection, Packets, Verdict};
use millrace_units::{InstanceId, PortId, QueueId};

/// Largest tag and largest drop reason; both have five bits.
pub(crate) const MOST_TAG: u8 = 31;

/// Fields that a plugin writes into the description of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub tag: u8,
    pub verdict: u8,
    pub reason: u8,
    pub target: u16,
    pub until: u64,
}

impl Written {
    /// Copies the fields that the plugin may write from a packet's description.
    #[inline]
    pub fn of(packet: &RawPacket) -> Self {
        let RawPacket { tag, verdict, reason, target, until, .. } = *packet;
        Self { tag, verdict, reason, target, until }
    }
}

/// Invalid field in a packet description that a plugin wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongVerdict {
    /// Unknown number of a verdict.
    Verdict(u8),
    /// Tag over 31.
    Tag(u8),
    /// Drop reason over 31.
    Reason(u8),
}

impl fmt::Display for WrongVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(number) => write!(f, "unknown verdict {number}"),
            Self::Tag(tag) => write!(f, "tag must be 0 to {MOST_TAG}, not {tag}"),
            Self::Reason(reason) => write!(f, "drop reason must be 0 to {MOST_TAG}, not {reason}"),
        }
    }
}

/// Converts the written fields into a verdict.
#[inline]
pub(crate) fn verdict_of(written: Written) -> Result<Verdict, WrongVerdict> {
    if written.tag > MOST_TAG {
        return Err(WrongVerdict::Tag(written.tag));
    }
    match written.verdict {
        verdict::PASS => Ok(Verdict::Pass),
        verdict::DROP | verdict::REJECT if written.reason > MOST_TAG => {
            Err(WrongVerdict::Reason(written.reason))
        }
        verdict::DROP => Ok(Verdict::Drop(written.reason)),
        verdict::REJECT => Ok(Verdict::Reject(written.reason)),
        verdict::CONSUME => Ok(Verdict::Consume),
        verdict::PORT => Ok(Verdict::Port(PortId(written.target))),
        verdict::PORTS => Ok(Verdict::Ports(written.until)),
        verdict::QUEUE => Ok(Verdict::Queue(QueueId(written.target))),
        verdict::INSTANCE => Ok(Verdict::Instance(InstanceId(written.target))),
        verdict::CLASSIFY => Ok(Verdict::Classify),
        verdict::HOLD => Ok(Verdict::Hold(Instant::from_nanos(written.until))),
        other => Err(WrongVerdict::Verdict(other)),
    }
}

/// Describes packet `number` of a call, whose window has `window` bytes. The caller adds the address of the
/// window.
#[inline]
pub(crate) fn describe(number: usize, key: &FlowKey, packet: &Packet, window: usize) -> RawPacket {
    let (length, network) = (packet.len(), packet.network_offset());
    RawPacket {
        size: size_of::<RawPacket>() as u16,
        flags: if length > window { packet_flags::MORE } else { 0 },
        length: length as u32,
        window_length: window as u16,
        network: network as u16,
        transport: transport_offset(packet),
        ether_type: ether_type(packet.data(), network, key.family()),
        family: key.family() as u8,
        protocol: key.protocol,
        tag: packet.tag,
        exceptions: packet.exceptions.bits(),
        port: packet.port.0,
        number: number as u16,
        source_port: key.source_port,
        destination_port: key.destination_port,
        verdict: verdict::PASS,
        ..RawPacket::default()
    }
}

/// Adds the packet's connection to its description.
#[inline]
pub(crate) fn describe_connection(described: &mut RawPacket, connection: PacketConnection) {
    described.connection = connection.status as u32;
    if connection.is_reply {
        described.flags |= packet_flags::REPLY;
    }
}

/// Returns the offset of the transport header; [`NO_OFFSET`] if the packet has none that can be read.
#[inline]
pub(crate) fn transport_offset(packet: &Packet) -> u16 {
    let unread = Exceptions::CUT.bits() | Exceptions::FRAGMENT.bits();
    match packet.exceptions.bits() & unread {
        0 => packet.transport_offset() as u16,
        _ => NO_OFFSET,
    }
}

/// Returns the EtherType in front of the network header; without a link header, the EtherType of `family`.
fn ether_type(data: &[u8], network: usize, family: Family) -> u16 {
    match data.get(..network).and_then(<[u8]>::last_chunk) {
        Some(bytes) => u16::from_be_bytes(*bytes),
        None if family == Family::V4 => 0x0800,
        None => 0x86dd,
    }
}

/// Converts the end of a flow into the structure that plugins read.
pub(crate) fn raw_flow_end(flow: &FlowEnd) -> RawFlowEnd {
    RawFlowEnd {
        size: size_of::<RawFlowEnd>() as u16,
        family: flow.key.family() as u8,
        protocol: flow.key.protocol,
        source_port: flow.key.source_port,
        destination_port: flow.key.destination_port,
        port: flow.key.port.0,
        source: *flow.key.source_bytes(),
        destination: *flow.key.destination_bytes(),
        packets: flow.packets,
        bytes: flow.bytes,
        ..RawFlowEnd::default()
    }
}

/// Converts a backlog into the structure that plugins read.
pub(crate) fn raw_backlog(known: &Backlog) -> RawBacklog {
    let payer = known.payer.unwrap_or_default();
    let allowance = payer.allowance.and_then(|time| u64::try_from(time.as_nanos()).ok());
    let own = RawBacklog {
        size: size_of::<RawBacklog>() as u16,
        instance_packets: known.instance_packets,
        instance_bytes: known.instance_bytes,
        payer_packets: payer.packets,
        payer_bytes: payer.bytes,
        allowance: allowance.unwrap_or(NO_ALLOWANCE),
        paid: known.payer.is_some().into(),
        ..RawBacklog::default()
    };
    let Some(queue) = known.queue else { return own };
    RawBacklog {
        of: if queue.of_flow { backlog::FLOW } else { backlog::LEAF },
        port: queue.port.0,
        queue: queue.queue.0,
        packets: queue.packets,
        bytes: queue.bytes,
        ..own
    }
}

/// Writes bytes into a packet at an offset, and returns the number of bytes written. Writes only to the
/// packet's first memory frame, because copies may share later frames.
pub(crate) fn write(packet: &mut Packet, offset: u32, from: &[u8]) -> u32 {
    let room = packet.data_mut().get_mut(offset as usize..).unwrap_or_default();
    let count = room.len().min(from.len());
    let (Some(room), Some(from)) = (room.get_mut(..count), from.get(..count)) else { return 0 };
    room.copy_from_slice(from);
    count as u32
}

/// Adds `bytes` zero bytes at the packet's front; a negative number removes bytes. Returns `false` if the
/// headroom or the first memory frame is too short.
pub(crate) fn resize(packet: &mut Packet, bytes: i32) -> bool {
    let count = bytes.unsigned_abs() as usize;
    if bytes < 0 {
        return packet.trim_front(count);
    }
    // Clear the headroom, which holds bytes of an earlier packet.
    let front = packet.prepend(count).and_then(|data| data.get_mut(..count));
    front.map(|front| front.fill(0)).is_some()
}

/// Whether the router takes over the plugin's changes to a packet with this verdict. It doesn't if the
/// verdict drops or consumes the packet, or is a fault.
#[inline]
pub(crate) fn goes_on(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Drop(_) | Verdict::Consume | Verdict::Fault)
}

/// Sets [`Verdict::Fault`] on the packets from index `from` on, which the plugin hasn't decided.
pub(crate) fn settle(packets: &mut Packets<'_>, from: usize) {
    (from..packets.len()).for_each(|place| packets.set_verdict(place, Verdict::Fault));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use millrace_packet::{HEADROOM, Pool};

    proptest! {
        /// Resizes a packet and writes to it; compares its bytes with those that the operations must yield.
        #[test]
        fn any_resize_and_write_stays_in_the_first_frame(
            bytes in prop::collection::vec(any::<u8>(), 0..3000),
            change in prop_oneof![-3000_i32..3000, any::<i32>()],
            offset in prop_oneof![0_u32..3000, any::<u32>()],
            written in prop::collection::vec(any::<u8>(), 0..3000),
        ) {
            let pool = Pool::new(8).unwrap();
            let mut packet = pool.packet_from(&bytes).unwrap();
            let (first, count) = (packet.data().len(), change.unsigned_abs() as usize);
            let done = resize(&mut packet, change);
            prop_assert_eq!(done, if change < 0 { count <= first } else { count <= HEADROOM });
            let mut expected = match (done, change) {
                (false, _) => bytes,
                (true, ..0) => bytes[count..].to_vec(),
                (true, _) => [vec![0; count], bytes].concat(),
            };
            prop_assert_eq!(packet.to_vec(), &expected[..]);
            let room = packet.data().len();
            let taken = write(&mut packet, offset, &written) as usize;
            prop_assert_eq!(taken, room.saturating_sub(offset as usize).min(written.len()));
            expected.iter_mut().skip(offset as usize).zip(&written[..taken]).for_each(|(to, from)| *to = *from);
            prop_assert_eq!(packet.to_vec(), expected);
            drop(packet);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }
}
