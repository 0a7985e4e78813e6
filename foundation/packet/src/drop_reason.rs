//! Why a packet was dropped: one name per reason, the same in counters, traces, the API and the documentation.

use std::fmt;

macro_rules! drop_reasons {
    ($(#[doc = $doc:literal] $variant:ident = $name:literal,)+) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason { $(#[doc = $doc] $variant,)+ }

        impl DropReason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The reason's name in counters, JSON and messages.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What the reason means, in a sentence.
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
    /// The destination MAC address is not the port's.
    LinkNotOurs = "link_not_ours",
    /// Unicast IP in a broadcast or multicast frame (RFC 1812, 5.3.4).
    LinkBroadcast = "link_broadcast",
    /// The EtherType is not one that the router forwards.
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
    /// A fragment that would reassemble to more than 65,535 bytes, or overlap its transport header, or cuts it while a filter judges packets.
    Ip4Fragment = "ip4_fragment",
    /// Fewer bytes than an IPv6 header.
    Ip6Short = "ip6_short",
    /// The version field of an IPv6 packet is not 6.
    Ip6Version = "ip6_version",
    /// The frame holds fewer bytes than the IPv6 payload length says.
    Ip6Truncated = "ip6_truncated",
    /// A jumbo payload option (RFC 2675), which is not supported.
    Ip6Jumbo = "ip6_jumbo",
    /// The transport header lies behind more IPv6 extension headers than are read, or a fragment cuts it, while a filter judges packets (RFC 7112).
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
    /// The TTL or hop limit ran out.
    TtlExpired = "ttl_expired",
    /// No route to the destination.
    NoRoute = "no_route",
    /// Forwarding is off at the port that it came in by.
    ForwardingOff = "forwarding_off",
    /// A route of type blackhole.
    Blackhole = "blackhole",
    /// A route of type unreachable.
    Unreachable = "unreachable",
    /// A route of type prohibit.
    Prohibited = "prohibited",
    /// The next hop did not answer ARP or neighbour discovery.
    NeighbourFailed = "neighbour_failed",
    /// Too many packets wait for this next hop, or for all of them, to be resolved.
    NeighbourQueueFull = "neighbour_queue_full",
    /// The packet exceeds the MTU of its way out and must not be fragmented.
    TooBig = "too_big",
    /// A plugin instance dropped it.
    Plugin = "plugin",
    /// A plugin instance is busy, and too many packets wait for it already.
    PluginBusy = "plugin_busy",
    /// A plugin instance failed, is pausing after that, or is in quarantine.
    PluginFailed = "plugin_failed",
    /// Plugin instances sent it to one another, or back to classification, too often.
    PluginLoop = "plugin_loop",
    /// A filter says so.
    Filter = "filter",
    /// More came than the token bucket of a filter lets through.
    Policer = "policer",
    /// It is for the router itself, and more came of its class than that bears: control-plane policing.
    ControlPlane = "control_plane",
    /// No route leads back to its source, or not by the port that it came in by (RFC 3704).
    ReversePath = "reverse_path",
    /// Its flow is new, and while more comes than the router bears only so many new flows are classified.
    NewFlows = "new_flows",
    /// The port to leave by is down or was removed.
    PortDown = "port_down",
    /// The queue of the port to leave by is full.
    QueueFull = "queue_full",
    /// The queue of the port to leave by was long for too long: RED or CoDel let it go.
    QueueManaged = "queue_managed",
    /// The queue of the port to leave by was removed with it.
    QueueRemoved = "queue_removed",
    /// The worker that its flow or its way out belongs to has too much to do: no room was left to hand it over.
    HandoverFull = "handover_full",
    /// The port to leave by refused the packet.
    TransmitFailed = "transmit_failed",
    /// The device's receive ring was full: the router was slower than the wire.
    ReceiveRingFull = "receive_ring_full",
    /// No packet memory was left.
    NoMemory = "no_memory",
    /// Addressed to the router itself, by a protocol it does not speak on such a port.
    LocalUnknown = "local_unknown",
    /// An ARP or neighbour discovery message that is malformed or that rules forbid to believe.
    NeighbourMessage = "neighbour_message",
    /// The kernel refused a packet that was handed to it.
    HostRefused = "host_refused",
    /// An impairment that was asked for lost the packet.
    Impaired = "impaired",
}

impl DropReason {
    /// The reason's number: its place in [`DropReason::ALL`].
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

/// How many packets were dropped for each reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropCounts([u64; DropReason::ALL.len()]);

impl Default for DropCounts {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl DropCounts {
    /// Counts `packets` more for `reason`.
    #[inline]
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        *self.count(reason) += packets;
    }

    /// Takes away `packets` that were counted for `reason`.
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

    /// Packets dropped for `reason`.
    #[inline]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0.get(reason.index()).copied().unwrap_or(0)
    }

    /// Packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that occurred, with their counts.
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
