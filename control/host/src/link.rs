//! Network device as the kernel describes it.

/// Other end of a pair of virtual devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkPeer {
    /// Index of the other device, in its own namespace.
    pub ifindex: u32,
    /// Id of the peer's namespace, as seen from this namespace; `None` if the peer is in this namespace.
    pub namespace: Option<i32>,
}

/// Network device of the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostLink {
    /// Index of the device in its namespace, 1 and up.
    pub ifindex: u32,
    /// Name, up to 15 bytes.
    pub name: String,
    /// Kind of virtual device in Linux (`veth`, `bridge`, `vlan`…); `None` for hardware and loopback.
    pub kind: Option<String>,
    /// Ethernet address; `None` if the device has no address of six bytes.
    pub mac: Option<[u8; 6]>,
    /// MTU: largest packet without the link header, in bytes.
    pub mtu: u32,
    /// Whether an administrator has set the device up.
    pub admin_up: bool,
    /// Whether the device has a carrier.
    pub carrier: bool,
    /// Index of the bridge, bond or VRF that this device belongs to; `None` without one.
    pub master: Option<u32>,
    /// Kind of the device in `master` (`bridge`, `bond`…).
    pub master_kind: Option<String>,
    /// Whether this is the loopback device.
    pub loopback: bool,
    /// Other end of a veth, or the lower device of a VLAN or macvlan; `None` for other devices.
    pub peer: Option<LinkPeer>,
    /// Id of the attached XDP program, Millrace's or foreign. With programs in several XDP modes, the first
    /// id that the kernel reports.
    pub xdp: Option<u32>,
    /// Number of receive queues.
    pub rx_queues: u32,
    /// Number of transmit queues.
    pub tx_queues: u32,
}

impl HostLink {
    /// Whether packets can leave by the device: it is up and has a carrier.
    pub fn usable(&self) -> bool {
        self.admin_up && self.carrier
    }
}
