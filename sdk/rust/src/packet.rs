//! Packet of a call, and verdicts about it.
//!
//! Nothing here panics: missing data is `None`, or a shorter slice.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::slice;

use millrace_plugin_abi::binary::{NO_OFFSET, RawPacket, connection, packet_flags, verdict};

use crate::{Backlog, Plain, host};

/// Verdict about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet continues on its path.
    Pass,
    /// The router drops the packet, and counts it under this drop reason of the plugin, 0 to 31.
    Drop(u8),
    /// The router drops the packet, and sends an ICMP error to its source: communication administratively
    /// prohibited. The drop reason is the plugin's own, 0 to 31.
    Reject(u8),
    /// The plugin takes the packet: the router neither forwards it nor counts it as dropped.
    Consume,
    /// The packet leaves by the port with this number, whatever its route.
    Port(u16),
    /// The packet leaves by each port N whose bit N is set, whatever its route.
    Ports(u64),
    /// The packet continues, and will wait in this queue of its egress port.
    Queue(u16),
    /// The instance with this number processes the packet next. If that instance lets it pass, the packet
    /// continues at the stage behind the instance that gave this verdict.
    Instance(u16),
    /// The router classifies the packet again, with its current tag.
    Classify,
    /// The router holds the packet until this time, in nanoseconds as in
    /// [`Plugin::packets`](crate::Plugin::packets). Then the packet continues.
    Hold(u64),
    /// Invalid verdict, which counts as a fault of the plugin.
    Fault,
}

impl Verdict {
    pub(crate) fn of(raw: &RawPacket) -> Self {
        match raw.verdict {
            verdict::PASS => Self::Pass,
            verdict::DROP => Self::Drop(raw.reason),
            verdict::REJECT => Self::Reject(raw.reason),
            verdict::CONSUME => Self::Consume,
            verdict::PORT => Self::Port(raw.target),
            verdict::PORTS => Self::Ports(raw.until),
            verdict::QUEUE => Self::Queue(raw.target),
            verdict::INSTANCE => Self::Instance(raw.target),
            verdict::CLASSIFY => Self::Classify,
            verdict::HOLD => Self::Hold(raw.until),
            _ => Self::Fault,
        }
    }

    #[inline]
    fn set(self, raw: &mut RawPacket) {
        let (number, reason, target, until) = match self {
            Self::Pass => (verdict::PASS, 0, 0, 0),
            Self::Drop(reason) => (verdict::DROP, reason, 0, 0),
            Self::Reject(reason) => (verdict::REJECT, reason, 0, 0),
            Self::Consume => (verdict::CONSUME, 0, 0, 0),
            Self::Port(port) => (verdict::PORT, 0, port, 0),
            Self::Ports(ports) => (verdict::PORTS, 0, 0, ports),
            Self::Queue(queue) => (verdict::QUEUE, 0, queue, 0),
            Self::Instance(instance) => (verdict::INSTANCE, 0, instance, 0),
            Self::Classify => (verdict::CLASSIFY, 0, 0, 0),
            Self::Hold(until) => (verdict::HOLD, 0, 0, until),
            Self::Fault => (u8::MAX, 0, 0, 0),
        };
        (raw.verdict, raw.reason, raw.target, raw.until) = (number, reason, target, until);
    }
}

/// Status of a packet's connection, if the manifest has `state: "connection"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConnectionStatus {
    /// The router does not track the packet for this instance.
    #[default]
    Untracked,
    /// The packet opens the connection, or repeats its opening before an answer.
    New,
    /// Both sides have sent packets, or the packet is the first answer.
    Established,
    /// The packet is an ICMP error that quotes a packet of the connection.
    Related,
    /// The packet belongs to no connection and can't open one, or contradicts the state of its connection.
    Invalid,
}

/// Packet of a call. All offsets count from its first byte, where the link header begins.
pub struct Packet<'a> {
    raw: &'a mut RawPacket,
    state_bytes: u16,
}

impl<'a> Packet<'a> {
    /// # Safety
    /// As long as `raw` is borrowed, the window and the state to which it points must belong to the caller
    /// alone.
    #[inline]
    pub(crate) unsafe fn new(raw: &'a mut RawPacket, state_bytes: u16) -> Self {
        Self { raw, state_bytes }
    }

