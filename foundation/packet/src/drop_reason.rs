//! Reasons for packet drops. A reason has one name in counters, traces, the API and the documentation.

use std::fmt;

macro_rules! drop_reasons {
    ($(#[doc = $doc:literal] $variant:ident = $name:literal,)+) => {
        /// Reason for a packet drop.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason { $(#[doc = $doc] $variant,)+ }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the name of the reason in counters, JSON and messages.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns a sentence that explains the reason.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc.trim_ascii(),)+ }
            }
        }
    };
}

drop_reasons! {
    /// The frame is shorter than a link header, or ends inside a VLAN tag.
    LinkShort = "link_short",
    /// The frame is longer than the port's MTU allows and can't be segmented.
    LinkOversize = "link_oversize",
    /// The source MAC address is zero, broadcast or multicast.
    LinkSource = "link_source",
    /// The destination MAC address is not the address of the port.
    LinkNotOurs = "link_not_ours",
    /// Unicast IP in a broadcast or multicast frame (RFC 1812, 5.3.4).
    LinkBroadcast = "link_broadcast",
    /// The router does not forward this EtherType.
    EtherType = "ether_type",
    /// No sub-interface has the frame's VLAN tags.
    VlanUnknown = "vlan_unknown",
    /// Fewer bytes than an IPv4 header.
    Ip4Short = "ip4_short",
    /// The version field of an IPv4 packet is not 4.
    Ip4Version = "ip4_version",
    /// The IPv4 header length is below 5 words.
    Ip4HeaderLength = "ip4_header_length",
    /// The IPv4 total length is shorter than the header.
    Ip4TotalLength = "ip4_total_length",
    /// The frame holds fewer bytes than the IPv4 total length says.
    Ip4Truncated = "ip4_truncated",
    /// The IPv4 header checksum is wrong.
    Ip4Checksum = "ip4_checksum",
    /// A malformed IPv4 option.
    Ip4Option = "ip4_option",
    /// A source-routed IPv4 packet (RFC 7126, 4.3).
    Ip4SourceRoute = "ip4_source_route",
    /// A fragment that ends beyond 65,535 bytes, overlaps its transport header, or cuts it where a filter applies.
    Ip4Fragment = "ip4_fragment",
    /// Fewer bytes than an IPv6 header.
    Ip6Short = "ip6_short",
    /// The version field of an IPv6 packet is not 6.
    Ip6Version = "ip6_version",
    /// The frame holds fewer bytes than the IPv6 payload length says.
    Ip6Truncated = "ip6_truncated",
    /// A jumbo payload option (RFC 2675), which is not supported.
    Ip6Jumbo = "ip6_jumbo",
    /// A transport header that is cut, or behind too many IPv6 extension headers, where a filter applies (RFC 7112).
    Ip6HeaderChain = "ip6_header_chain",
    /// An IPv6 packet with more than one fragment header (RFC 8200, 4.1).
    Ip6RepeatedFragment = "ip6_repeated_fragment",
    /// A source address that must not appear on the wire, or is the router's own.
    MartianSource = "martian_source",
    /// A destination address that must not be forwarded to.
    MartianDestination = "martian_destination",
    /// A multicast destination without a multicast route.
    Multicast = "multicast",
    /// A directed or limited broadcast destination.
    Broadcast = "broadcast",
    /// The TTL or hop limit has expired.
    TtlExpired = "ttl_expired",
    /// No route to the destination.
    NoRoute = "no_route",
    /// Forwarding is off at the ingress port.
    ForwardingOff = "forwarding_off",
    /// A route of type blackhole.
    Blackhole = "blackhole",
    /// A route of type unreachable.
    Unreachable = "unreachable",
    /// A route of type prohibit.
    Prohibited = "prohibited",
    /// The next hop did not answer ARP or neighbour discovery.
    NeighbourFailed = "neighbour_failed",
    /// Too many packets wait for the resolution of this next hop, or of all next hops.
    NeighbourQueueFull = "neighbour_queue_full",
    /// The packet exceeds the MTU of its egress port and must not be fragmented.
    TooBig = "too_big",
    /// A plugin instance dropped the packet.
    Plugin = "plugin",
    /// A plugin instance is busy, and too many packets already wait for it.
    PluginBusy = "plugin_busy",
    /// Too many packets of the flow wait for the principal's share of the processor.
    PrincipalQueueFull = "principal_queue_full",
    /// The principal has no memory left for waiting packets.
    PrincipalMemory = "principal_memory",
    /// The principal has used up its part of the memory and queues in which the packets of all principals wait.
    PrincipalPart = "principal_part",
    /// The principal for which the packet waited was released, and its packets were to be dropped.
    PrincipalReleased = "principal_released",
    /// Too many packets for the router itself wait, because control is at its share of the processor.
    ControlCeiling = "control_ceiling",
    /// Core is overloaded and at its share of the processor, and the packet has no promise.
    CoreCeiling = "core_ceiling",
    /// A plugin instance failed, is pausing after that, or is in quarantine.
    PluginFailed = "plugin_failed",
    /// The packet would open a connection, but the table is full of connections that both sides have confirmed.
    ConnectionTableFull = "connection_table_full",
    /// The packet would open a connection, but its source has its maximum of connections.
    ConnectionSourceFull = "connection_source_full",
    /// Plugin instances sent the packet to each other, or back to classification, too often.
    PluginLoop = "plugin_loop",
    /// A filter with the action drop matches the packet.
    Filter = "filter",
    /// The token bucket of a filter is empty.
    Policer = "policer",
    /// Control-plane policing: packets to the router itself exceed the rate of their class.
    ControlPlane = "control_plane",
    /// No route leads back to the packet's source, or none by the ingress port (RFC 3704).
    ReversePath = "reverse_path",
    /// The flow is new, and the router is overloaded and limits the number of new flows.
    NewFlows = "new_flows",
    /// The egress port is down or was removed.
    PortDown = "port_down",
    /// The queue of the egress port is full.
    QueueFull = "queue_full",
    /// RED or CoDel dropped the packet, because the backlog of the egress queue persisted.
    QueueManaged = "queue_managed",
    /// The queue of the egress port was removed with the port.
    QueueRemoved = "queue_removed",
    /// The worker that must handle the packet next is overloaded, so the hand-over failed.
    HandoverFull = "handover_full",
    /// The egress port refused the packet.
    TransmitFailed = "transmit_failed",
    /// The device's receive ring was full: the router was slower than the wire.
    ReceiveRingFull = "receive_ring_full",
    /// No packet memory was left.
    NoMemory = "no_memory",
    /// The packet is addressed to the router itself, by a protocol that it does not speak on this port.
    LocalUnknown = "local_unknown",
    /// An ARP or neighbour discovery message is malformed, or fails a check of its protocol.
    NeighbourMessage = "neighbour_message",
    /// The kernel refused a packet that the router gave to it.
    HostRefused = "host_refused",
    /// A configured impairment lost the packet.
    Impaired = "impaired",
}

