//! A packet as a plugin sees it, and what can be said of it.
//!
//! Nothing here panics: what is not there is `None`, or fewer bytes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::slice;

use millrace_plugin_abi::binary::{NO_OFFSET, RawPacket, packet_flags, verdict};

use crate::{Backlog, Plain, host};

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It is dropped, for a reason of the plugin's own, 0 to 31.
    Drop(u8),
    /// It is used up.
    Consume,
    /// It leaves by this port, whatever its route.
    Port(u16),
    /// It leaves by each port whose bit is set.
    Ports(u64),
    /// It goes on, to this queue of its port.
    Queue(u16),
    /// This instance gets it next, and then it goes on behind this one.
    Instance(u16),
    /// It is classified anew, with the tag that it has now.
    Classify,
    /// It goes on at this time, in nanoseconds.
    Hold(u64),
    /// Nothing that the interface knows: a fault of the plugin.
    Fault,
}

impl Verdict {
    pub(crate) fn of(raw: &RawPacket) -> Self {
        match raw.verdict {
            verdict::PASS => Self::Pass,
            verdict::DROP => Self::Drop(raw.reason),
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

/// A packet. Offsets count from its first byte, the beginning of the link header.
pub struct Packet<'a> {
    raw: &'a mut RawPacket,
    state_bytes: u16,
}

impl<'a> Packet<'a> {
    /// # Safety
    /// The window and the state that `raw` names are the caller's to give out as long as `raw` is borrowed.
    #[inline]
    pub(crate) unsafe fn new(raw: &'a mut RawPacket, state_bytes: u16) -> Self {
        Self { raw, state_bytes }
    }

    /// Bytes of the whole packet, link header included.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no packet is empty")]
    pub fn len(&self) -> usize {
        self.raw.length as usize
    }

    /// Its first bytes: all of them, or as many as the manifest's `window` says.
    #[inline]
    #[must_use]
    pub fn window(&self) -> &[u8] {
        if self.raw.window == 0 {
            return &[];
        }
        // SAFETY: the router has put `window_length` bytes there (`Packet::new`).
        unsafe { slice::from_raw_parts(self.raw.window as usize as *const u8, self.raw.window_length.into()) }
    }

    /// Its first bytes, to be changed. Checksums are the plugin's to mend. Without the capability `packet-write` the packet
    /// stays as it is.
    #[inline]
    #[must_use]
    pub fn window_mut(&mut self) -> &mut [u8] {
        if self.raw.window == 0 {
            return &mut [];
        }
        // SAFETY: the router has put `window_length` bytes there, for this packet alone (`Packet::new`).
        unsafe {
            slice::from_raw_parts_mut(self.raw.window as usize as *mut u8, self.raw.window_length.into())
        }
    }

    /// Whether it is longer than the window. What lies behind it [`read`](Self::read) gets.
    #[inline]
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.raw.flags & packet_flags::MORE != 0
    }

    /// Whether it is a copy: whatever is said of it, it is used up.
    #[inline]
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.raw.flags & packet_flags::COPY != 0
    }

