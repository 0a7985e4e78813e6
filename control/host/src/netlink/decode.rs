//! Decoder of rtnetlink messages into [`KernelMessage`]s.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::attribute::{attributes, attributes_after, find, find_after, ip, mac, number, text, word};
use super::rtm;
use crate::forwarding::SwitchesUpdate;
use crate::state::message::{KernelMessage, NextHopObject, Placement, RouteEntry};
use crate::{Family, HostAddress, HostLink, HostNeighbour, HostNextHop, LinkPeer, NeighbourState, RouteKind};

/// Decodes one message. Returns `None` if the mirror doesn't keep such objects, or if the message is shorter
/// than its type demands.
pub(crate) fn decode(kind: u16, flags: u16, payload: &[u8]) -> Option<KernelMessage> {
    let family = payload.first().copied().unwrap_or(0);
    let internet = Family::from_number(family);
    match kind {
        // A bridge reports its ports by link messages with another family. Only messages with family 0
        // describe the device itself.
        rtm::NEWLINK if family == 0 => link(payload).map(KernelMessage::Link),
        rtm::DELLINK if family == 0 => word(payload, 4).map(KernelMessage::LinkGone),
        rtm::NEWADDR if internet.is_some() => address(payload).map(KernelMessage::Address),
        rtm::DELADDR if internet.is_some() => address(payload).map(KernelMessage::AddressGone),
        rtm::NEWROUTE | rtm::DELROUTE if mirrored_route(payload) => {
            route_message(kind, flags, payload, internet?)
        }
        rtm::NEWNEIGH | rtm::DELNEIGH if internet.is_some() => neighbour_message(kind, payload),
        rtm::NEWNEXTHOP => next_hop_object(payload).map(KernelMessage::NextHop),
        rtm::DELNEXTHOP => next_hop_object(payload).map(|object| KernelMessage::NextHopGone(object.id)),
        rtm::NEWQDISC | rtm::DELQDISC => word(payload, 4).map(KernelMessage::Queueing),
        rtm::NEWNETCONF => switches(payload, internet?, false),
        rtm::DELNETCONF => switches(payload, internet?, true),
        _ => None,
    }
}

fn link(payload: &[u8]) -> Option<HostLink> {
    let flags = word(payload, 8)? as i32;
    let mut link = HostLink {
        ifindex: word(payload, 4)?,
        admin_up: flags & libc::IFF_UP != 0,
        carrier: flags & libc::IFF_LOWER_UP != 0,
        loopback: flags & libc::IFF_LOOPBACK != 0,
        rx_queues: 1,
        tx_queues: 1,
        ..HostLink::default()
    };
    let mut namespace = None;
    let mut lower = None;
    for (kind, value) in attributes_after(payload, 16) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_ADDRESS => link.mac = mac(value),
            libc::IFLA_MTU => link.mtu = number(value)?,
            libc::IFLA_LINK => lower = number(value).filter(|index| *index != 0),
            libc::IFLA_LINK_NETNSID => namespace = number(value).map(|id| id as i32),
            libc::IFLA_MASTER => link.master = number(value).filter(|index| *index != 0),
            libc::IFLA_CARRIER => link.carrier = number(value)? != 0,
            libc::IFLA_NUM_RX_QUEUES => link.rx_queues = number(value)?,
            libc::IFLA_NUM_TX_QUEUES => link.tx_queues = number(value)?,
            libc::IFLA_LINKINFO => {
                link.kind = find(value, libc::IFLA_INFO_KIND).map(text);
                link.master_kind = find(value, libc::IFLA_INFO_SLAVE_KIND).map(text);
            }
            libc::IFLA_XDP => link.xdp = xdp(value),
            _ => {}
        }
    }
    link.peer = lower.map(|ifindex| LinkPeer { ifindex, namespace });
    Some(link)
}

/// Returns the id of the attached program.
fn xdp(value: &[u8]) -> Option<u32> {
    const ATTACHED: u16 = 2;
    const PROGRAM: u16 = 4;
    const PROGRAM_BY_MODE: std::ops::RangeInclusive<u16> = 5..=7;
    find(value, ATTACHED).and_then(number).filter(|mode| *mode != 0)?;
    let by_mode = || attributes(value).find(|(kind, _)| PROGRAM_BY_MODE.contains(kind)).map(|(_, id)| id);
    find(value, PROGRAM).or_else(by_mode).and_then(number)
}

