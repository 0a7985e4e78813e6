//! Twin of the classifier of bpf/classifier.h: a slow and simple Rust version, for comparison with the
//! programs.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{VlanStack, VlanTag};

/// Receiver of a frame that the classifier chooses. If the receiver is the kernel, the verdict includes the
/// reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    UserSpace,
    OtherEthertype,
    NotOurs,
    Local,
    Multicast,
    Vlan,
}

/// Contents of a port's maps: the addresses and VLANs that the classifier knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knowledge {
    pub(crate) mac: [u8; 6],
    pub(crate) local4: HashSet<Ipv4Addr>,
    pub(crate) local6: HashSet<Ipv6Addr>,
    pub(crate) vlans: HashSet<VlanStack>,
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().unwrap()))
}

fn is_tag(ethertype: u16) -> bool {
    ethertype == 0x8100 || ethertype == 0x88a8
}

/// Returns the verdict on a frame that contains all its VLAN tags.
pub(crate) fn classify(frame: &[u8], port: &Knowledge) -> Verdict {
    let Some(mut ethertype) = half(frame, 12) else { return Verdict::OtherEthertype };
    let mut at = 14;
    let mut tags = Vec::new();
    for _ in 0..2 {
        let (true, Some(tci), Some(next)) = (is_tag(ethertype), half(frame, at), half(frame, at + 2)) else {
            break;
        };
        tags.push(VlanTag { tpid: ethertype, vid: tci & 0xfff });
        (ethertype, at) = (next, at + 4);
    }
    if is_tag(ethertype) {
        return Verdict::Vlan;
    }
    let group = frame[0] & 1 == 1;
    let own = frame[..6] == port.mac;
    tags.retain(|tag| tag.vid != 0);
    if let Some(&outer) = tags.first() {
        let known = port.vlans.contains(&VlanStack { outer, inner: tags.get(1).copied() });
        return match (known, group || own) {
            (false, _) => Verdict::Vlan,
            (true, true) => Verdict::UserSpace,
            (true, false) => Verdict::NotOurs,
        };
    }
    match ethertype {
        0x0800 | 0x86dd if group => Verdict::Multicast,
        0x0800 | 0x86dd if !own => Verdict::NotOurs,
        0x0800 => classify_ipv4(&frame[at..], port),
        0x86dd => classify_ipv6(&frame[at..], port),
        _ => Verdict::OtherEthertype,
    }
}

fn classify_ipv4(packet: &[u8], port: &Knowledge) -> Verdict {
    let Some(to) = packet.get(16..20) else { return Verdict::UserSpace };
    let to = Ipv4Addr::new(to[0], to[1], to[2], to[3]);
    match packet[0] {
        0x45..=0x4f if to.is_multicast() || to.is_broadcast() || to.is_unspecified() => Verdict::Multicast,
        0x45..=0x4f if port.local4.contains(&to) => Verdict::Local,
        _ => Verdict::UserSpace,
    }
}

fn classify_ipv6(packet: &[u8], port: &Knowledge) -> Verdict {
    let Some(to) = packet.get(24..40) else { return Verdict::UserSpace };
    let to = Ipv6Addr::from(<[u8; 16]>::try_from(to).unwrap());
    match packet[0] >> 4 {
        6 if to.is_multicast() => Verdict::Multicast,
        6 if to.is_unspecified() || to.is_unicast_link_local() || port.local6.contains(&to) => Verdict::Local,
        _ => Verdict::UserSpace,
    }
}
