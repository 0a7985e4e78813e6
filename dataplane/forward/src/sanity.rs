//! Martian addresses: source and destination addresses that must not be forwarded (RFC 1812, 5.3.7; RFC 6890;
//! RFC 4291).
//!
//! Linux forwards some ranges that the RFCs advise against (0/8, 240/4, 169.254/16). [`MartianPolicy`] has a
//! setting for each of them.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_packet::DropReason;

/// Special-purpose IPv4 addresses that are forwarded although they are martians. The default forwards none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MartianPolicy {
    /// Whether 0.0.0.0/8 is forwarded, except 0.0.0.0 itself (MA-02).
    pub forward_this_network: bool,
    /// Whether 127.0.0.0/8 is forwarded (MA-01).
    pub forward_loopback: bool,
    /// Whether 169.254.0.0/16 is forwarded (MA-05, RFC 3927, 7).
    pub forward_link_local: bool,
    /// Whether 240.0.0.0/4 is forwarded, except 255.255.255.255 (MA-04).
    pub forward_class_e: bool,
}

impl MartianPolicy {
    /// Returns whether this policy forbids forwarding to or from a unicast address.
    #[inline]
    fn forbids(self, address: Ipv4Addr) -> bool {
        let [a, b, ..] = address.octets();
        match a {
            0 => address.is_unspecified() || !self.forward_this_network,
            127 => !self.forward_loopback,
            169 => b == 254 && !self.forward_link_local,
            240.. => address.is_broadcast() || !self.forward_class_e,
            _ => false,
        }
    }
}

/// Returns the drop reason of a packet from `source`, by the address alone; `None` if it may be forwarded.
/// Directed broadcast addresses are left to the route table, which knows them
/// ([`Route::Broadcast`](crate::Route::Broadcast)).
#[inline]
pub fn check_source4(source: Ipv4Addr, policy: MartianPolicy) -> Option<DropReason> {
    (source.is_multicast() || policy.forbids(source)).then_some(DropReason::MartianSource)
}

/// Returns the drop reason of a packet that can't be forwarded to `destination` as unicast; `None` if it can.
#[inline]
pub fn check_destination4(destination: Ipv4Addr, policy: MartianPolicy) -> Option<DropReason> {
    if destination.is_multicast() {
        Some(DropReason::Multicast)
    } else if destination.is_broadcast() {
        Some(DropReason::Broadcast)
    } else {
        policy.forbids(destination).then_some(DropReason::MartianDestination)
    }
}

/// Returns the drop reason of a packet from `source` (V6-09); `None` if it may be forwarded. Link-local
/// sources are left to [`leaves_scope6`], because the router answers them with an ICMP error.
#[inline]
pub fn check_source6(source: Ipv6Addr) -> Option<DropReason> {
    (source.is_multicast() || never_on_the_wire6(source)).then_some(DropReason::MartianSource)
}

/// Returns the drop reason of a packet that can't be forwarded to `destination` as unicast (V6-09); `None` if
/// it can.
#[inline]
pub fn check_destination6(destination: Ipv6Addr) -> Option<DropReason> {
    if destination.is_multicast() {
        return Some(DropReason::Multicast);
    }
    let stays = destination.is_unicast_link_local() || never_on_the_wire6(destination);
    stays.then_some(DropReason::MartianDestination)
}

/// Returns whether forwarding would take a link-local source address beyond its link. The router then answers
/// "beyond scope of source address" (RFC 4443, 3.1; V6-04).
#[inline]
pub fn leaves_scope6(source: Ipv6Addr, destination: Ipv6Addr) -> bool {
    source.is_unicast_link_local() && !destination.is_unicast_link_local()
}

/// Returns whether the first octet alone proves that no policy makes the address a martian. The check is
/// nearly free; `false` means undecided.
#[inline]
pub fn is_ordinary4(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    !matches!(first, 0 | 127 | 169 | 224..)
}

/// Returns whether the first octet alone proves that the address is no martian, because it is a global
/// unicast or unique local address (RFC 4291, 2.4; RFC 4193). `false` means undecided.
#[inline]
pub fn is_ordinary6(address: Ipv6Addr) -> bool {
    let first = address.octets()[0];
    first & 0xe0 == 0x20 || first & 0xfe == 0xfc
}

