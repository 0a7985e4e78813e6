//! What a driver says it can do with XDP: the generic netlink family `netdev` (Linux 6.3).

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

use crate::rtnetlink::{attribute, refusal};

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// A netlink header and a generic netlink header.
const HEADERS: usize = 20;

/// `enum netdev_xdp_act`, from bit 0 on.
const FEATURES: [&str; 7] =
    ["basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"];

/// The features the driver of `ifindex` announces.
pub(crate) fn xdp_features(ifindex: u32) -> io::Result<Vec<&'static str>> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let answer = ask(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0")?;
    let family = attribute(&answer, HEADERS, CTRL_ATTR_FAMILY_ID).and_then(|id| id.try_into().ok());
    let family = u16::from_ne_bytes(family.ok_or_else(malformed)?);
    let answer = ask(&socket, family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes())?;
    let bits = attribute(&answer, HEADERS, NETDEV_A_DEV_XDP_FEATURES).and_then(|bits| bits.try_into().ok());
    let bits = u64::from_ne_bytes(bits.ok_or_else(malformed)?);
    Ok(FEATURES.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name).collect())
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer of generic netlink lacks what was asked for")
}

fn ask(socket: &Socket, family: u16, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    const NLM_F_REQUEST: u16 = 1;
    let attribute_length = 4 + value.len();
    let length = HEADERS + attribute_length.next_multiple_of(4);
    let mut request = Vec::with_capacity(length);
    request.extend((length as u32).to_ne_bytes());
    request.extend(family.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([command, 1, 0, 0]);
    request.extend((attribute_length as u16).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(value);
    request.resize(length, 0);
    socket.send(&request, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match refusal(&answer) {
        Some(refusal) => Err(refusal.error),
        None => Ok(answer),
    }
}