impl DropReason {
    /// Returns the number of the reason: its index in [`DropReason::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the reason of a name, which may be written with hyphens: `new-flows` is `new_flows`.
    pub fn from_name(name: &str) -> Option<Self> {
        let same = |(own, given): (u8, u8)| own == given || (own, given) == (b'_', b'-');
        let is_named = |own: &str| own.len() == name.len() && own.bytes().zip(name.bytes()).all(same);
        Self::ALL.iter().copied().find(|reason| is_named(reason.name()))
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Numbers of dropped packets by reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropCounts([u64; DropReason::ALL.len()]);

impl Default for DropCounts {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl DropCounts {
    /// Adds `packets` to the count of `reason`.
    #[inline]
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        *self.count(reason) += packets;
    }

    /// Subtracts `packets` from the count of `reason`.
    #[inline]
    pub fn subtract(&mut self, reason: DropReason, packets: u64) {
        let count = self.count(reason);
        *count = count.saturating_sub(packets);
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "there is a count for each of the reasons, by their index")]
    fn count(&mut self, reason: DropReason) -> &mut u64 {
        &mut self.0[reason.index()]
    }

    /// Returns the number of packets dropped for `reason`.
    #[inline]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0.get(reason.index()).copied().unwrap_or(0)
    }

    /// Returns the number of packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Iterates over the reasons with a count above zero, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|reason| (*reason, self.get(*reason))).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for reason in DropReason::ALL {
            assert_eq!(DropReason::from_name(reason.name()), Some(*reason));
            assert_eq!(DropReason::from_name(&reason.name().replace('_', "-")), Some(*reason));
            assert!(reason.meaning().ends_with('.'), "{reason}");
        }
    }

    #[test]
    fn counts_add_up() {
        let mut counts = DropCounts::default();
        counts.add(DropReason::NoRoute, 2);
        counts.add(DropReason::Plugin, 3);
        assert_eq!(counts.total(), 5);
        assert_eq!(counts.iter().count(), 2);
    }
}
