//! A network device as the kernel describes it.

/// The other end of a pair of virtual devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkPeer {
    /// Index of the other device, in its own namespace.
    pub ifindex: u32,
    /// The namespace's id as seen from ours; `None` when the other device is in the same namespace.
    pub namespace: Option<i32>,
}

/// An XDP program that is attached to a device, by whomever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkXdp {
    /// Program id; the kernel names one when several modes are in use, the first of them here.
    pub program: u32,
    /// The kernel's `IFLA_XDP_ATTACHED`: 1 driver, 2 generic, 3 hardware, 4 several.
    pub mode: u8,
}

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostLink {
    /// Index of the device in its namespace, 1 and up.
    pub ifindex: u32,
    /// Name, up to 15 bytes.
    pub name: String,
    /// The kind Linux gives to virtual devices (`veth`, `bridge`, `vlan`…); `None` for hardware and loopback.
    pub kind: Option<String>,
    /// Ethernet address; `None` where the device has none of six bytes.
    pub mac: Option<[u8; 6]>,
    /// Largest packet without the link header, in bytes.
    pub mtu: u32,
    /// Whether an administrator has set the device up.
    pub admin_up: bool,
    /// Whether the device has a carrier.
    pub carrier: bool,
    /// The bridge, bond or VRF that this device belongs to.
    pub master: Option<u32>,
    /// The kind of that master (`bridge`, `bond`…).
    pub master_kind: Option<String>,
    /// Whether this is the loopback device.
    pub loopback: bool,
    /// The other end of a veth, or the device below a VLAN or macvlan.
    pub peer: Option<LinkPeer>,
    /// The XDP program attached, ours or another's.
    pub xdp: Option<LinkXdp>,
    /// Number of receive queues.
    pub rx_queues: u32,
    /// Number of transmit queues.
    pub tx_queues: u32,
    /// Name of the root queueing discipline (`noqueue`, `pfifo_fast`…).
    pub qdisc: Option<String>,
}

impl HostLink {
    /// Whether packets can leave by the device: it is up and has a carrier.
    pub fn usable(&self) -> bool {
        self.admin_up && self.carrier
    }
}
