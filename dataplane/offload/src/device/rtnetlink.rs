//! rtnetlink requests: queries of a device, and attachment of an XDP program without a link.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;

use super::netlink::{self, Refusal, Request, attribute, number, push_attribute, text};

/// Flag: attach only if no program is attached.
pub(crate) const UPDATE_IF_NOEXIST: u32 = 1;
/// Flag: attach to the kernel's generic hook.
pub(crate) const SKB_MODE: u32 = 1 << 1;
/// Flag: attach in the driver.
pub(crate) const DRV_MODE: u32 = 1 << 2;
const REPLACE: u32 = 1 << 4;

// Attributes inside `IFLA_XDP` (<linux/if_link.h>).
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
/// Value of `IFLA_XDP_ATTACHED` for the kernel's generic hook.
const XDP_ATTACHED_SKB: u8 = 2;

const NLM_F_ACK: u16 = 4;
const NLA_F_NESTED: u16 = 1 << 15;
/// Length in bytes of a netlink header and `struct ifinfomsg`.
const HEADERS: usize = 32;

/// Number of bytes by which a packet may exceed the MTU of the receiving veth: the length of a VLAN tag.
pub(crate) const VETH_ROOM: u32 = 4;

/// Device properties that a port's programs need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) rx_queues: u32,
    pub(crate) tx_queues: u32,
    /// Id of the attached XDP program, and its mode flag.
    pub(crate) xdp: Option<(u32, u32)>,
}

/// Queries a device of the calling thread's network namespace, by index.
pub(crate) fn device(ifindex: u32) -> io::Result<Device> {
    let answer = exchange(about(libc::RTM_GETLINK, 0, ifindex)).map_err(|refusal| refusal.error)?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "rtnetlink: the reply is not a link message");
    Ok(read_device(link(&answer).ok_or_else(invalid)?))
}

/// Returns the MTU of the other end of a veth, in any namespace. `None` for other devices, for a veth without
/// another end, and if the kernel doesn't permit the query.
pub(crate) fn far_mtu(ifindex: u32) -> Option<u32> {
    let answer = exchange(about(libc::RTM_GETLINK, 0, ifindex)).ok()?;
    let near = link(&answer)?;
    let kind = attribute(attribute(near, 0, libc::IFLA_LINKINFO)?, 0, libc::IFLA_INFO_KIND)?;
    let far = number(near, libc::IFLA_LINK).filter(|index| *index != 0 && text(kind) == "veth")?;
    let mut request = about(libc::RTM_GETLINK, 0, far);
    // The number of the other end's namespace, if it is not the calling thread's.
    if let Some(namespace) = attribute(near, 0, libc::IFLA_LINK_NETNSID) {
        request = request.attribute(libc::IFLA_TARGET_NETNSID, namespace);
    }
    Some(read_device(link(&exchange(request).ok()?)?).mtu)
}

/// Returns the attributes of a link message.
fn link(answer: &[u8]) -> Option<&[u8]> {
    let kind = answer.get(4..6)?;
    (kind == libc::RTM_NEWLINK.to_ne_bytes()).then(|| answer.get(HEADERS..))?
}

fn read_device(link: &[u8]) -> Device {
    let word = |kind| number(link, kind).unwrap_or_default();
    Device {
        name: attribute(link, 0, libc::IFLA_IFNAME).map(text).unwrap_or_default(),
        mtu: word(libc::IFLA_MTU),
        rx_queues: word(libc::IFLA_NUM_RX_QUEUES),
        tx_queues: word(libc::IFLA_NUM_TX_QUEUES),
        xdp: attribute(link, 0, libc::IFLA_XDP).and_then(read_xdp),
    }
}