fn address(payload: &[u8]) -> Option<HostAddress> {
    const TENTATIVE: u32 = 0x40;
    const DUPLICATE: u32 = 0x08;
    let prefix_length = *payload.get(1)?;
    let mut flags = u32::from(*payload.get(2)?);
    let (mut local, mut far) = (None, None);
    for (kind, value) in attributes_after(payload, 8) {
        match kind {
            libc::IFA_LOCAL => local = ip(value),
            libc::IFA_ADDRESS => far = ip(value),
            libc::IFA_FLAGS => flags = number(value)?,
            _ => {}
        }
    }
    let address = local.or(far)?;
    Some(HostAddress {
        ifindex: word(payload, 4)?,
        address,
        prefix_length: prefix_length.min(if address.is_ipv4() { 32 } else { 128 }),
        peer: far.filter(|far| *far != address),
        tentative: address.is_ipv6() && flags & (TENTATIVE | DUPLICATE) != 0,
    })
}

fn neighbour_message(kind: u16, payload: &[u8]) -> Option<KernelMessage> {
    // Ignore entries whose link address the kernel derives from the IP address: the kernel adds and removes
    // them without a message.
    let neighbour = neighbour(payload).filter(|neighbour| !derived(neighbour))?;
    Some(match kind {
        rtm::NEWNEIGH => KernelMessage::Neighbour(neighbour),
        _ => KernelMessage::NeighbourGone(neighbour),
    })
}

/// Whether the kernel has derived the link address from the IP address: multicast, broadcast or loopback.
fn derived(neighbour: &HostNeighbour) -> bool {
    let for_one = |mac: [u8; 6]| mac != [0; 6] && mac[0] & 1 == 0;
    neighbour.state == NeighbourState::NoArp && !neighbour.mac.is_some_and(for_one)
}

fn neighbour(payload: &[u8]) -> Option<HostNeighbour> {
    const DST: u16 = 1;
    const LLADDR: u16 = 2;
    let bits = u16::from_ne_bytes([*payload.get(8)?, *payload.get(9)?]);
    let mut neighbour = HostNeighbour {
        ifindex: word(payload, 4)?,
        ip: ip(find(payload.get(12..)?, DST)?)?,
        mac: None,
        state: NeighbourState::from_bits(bits),
    };
    neighbour.mac = find(&payload[12..], LLADDR).and_then(mac).filter(|_| neighbour.state.valid());
    Some(neighbour)
}

/// Whether a route is in a mirrored table, and is not a cached copy of another route.
fn mirrored_route(payload: &[u8]) -> bool {
    const CLONED: u32 = 0x200;
    let table = route_table(payload);
    (253..=255).contains(&table) && word(payload, 8).is_some_and(|flags| flags & CLONED == 0)
}

fn route_table(payload: &[u8]) -> u32 {
    let short = payload.get(4).copied().map_or(0, u32::from);
    find_after(payload, 12, libc::RTA_TABLE).and_then(number).unwrap_or(short)
}

fn route_message(kind: u16, flags: u16, payload: &[u8], family: Family) -> Option<KernelMessage> {
    let entry = route(payload, family)?;
    if kind == rtm::DELROUTE {
        return Some(KernelMessage::RouteGone(entry));
    }
    let placement = if flags & libc::NLM_F_REPLACE as u16 != 0 {
        Placement::Replace
    } else if flags & libc::NLM_F_APPEND as u16 != 0 {
        Placement::Append
    } else {
        Placement::Prepend
    };
    Some(KernelMessage::Route(entry, placement))
}

fn route(payload: &[u8], family: Family) -> Option<RouteEntry> {
    let flags = word(payload, 8)? as u8;
    let mut entry = RouteEntry {
        prefix: default_prefix(family),
        kind: route_kind(*payload.get(7)?),
        table: route_table(payload),
        protocol: *payload.get(5)?,
        scope: *payload.get(6)?,
        service_type: *payload.get(3)?,
        from_source: *payload.get(2)? != 0,
        metric: 0,
        preferred_source: None,
        next_hop_id: None,
        next_hops: Vec::new(),
        mtu: None,
    };
    let mut single = NextHopFields { flags, ..NextHopFields::default() };
    let length = *payload.get(1)?;
    for (kind, value) in attributes_after(payload, 12) {
        match kind {
            libc::RTA_DST => entry.prefix = IpNet::new(ip(value)?, length).ok()?.trunc(),
            libc::RTA_PRIORITY => entry.metric = number(value)?,
            libc::RTA_PREFSRC => entry.preferred_source = ip(value),
            libc::RTA_METRICS => entry.mtu = find(value, 2).and_then(number).filter(|mtu| *mtu != 0),
            libc::RTA_MULTIPATH => entry.next_hops = multipath(value),
            RTA_NH_ID => entry.next_hop_id = number(value).filter(|id| *id != 0),
            libc::RTA_OIF => single.ifindex = number(value)?,
            _ => single.read(kind, value),
        }
    }
    if entry.next_hops.is_empty() && single.ifindex != 0 {
        entry.next_hops.push(single.next_hop(1));
    }
    Some(entry)
}

const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_NH_ID: u16 = 30;