    /// Whether it is the first packet of its flow that the instance gets.
    #[inline]
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.raw.flags & packet_flags::FIRST != 0
    }

    /// The EtherType behind all VLAN tags.
    #[inline]
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        self.raw.ether_type
    }

    /// 4 or 6.
    #[inline]
    #[must_use]
    pub fn family(&self) -> u8 {
        self.raw.family
    }

    /// The protocol above IP; in IPv6 that of the upper layer.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.raw.protocol
    }

    /// Where the network header begins.
    #[inline]
    #[must_use]
    pub fn network_offset(&self) -> usize {
        self.raw.network.into()
    }

    /// Where the transport header begins; `None` when it can't be read.
    #[inline]
    #[must_use]
    pub fn transport_offset(&self) -> Option<usize> {
        (self.raw.transport != NO_OFFSET).then_some(self.raw.transport.into())
    }

    /// The window from the network header on.
    #[inline]
    #[must_use]
    pub fn network(&self) -> &[u8] {
        self.window().get(self.network_offset()..).unwrap_or_default()
    }

    /// The window from the transport header on; empty when it can't be read.
    #[inline]
    #[must_use]
    pub fn transport(&self) -> &[u8] {
        self.transport_offset().and_then(|offset| self.window().get(offset..)).unwrap_or_default()
    }

    /// Source and destination, if the window has them.
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

    /// The source port of TCP, UDP and their like, else 0.
    #[inline]
    #[must_use]
    pub fn source_port(&self) -> u16 {
        self.raw.source_port
    }

    /// The destination port of TCP, UDP and their like, else 0.
    #[inline]
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        self.raw.destination_port
    }

    /// The number of the port that it came in by.
    #[inline]
    #[must_use]
    pub fn port(&self) -> u16 {
        self.raw.port
    }

    /// The exception bits.
    #[inline]
    #[must_use]
    pub fn exceptions(&self) -> u8 {
        self.raw.exceptions
    }

    /// The plugin tag, 0 to 31.
    #[inline]
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.raw.tag
    }

    /// Sets the plugin tag, 0 to 31; of a larger number the lowest five bits.
    #[inline]
    pub fn set_tag(&mut self, tag: u8) {
        self.raw.tag = tag & 31;
    }

    /// A name of the flow that stays the same as long as the router knows it; `None` where it doesn't.
    #[inline]
    #[must_use]
    pub fn flow(&self) -> Option<u32> {
        (self.raw.flow != 0).then_some(self.raw.flow)
    }

    /// The state of its flow: as many bytes as the manifest's `flow_state` says, at first zeros; empty where there is none.
    #[inline]
    #[must_use]
    pub fn flow_bytes(&mut self) -> &mut [u8] {
        if self.raw.state == 0 {
            return &mut [];
        }
        // SAFETY: the router has put the state there, which is as long as the manifest says (`Packet::new`).
        unsafe { slice::from_raw_parts_mut(self.raw.state as usize as *mut u8, self.state_bytes.into()) }
    }

    /// The state of its flow as a value; `None` where there is none, or too little.
    #[inline]
    #[must_use]
    pub fn flow_state<T: Plain>(&mut self) -> Option<T> {
        T::read(self.flow_bytes())
    }

    /// Sets the state of its flow. Returns whether there was room.
    #[inline]
    pub fn set_flow_state<T: Plain>(&mut self, state: &T) -> bool {
        state.write(self.flow_bytes())
    }

    /// What has been said of it so far; [`Verdict::Pass`] at first.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.raw)
    }

    /// Says what becomes of it.
    #[inline]
    pub fn set(&mut self, verdict: Verdict) {
        verdict.set(self.raw);
    }

    /// Drops it, for a reason of the plugin's own, 0 to 31.
    #[inline]
    pub fn drop_for(&mut self, reason: u8) {
        self.set(Verdict::Drop(reason));
    }

    /// Reads bytes behind the window, or anywhere. Returns how many there were. Capability `packet-read`.
    pub fn read(&self, offset: u32, to: &mut [u8]) -> usize {
        host::packet_read(self.raw.number, offset, to)
    }

    /// Writes bytes behind the window. Returns how many there was room for. Capability `packet-write`.
    pub fn write(&mut self, offset: u32, from: &[u8]) -> usize {
        host::packet_write(self.raw.number, offset, from)
    }

    /// What waits before it: in the queue that it goes to, and for this instance. `None` without the capability `flow-backlog`.
    #[must_use]
    pub fn backlog(&self) -> Option<Backlog> {
        host::flow_backlog(self.raw.number).map(Backlog::of)
    }

    /// Sends it to the other half of the plugin, from its link header on: up to 2,048 bytes. Returns whether it was taken.
    /// Capabilities `message` and `packet-read`.
    #[must_use]
    pub fn punt(&self) -> bool {
        let mut bytes = [0; 2048];
        let length = self.read(0, &mut bytes);
        host::send(&bytes[..length])
    }

    /// Makes room of so many bytes at the front; negative: cuts them. Returns whether it could be done. The window is as
    /// before, and no longer the packet's: [`read`](Self::read) what it has now. Capability `packet-resize`.
    pub fn resize(&mut self, bytes: i32) -> bool {
        host::packet_resize(self.raw.number, bytes)
    }
}
