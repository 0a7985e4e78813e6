//! rtnetlink requests: query a device, and attach an XDP program without a link.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage, LinkXdp, XdpAttached};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Flag: attach only if nothing is attached.
pub(crate) const UPDATE_IF_NOEXIST: u32 = 1;
/// Flag: the kernel's generic hook.
pub(crate) const SKB_MODE: u32 = 1 << 1;
/// Flag: the driver.
pub(crate) const DRV_MODE: u32 = 1 << 2;
const REPLACE: u32 = 1 << 4;
/// Attribute of `NLMSG_ERR_ATTRS` with the kernel's message.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Number of bytes by which a packet may exceed the MTU of the receiving veth: a VLAN tag.
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

/// Refusal of the kernel, with its message if there is one.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: io::Error,
    pub(crate) words: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words.is_empty() {
            true => self.error.fmt(f),
            false => write!(f, "{} ({})", self.words, self.error),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self { error, words: String::new() }
    }
}

/// Queries a device of the calling thread's network namespace, by index.
pub(crate) fn device(ifindex: u32) -> io::Result<Device> {
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    match exchange(RouteNetlinkMessage::GetLink(link), NLM_F_REQUEST).map_err(|refusal| refusal.error)? {
        Some(RouteNetlinkMessage::NewLink(link)) => Ok(read_device(&link)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "rtnetlink: the reply is not a link message")),
    }
}

/// Returns the MTU of the other end of a veth, in any namespace. `None` for other devices, without another
/// end, and where the kernel does not permit access to it.
pub(crate) fn far_mtu(ifindex: u32) -> Option<u32> {
    let near = link_of(ifindex, None)?;
    let is_veth = |info: &LinkInfo| matches!(info, LinkInfo::Kind(InfoKind::Veth));
    let (mut veth, mut far, mut namespace) = (false, None, None);
    for attribute in &near.attributes {
        match attribute {
            LinkAttribute::LinkInfo(infos) => veth = infos.iter().any(is_veth),
            LinkAttribute::Link(index) => far = Some(*index).filter(|index| *index != 0),
            LinkAttribute::LinkNetNsId(id) => namespace = Some(*id),
            _ => {}
        }
    }
    let far = link_of(far.filter(|_| veth)?, namespace)?;
    Some(read_device(&far).mtu)
}

/// Queries a device of the calling thread's network namespace, or of a namespace that has the number
/// `namespace` in it.
fn link_of(ifindex: u32, namespace: Option<i32>) -> Option<LinkMessage> {
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    link.attributes.extend(namespace.map(LinkAttribute::IfNetnsId));
    match exchange(RouteNetlinkMessage::GetLink(link), NLM_F_REQUEST).ok()?? {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }
}

fn read_device(link: &LinkMessage) -> Device {
    let mut device = Device::default();
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            LinkAttribute::NumRxQueues(queues) => device.rx_queues = *queues,
            LinkAttribute::NumTxQueues(queues) => device.tx_queues = *queues,
            LinkAttribute::Xdp(xdp) => device.xdp = read_xdp(xdp),
            _ => {}
        }
    }
    device
}

fn read_xdp(attributes: &[LinkXdp]) -> Option<(u32, u32)> {
    let generic = attributes.iter().any(|a| matches!(a, LinkXdp::Attached(XdpAttached::SocketBuffer)));
    let id = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) | LinkXdp::HwProgId(id) => {
            Some(*id)
        }
        _ => None,
    })?;
    (id != 0).then_some((id, if generic { SKB_MODE } else { DRV_MODE }))
}

/// Attaches `program` (or detaches with `None`) without a link. With `expected`, replaces only that program.
pub(crate) fn set_xdp(
    ifindex: u32,
    program: Option<BorrowedFd<'_>>,
    flags: u32,
    expected: Option<BorrowedFd<'_>>,
) -> Result<(), Refusal> {
    let mut xdp = vec![LinkXdp::Fd(program.map_or(-1, |program| program.as_raw_fd()))];
    let replace = if expected.is_some() { REPLACE } else { 0 };
    xdp.push(LinkXdp::Flags(flags | replace));
    if let Some(expected) = expected {
        xdp.push(LinkXdp::ExpectedFd(expected.as_raw_fd().cast_unsigned()));
    }
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    link.attributes.push(LinkAttribute::Xdp(xdp));
    exchange(RouteNetlinkMessage::SetLink(link), NLM_F_REQUEST | NLM_F_ACK).map(drop)
}

fn exchange(message: RouteNetlinkMessage, flags: u16) -> Result<Option<RouteNetlinkMessage>, Refusal> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // Requests the kernel's messages in errors; an old kernel does not support that.
    let _ = socket.set_ext_ack(true);
    let mut request = NetlinkMessage::from(message);
    request.header.flags = flags;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    if let Some(refusal) = refusal(&answer) {
        return Err(refusal);
    }
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    match answer.payload {
        NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
        _ => Ok(None),
    }
}

/// Reads `struct nlmsgerr`: error, the header of the request (its body is whole, or missing in a capped
/// acknowledgement), then attributes. One attribute is the kernel's message (<linux/netlink.h>).
pub(crate) fn refusal(answer: &[u8]) -> Option<Refusal> {
    const NLMSG_ERROR: u16 = 2;
    const NLM_F_CAPPED: u16 = 0x100;
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    if half(4)? != NLMSG_ERROR {
        return None;
    }
    let code = word(16)?.cast_signed();
    if code == 0 {
        return None;
    }
    let capped = half(6)? & NLM_F_CAPPED != 0;
    let request = if capped { 16 } else { word(20)? as usize };
    let words = attribute(answer, 20 + request.next_multiple_of(4), NLMSGERR_ATTR_MSG).unwrap_or_default();
    let words = String::from_utf8_lossy(words).trim_end_matches('\0').to_owned();
    Some(Refusal { error: io::Error::from_raw_os_error(code.saturating_neg()), words })
}

/// Returns the payload of the first attribute of a kind, from the offset `at` on.
pub(crate) fn attribute(bytes: &[u8], mut at: usize, kind: u16) -> Option<&[u8]> {
    while let Some(header) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let payload = bytes.get(at + 4..at + length)?;
        if u16::from_ne_bytes([header[2], header[3]]) & 0x3fff == kind {
            return Some(payload);
        }
        at += length.next_multiple_of(4);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an answer with an error code, and the length of the request that it repeats.
    fn answer(code: i32, request: u32) -> Vec<u8> {
        let kind = u32::from_ne_bytes([2, 0, 0, 0]);
        [36, kind, 1, 0, code.cast_unsigned(), request, 0, 0, 0].map(u32::to_ne_bytes).concat()
    }

    #[test]
    fn answer_of_any_code_and_length_is_read() {
        for request in [0, 16, 17, u32::MAX] {
            let code = |code| refusal(&answer(code, request)).map(|refusal| refusal.error.raw_os_error());
            assert_eq!(code(0), None, "an acknowledgement");
            assert_eq!(code(-libc::EPERM), Some(Some(libc::EPERM)));
            assert_eq!(code(i32::MIN), Some(Some(i32::MAX)));
        }
    }
}