fn default_prefix(family: Family) -> IpNet {
    match family {
        Family::Ipv4 => IpNet::new_assert(Ipv4Addr::UNSPECIFIED.into(), 0),
        Family::Ipv6 => IpNet::new_assert(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

fn route_kind(number: u8) -> RouteKind {
    match number {
        libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL => RouteKind::Local,
        libc::RTN_BROADCAST => RouteKind::Broadcast,
        libc::RTN_ANYCAST => RouteKind::Anycast,
        libc::RTN_MULTICAST => RouteKind::Multicast,
        libc::RTN_BLACKHOLE => RouteKind::Blackhole,
        libc::RTN_UNREACHABLE => RouteKind::Unreachable,
        libc::RTN_PROHIBIT => RouteKind::Prohibit,
        libc::RTN_THROW => RouteKind::Throw,
        _ => RouteKind::Other,
    }
}

#[derive(Default)]
struct NextHopFields {
    ifindex: u32,
    flags: u8,
    gateway: Option<IpAddr>,
    encap: bool,
}

impl NextHopFields {
    fn read(&mut self, kind: u16, value: &[u8]) {
        match kind {
            libc::RTA_GATEWAY => self.gateway = ip(value),
            // `RTA_VIA`: two bytes with the family, then the address. Used for an IPv4 route through an IPv6
            // gateway.
            RTA_VIA => self.gateway = value.get(2..).and_then(ip),
            RTA_ENCAP_TYPE => self.encap = number(value).is_some_and(|kind| kind != 0),
            _ => {}
        }
    }

    fn next_hop(&self, weight: u32) -> HostNextHop {
        const DEAD: u8 = 1;
        const ONLINK: u8 = 4;
        HostNextHop {
            ifindex: self.ifindex,
            gateway: self.gateway,
            weight,
            onlink: self.flags & ONLINK != 0,
            dead: self.flags & DEAD != 0,
            encap: self.encap,
        }
    }
}

/// Decodes `struct rtnexthop` entries: length, flags, weight minus one, device; then attributes.
fn multipath(mut bytes: &[u8]) -> Vec<HostNextHop> {
    let mut hops = Vec::new();
    while let Some(header) = bytes.get(..8) {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let Some(body) = bytes.get(8..length) else { break };
        let mut fields =
            NextHopFields { ifindex: word(header, 4).unwrap_or(0), flags: header[2], ..Default::default() };
        attributes(body).for_each(|(kind, value)| fields.read(kind, value));
        hops.push(fields.next_hop(u32::from(header[3]) + 1));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

fn next_hop_object(payload: &[u8]) -> Option<NextHopObject> {
    const ID: u16 = 1;
    const GROUP: u16 = 2;
    const BLACKHOLE: u16 = 4;
    const OIF: u16 = 5;
    const GATEWAY: u16 = 6;
    const ENCAP_TYPE: u16 = 7;
    let mut fields = NextHopFields { flags: word(payload, 4)? as u8, ..Default::default() };
    let (mut id, mut group, mut blackhole) = (None, None, false);
    for (kind, value) in attributes_after(payload, 8) {
        match kind {
            ID => id = number(value),
            GROUP => group = Some(value.chunks_exact(8).map(group_member).collect()),
            BLACKHOLE => blackhole = true,
            OIF => fields.ifindex = number(value)?,
            GATEWAY => fields.gateway = ip(value),
            ENCAP_TYPE => fields.encap = number(value).is_some_and(|kind| kind != 0),
            _ => {}
        }
    }
    let hop = (fields.ifindex != 0).then(|| fields.next_hop(1));
    Some(NextHopObject { id: id?, group, blackhole, hop })
}

/// Decodes `struct nexthop_grp`: id, weight minus one, high byte of the weight (Linux 6.12 and up), reserved.
fn group_member(entry: &[u8]) -> (u32, u32) {
    let id = u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
    (id, u32::from(entry[4]) + (u32::from(entry[5]) << 8) + 1)
}

fn switches(payload: &[u8], family: Family, gone: bool) -> Option<KernelMessage> {
    const IFINDEX: u16 = 1;
    const ALL: i32 = -1;
    let mut ifindex = 0i32;
    let mut update = SwitchesUpdate::default();
    for (kind, value) in attributes_after(payload, 1) {
        let value = number(value)?;
        match kind {
            IFINDEX => ifindex = value as i32,
            2 => update.forwarding = Some(value != 0),
            3 => update.rp_filter = Some(value as u8),
            4 => update.multicast_forwarding = Some(value != 0),
            9 => update.force_forwarding = Some(value != 0),
            _ => {}
        }
    }
    let ifindex = match ifindex {
        ALL => None,
        1.. => Some(ifindex as u32),
        _ => return None,
    };
    if gone {
        return ifindex.map(|ifindex| KernelMessage::SwitchesGone { ifindex, family });
    }
    Some(KernelMessage::Switches { ifindex, family, update })
}