fn read_xdp(attributes: &[u8]) -> Option<(u32, u32)> {
    let is_generic = attribute(attributes, 0, IFLA_XDP_ATTACHED) == Some(&[XDP_ATTACHED_SKB][..]);
    let ids = [IFLA_XDP_PROG_ID, IFLA_XDP_DRV_PROG_ID, IFLA_XDP_SKB_PROG_ID, IFLA_XDP_HW_PROG_ID];
    let id = ids.into_iter().find_map(|kind| number(attributes, kind))?;
    (id != 0).then_some((id, if is_generic { SKB_MODE } else { DRV_MODE }))
}

/// Attaches `program` without a link; `None` detaches the attached program. With `expected`, replaces only
/// that program.
pub(crate) fn set_xdp(
    ifindex: u32,
    program: Option<BorrowedFd<'_>>,
    flags: u32,
    expected: Option<BorrowedFd<'_>>,
) -> Result<(), Refusal> {
    let replace = if expected.is_some() { REPLACE } else { 0 };
    let mut xdp = Vec::new();
    let descriptor = program.map_or(-1, |program| program.as_raw_fd());
    push_attribute(&mut xdp, IFLA_XDP_FD, &descriptor.to_ne_bytes());
    push_attribute(&mut xdp, IFLA_XDP_FLAGS, &(flags | replace).to_ne_bytes());
    if let Some(expected) = expected {
        push_attribute(&mut xdp, IFLA_XDP_EXPECTED_FD, &expected.as_raw_fd().to_ne_bytes());
    }
    let request = about(libc::RTM_SETLINK, NLM_F_ACK, ifindex);
    exchange(request.attribute(libc::IFLA_XDP | NLA_F_NESTED, &xdp)).map(drop)
}

/// Returns a request about a device.
fn about(kind: u16, flags: u16, ifindex: u32) -> Request {
    // `struct ifinfomsg`: family and type; index; device flags and their mask.
    Request::new(kind, flags, &[0, ifindex, 0, 0].map(u32::to_ne_bytes).concat())
}

/// Sends a request, and returns the kernel's answer.
fn exchange(request: Request) -> Result<Vec<u8>, Refusal> {
    request.exchange(&netlink::open(NETLINK_ROUTE)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_its_length_and_padded_attributes() {
        let request = about(libc::RTM_SETLINK, NLM_F_ACK, 7).attribute(libc::IFLA_IFNAME, b"veth0\0");
        let bytes = request.finish();
        assert_eq!(bytes.get(..4), Some(&44u32.to_ne_bytes()[..]));
        assert_eq!(bytes.get(4..8), Some(&[libc::RTM_SETLINK, 5].map(u16::to_ne_bytes).concat()[..]));
        assert_eq!(bytes.get(20..24), Some(&7u32.to_ne_bytes()[..]));
        assert_eq!((bytes.len(), attribute(&bytes, HEADERS, libc::IFLA_IFNAME)), (44, Some(&b"veth0\0"[..])));
    }

    #[test]
    fn device_is_read_from_a_link_message() {
        let mut xdp = Vec::new();
        push_attribute(&mut xdp, IFLA_XDP_ATTACHED, &[XDP_ATTACHED_SKB]);
        push_attribute(&mut xdp, IFLA_XDP_PROG_ID, &9u32.to_ne_bytes());
        let request = about(libc::RTM_NEWLINK, 0, 7)
            .attribute(libc::IFLA_IFNAME, b"veth0\0")
            .attribute(libc::IFLA_MTU, &1500u32.to_ne_bytes())
            .attribute(libc::IFLA_NUM_RX_QUEUES, &2u32.to_ne_bytes())
            .attribute(libc::IFLA_XDP | NLA_F_NESTED, &xdp);
        let answer = request.finish();
        let device = read_device(link(&answer).unwrap());
        assert_eq!((device.name.as_str(), device.mtu), ("veth0", 1500));
        assert_eq!((device.rx_queues, device.tx_queues, device.xdp), (2, 0, Some((9, SKB_MODE))));
        assert!(link(&about(libc::RTM_GETLINK, 0, 7).finish()).is_none());
    }
}