/// Returns whether the address is unspecified, loopback or IPv4-mapped (RFC 4291, 2.5.2, 2.5.3, 2.5.5.2).
#[inline]
fn never_on_the_wire6(address: Ipv6Addr) -> bool {
    address.is_unspecified() || address.is_loopback() || address.to_ipv4_mapped().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use DropReason::{Broadcast, MartianDestination, MartianSource, Multicast};

    #[test]
    fn nothing_objects_to_ordinary_addresses() {
        let strict = MartianPolicy::default();
        for first in 0..=255_u8 {
            for rest in [0_u32, 1, 0x00fe_0000, 0x00fe_0001, 0x0000_0100, 0x00ff_fffe, 0x00ff_ffff] {
                let v4 = Ipv4Addr::from(u32::from(first) << 24 | rest);
                let fine = check_source4(v4, strict).is_none() && check_destination4(v4, strict).is_none();
                assert!(!is_ordinary4(v4) || fine, "{v4}");
                for high in [0_u128, 0x80, 0xc0, 0xff] {
                    let v6 = Ipv6Addr::from(u128::from(first) << 120 | high << 112 | u128::from(rest));
                    let fine = check_source6(v6).is_none()
                        && check_destination6(v6).is_none()
                        && !leaves_scope6(v6, Ipv6Addr::from(0x2001 << 112));
                    assert!(!is_ordinary6(v6) || fine, "{v6}");
                }
            }
        }
        assert!(is_ordinary4(Ipv4Addr::new(10, 1, 0, 2)) && is_ordinary4(Ipv4Addr::new(192, 0, 2, 1)));
        assert!(is_ordinary6("2001:db8::1".parse().unwrap()) && is_ordinary6("fd00::1".parse().unwrap()));
    }

    const OPEN: MartianPolicy = MartianPolicy {
        forward_this_network: true,
        forward_loopback: true,
        forward_link_local: true,
        forward_class_e: true,
    };

    /// Address; its drop reasons as source and as destination by default; the same with all settings on.
    type Row4 = (
        &'static str,
        &'static str,
        Option<DropReason>,
        Option<DropReason>,
        Option<DropReason>,
        Option<DropReason>,
    );

    #[test]
    fn ipv4_martians_are_dropped_unless_their_setting_permits_them() {
        let (source, destination) = (Some(MartianSource), Some(MartianDestination));
        let rows: [Row4; 15] = [
            ("MA-01", "127.0.0.1", source, destination, None, None),
            ("MA-01", "127.255.0.1", source, destination, None, None),
            ("MA-02", "0.0.0.0", source, destination, source, destination),
            ("MA-02", "0.1.2.3", source, destination, None, None),
            ("MA-03", "224.0.0.1", source, Some(Multicast), source, Some(Multicast)),
            ("MA-03", "239.255.255.255", source, Some(Multicast), source, Some(Multicast)),
            ("BC-02", "255.255.255.255", source, Some(Broadcast), source, Some(Broadcast)),
            ("MA-04", "240.0.0.1", source, destination, None, None),
            ("MA-04", "255.255.255.254", source, destination, None, None),
            ("MA-05", "169.254.0.1", source, destination, None, None),
            ("near", "169.253.255.255", None, None, None, None),
            ("near", "126.255.255.255", None, None, None, None),
            ("near", "128.0.0.1", None, None, None, None),
            ("near", "223.255.255.255", None, None, None, None),
            ("near", "1.0.0.0", None, None, None, None),
        ];
        for (id, address, from, to, from_open, to_open) in rows {
            let address: Ipv4Addr = address.parse().unwrap();
            assert_eq!(check_source4(address, MartianPolicy::default()), from, "{id} {address}");
            assert_eq!(check_destination4(address, MartianPolicy::default()), to, "{id} {address}");
            assert_eq!(check_source4(address, OPEN), from_open, "{id} {address} with knobs");
            assert_eq!(check_destination4(address, OPEN), to_open, "{id} {address} with knobs");
        }
    }

    /// Test case V6-09.
    #[test]
    fn ipv6_martians_are_dropped() {
        let rows = [
            ("::", Some(MartianSource), Some(MartianDestination)),
            ("::1", Some(MartianSource), Some(MartianDestination)),
            ("::ffff:1.2.3.4", Some(MartianSource), Some(MartianDestination)),
            ("ff01::1", Some(MartianSource), Some(Multicast)),
            ("ff02::1", Some(MartianSource), Some(Multicast)),
            ("fe80::1", None, Some(MartianDestination)),
            ("febf::1", None, Some(MartianDestination)),
            ("fec0::1", None, None),
            ("2001:db8::1", None, None),
            ("fd00::1", None, None),
        ];
        for (address, from, to) in rows {
            let address: Ipv6Addr = address.parse().unwrap();
            assert_eq!(check_source6(address), from, "{address}");
            assert_eq!(check_destination6(address), to, "{address}");
        }
    }

    /// Test case V6-04, code 2.
    #[test]
    fn link_local_source_is_not_forwarded_off_its_link() {
        let (local, global) = ("fe80::1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert!(leaves_scope6(local, global));
        assert!(
            !leaves_scope6(global, local) && !leaves_scope6(local, local) && !leaves_scope6(global, global)
        );
    }
}