    /// Returns the length of the whole packet in bytes, link header included.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no packet is empty")]
    pub fn len(&self) -> usize {
        self.raw.length as usize
    }

    /// Returns the window: the packet's first bytes, up to the manifest's `window`.
    #[inline]
    #[must_use]
    pub fn window(&self) -> &[u8] {
        if self.raw.window == 0 {
            return &[];
        }
        // SAFETY: the router guarantees `window_length` bytes there (`Packet::new`).
        unsafe { slice::from_raw_parts(self.raw.window as usize as *const u8, self.raw.window_length.into()) }
    }

    /// Returns the window for changes. The plugin must correct checksums itself. Changes take effect only
    /// with the capability `packet-write`.
    #[inline]
    #[must_use]
    pub fn window_mut(&mut self) -> &mut [u8] {
        if self.raw.window == 0 {
            return &mut [];
        }
        // SAFETY: the router guarantees `window_length` bytes there, for this packet alone (`Packet::new`).
        unsafe {
            slice::from_raw_parts_mut(self.raw.window as usize as *mut u8, self.raw.window_length.into())
        }
    }

    /// Whether the packet is longer than the window. [`read`](Self::read) also returns the bytes behind the
    /// window.
    #[inline]
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.raw.flags & packet_flags::MORE != 0
    }

    /// Whether the packet is a copy. The router sends a copy only with the verdict [`Verdict::Port`] or
    /// [`Verdict::Ports`], and discards it with any other.
    #[inline]
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.raw.flags & packet_flags::COPY != 0
    }

    /// Whether the packet is the first of its flow at this instance.
    #[inline]
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.raw.flags & packet_flags::FIRST != 0
    }

    /// Returns the status of the packet's connection.
    #[inline]
    #[must_use]
    pub fn connection(&self) -> ConnectionStatus {
        match self.raw.connection {
            connection::NEW => ConnectionStatus::New,
            connection::ESTABLISHED => ConnectionStatus::Established,
            connection::RELATED => ConnectionStatus::Related,
            connection::INVALID => ConnectionStatus::Invalid,
            _ => ConnectionStatus::Untracked,
        }
    }

    /// Whether the packet goes to the side that opened its connection.
    #[inline]
    #[must_use]
    pub fn is_reply(&self) -> bool {
        self.raw.flags & packet_flags::REPLY != 0
    }

    /// Returns the EtherType behind all VLAN tags.
    #[inline]
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        self.raw.ether_type
    }

    /// Returns the address family: 4 or 6.
    #[inline]
    #[must_use]
    pub fn family(&self) -> u8 {
        self.raw.family
    }

    /// Returns the IP protocol; for IPv6 the upper-layer protocol, behind the extension headers.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.raw.protocol
    }

    /// Returns the offset of the network header.
    #[inline]
    #[must_use]
    pub fn network_offset(&self) -> usize {
        self.raw.network.into()
    }

    /// Returns the offset of the transport header; `None` if it can't be read.
    #[inline]
    #[must_use]
    pub fn transport_offset(&self) -> Option<usize> {
        (self.raw.transport != NO_OFFSET).then_some(self.raw.transport.into())
    }

    /// Returns the window from the network header on.
    #[inline]
    #[must_use]
    pub fn network(&self) -> &[u8] {
        self.window().get(self.network_offset()..).unwrap_or_default()
    }

    /// Returns the window from the transport header on; empty if the header can't be read.
    #[inline]
    #[must_use]
    pub fn transport(&self) -> &[u8] {
        self.transport_offset().and_then(|offset| self.window().get(offset..)).unwrap_or_default()
    }

    /// Returns source and destination address if the window contains them.
    #[must_use]
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let header = self.network();
        if self.raw.family == 4 {
            let at = |offset: usize| -> Option<Ipv4Addr> {
                Some(Ipv4Addr::from(*header.get(offset..)?.first_chunk::<4>()?))
            };
            return Some((at(12)?.into(), at(16)?.into()));
        }
        let at = |offset: usize| -> Option<Ipv6Addr> {
            Some(Ipv6Addr::from(*header.get(offset..)?.first_chunk::<16>()?))
        };
        Some((at(8)?.into(), at(24)?.into()))
    }

    /// Returns the source port of TCP, UDP, SCTP and UDP-Lite; 0 for other protocols or an unreadable header.
    #[inline]
    #[must_use]
    pub fn source_port(&self) -> u16 {
        self.raw.source_port
    }

    /// Returns the destination port of TCP, UDP, SCTP and UDP-Lite; 0 for other protocols or an unreadable
    /// header.
    #[inline]
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        self.raw.destination_port
    }

    /// Returns the number of the ingress port.
    #[inline]
    #[must_use]
    pub fn port(&self) -> u16 {
        self.raw.port
    }

    /// Returns the exception bits: see [`exceptions`](crate::exceptions).
    #[inline]
    #[must_use]
    pub fn exceptions(&self) -> u8 {
        self.raw.exceptions
    }

    /// Returns the packet's tag, 0 to 31, which plugins set and filters match.
    #[inline]
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.raw.tag
    }

    /// Sets the packet's tag to the lowest five bits of `tag`.
    #[inline]
    pub fn set_tag(&mut self, tag: u8) {
        self.raw.tag = tag & 31;
    }

    /// Returns the number of the flow or connection, or `None` if the router has no record of it. The number stays
    /// the same while the router keeps the record.
    #[inline]
    #[must_use]
    pub fn flow(&self) -> Option<u32> {
        (self.raw.flow != 0).then_some(self.raw.flow)
    }

    /// Returns the state of the flow or connection, with the size of the manifest's `flow_state`. It is all zeros at
    /// first, and empty if the router keeps no state for this flow.
    #[inline]
    #[must_use]
    pub fn flow_bytes(&mut self) -> &mut [u8] {
        if self.raw.state == 0 {
            return &mut [];
        }
        // SAFETY: the router guarantees the state there, with the size of the manifest (`Packet::new`).
        unsafe { slice::from_raw_parts_mut(self.raw.state as usize as *mut u8, self.state_bytes.into()) }
    }

    /// Returns the flow's state as a value of type `T`; `None` without state, or if the state is smaller than
    /// `T`.
    #[inline]
    #[must_use]
    pub fn flow_state<T: Plain>(&mut self) -> Option<T> {
        T::read(self.flow_bytes())
    }

    /// Sets the flow's state. Returns `false` without state, or if the state is smaller than `T`.
    #[inline]
    pub fn set_flow_state<T: Plain>(&mut self, state: &T) -> bool {
        state.write(self.flow_bytes())
    }

    /// Returns the current verdict; [`Verdict::Pass`] at first.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.raw)
    }

    /// Sets the verdict.
    #[inline]
    pub fn set(&mut self, verdict: Verdict) {
        verdict.set(self.raw);
    }

    /// Sets the verdict to drop the packet, under a drop reason of the plugin, 0 to 31.
    #[inline]
    pub fn drop_for(&mut self, reason: u8) {
        self.set(Verdict::Drop(reason));
    }

    /// Reads bytes at any offset, also behind the window. Returns the number of bytes read. Capability
    /// `packet-read`.
    pub fn read(&self, offset: u32, to: &mut [u8]) -> usize {
        host::packet_read(self.raw.number, offset, to)
    }

    /// Writes bytes at any offset, also behind the window. Returns the number of bytes written. Capability
    /// `packet-write`.
    pub fn write(&mut self, offset: u32, from: &[u8]) -> usize {
        host::packet_write(self.raw.number, offset, from)
    }

    /// Returns the backlog of the packet's queue, of this instance, and of the principal that pays for the call. `None` without the capability
    /// `flow-backlog`.
    #[must_use]
    pub fn backlog(&self) -> Option<Backlog> {
        host::flow_backlog(self.raw.number).map(Backlog::of)
    }

    /// Sends the packet from its link header on, but at most 2,048 bytes of it, to the plugin's host
    /// companion. Returns whether the router accepted the message. Capabilities `message` and `packet-read`.
    #[must_use]
    pub fn punt(&self) -> bool {
        let mut bytes = [0; 2048];
        let length = self.read(0, &mut bytes);
        host::send(&bytes[..length])
    }

    /// Adds `bytes` zero bytes at the packet's front; a negative number removes bytes. Returns whether this
    /// was possible. The window keeps its old content: use [`read`](Self::read) for the new content.
    /// Capability `packet-resize`.
    pub fn resize(&mut self, bytes: i32) -> bool {
        host::packet_resize(self.raw.number, bytes)
    }
}
