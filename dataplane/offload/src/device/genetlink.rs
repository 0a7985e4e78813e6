//! XDP features of drivers, from the generic netlink family `netdev` (Linux 6.3).

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_GENERIC;

use super::netlink::{self, Request, attribute};

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_CMD_DEV_CHANGE_NTF: u8 = 4;
/// Multicast group of the family for changes of devices.
const MGMT: &[u8] = b"mgmt\0";
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// Length in bytes of a netlink header and a generic netlink header.
const HEADERS: usize = 20;
/// Offset of the command, after the netlink header.
const COMMAND: usize = 16;
/// Length of the receive buffer for a notification, in bytes. A notification has some ten attributes.
const NEWS: usize = 4096;

/// Names of `enum netdev_xdp_act`, from bit 0 on.
const FEATURES: [&str; 7] =
    ["basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"];

/// Returns the XDP features that the driver of `ifindex` announces.
pub(crate) fn xdp_features(ifindex: u32) -> io::Result<Vec<&'static str>> {
    let socket = netlink::open(NETLINK_GENERIC)?;
    let answer = netdev_family(&socket)?;
    let family = attribute(&answer, HEADERS, CTRL_ATTR_FAMILY_ID).and_then(|id| id.try_into().ok());
    let family = u16::from_ne_bytes(family.ok_or_else(malformed)?);
    let answer = ask(&socket, family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes())?;
    let bits = attribute(&answer, HEADERS, NETDEV_A_DEV_XDP_FEATURES).and_then(|bits| bits.try_into().ok());
    let bits = u64::from_ne_bytes(bits.ok_or_else(malformed)?);
    Ok(FEATURES.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name).collect())
}

/// Notifications of changed XDP features of devices in the network namespace in which [`open`](Self::open)
/// was called. The features of a veth depend on settings of its other end, which may be in another namespace.
#[derive(Debug)]
pub struct FeatureNews(Socket);

impl FeatureNews {
    /// Opens a descriptor for notifications. It is readable when there is a notification to
    /// [take](Self::take).
    ///
    /// # Errors
    /// When the kernel sends no such notifications (before Linux 6.3), or has no generic netlink.
    pub fn open() -> io::Result<Self> {
        let socket = netlink::open(NETLINK_GENERIC)?;
        let answer = netdev_family(&socket)?;
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        socket.add_membership(group(&answer, MGMT).ok_or_else(malformed)?)?;
        Ok(Self(socket))
    }

    /// Takes all pending notifications. `matters` selects devices by their index. Returns whether the
    /// features of a selected device changed, or notifications may have been lost.
    pub fn take(&mut self, matters: impl Fn(u32) -> bool) -> bool {
        let mut found = false;
        loop {
            let mut message = Vec::with_capacity(NEWS);
            match self.0.recv(&mut message, 0) {
                Ok(_) => {
                    let changed = message.get(COMMAND) == Some(&NETDEV_CMD_DEV_CHANGE_NTF);
                    let device = attribute(&message, HEADERS, NETDEV_A_DEV_IFINDEX);
                    let device = device.and_then(|device| device.try_into().ok()).map(u32::from_ne_bytes);
                    found |= changed && device.is_none_or(&matters);
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => found = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return found,
            }
        }
    }
}

impl AsRawFd for FeatureNews {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Returns the kernel's description of the family `netdev`.
fn netdev_family(socket: &Socket) -> io::Result<Vec<u8>> {
    ask(socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0")
}

/// Returns the number of a multicast group of a family. The attribute with the groups is a list of lists,
/// each with a name and a number.
fn group(family: &[u8], name: &[u8]) -> Option<u32> {
    let groups = attribute(family, HEADERS, CTRL_ATTR_MCAST_GROUPS)?;
    // The entries of the list are attributes, numbered from 1.
    let mut entries = (1..).map_while(|entry| attribute(groups, 0, entry));
    let group = entries.find(|entry| attribute(entry, 0, CTRL_ATTR_MCAST_GRP_NAME) == Some(name))?;
    Some(u32::from_ne_bytes(attribute(group, 0, CTRL_ATTR_MCAST_GRP_ID)?.try_into().ok()?))
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "generic netlink: the reply lacks the requested attribute or multicast group",
    )
}

fn ask(socket: &Socket, family: u16, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    // `struct genlmsghdr`: command, version 1, and padding.
    let request = Request::new(family, 0, &[command, 1, 0, 0]).attribute(kind, value);
    request.exchange(socket).map_err(|refusal| refusal.error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::test_support::{Wire, can_load, in_namespace, ip};

    fn toggle(wire: &Wire, gro: &str) {
        let set = format!("netns exec {} ethtool -K peer gro {gro}", wire.far);
        ip(&set);
    }

    /// Returns whether a notification for `device` arrives within about `looks` milliseconds.
    fn hears(news: &mut FeatureNews, device: u32, looks: u32) -> bool {
        (0..looks).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            news.take(|changed| changed == device)
        })
    }

    #[test]
    fn veth_notifies_when_its_peer_in_another_namespace_changes_redirect_support() {
        if !can_load() {
            return;
        }
        let (wire, other) = (Wire::new(), Wire::new());
        toggle(&wire, "off");
        let port = wire.port();
        let mut news = wire.near(FeatureNews::open).expect("the kernel tells");
        for (gro, takes) in [("on", true), ("off", false), ("on", true)] {
            toggle(&wire, gro);
            assert!(hears(&mut news, port, 1000), "gro {gro}");
            let features = in_namespace(&wire.near, || xdp_features(port)).unwrap();
            assert_eq!(features.contains(&"ndo-xmit"), takes, "{features:?}");
        }
        // Feature changes of other devices, here or in other namespaces, must not be reported.
        toggle(&other, "off");
        toggle(&other, "on");
        ip(&format!("-n {} link add third type veth peer name fourth", wire.near));
        assert!(!hears(&mut news, port, 100));
    }
}
