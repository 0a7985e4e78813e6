//! Link headers, and the trait of all frames.

use millrace_wire::MacAddr;

/// Frame that a port can receive.
pub trait Frame {
    /// Returns the bytes of the frame, from the destination MAC address on.
    fn bytes(&self) -> Vec<u8>;
}

/// Returns the MAC address `02:00:00:00:00:xx`: `station(0x0a)` is port a, `station(0xa2)` the host behind
/// it.
pub const fn station(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

/// Ethernet header with VLAN tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Destination MAC address.
    pub to: MacAddr,
    /// Source MAC address.
    pub from: MacAddr,
    /// VLAN tags, outermost first: TPID and control field (TCI) of each.
    pub tags: Vec<(u16, u16)>,
    /// EtherType of the payload.
    pub ether_type: u16,
}

impl Link {
    /// Returns the link header from the host behind port a to port a.
    pub fn new(ether_type: u16) -> Self {
        Self { to: station(0x0a), from: station(0xa2), tags: Vec::new(), ether_type }
    }

    /// Returns the bytes of the link header followed by `payload`.
    pub fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = [self.to.0, self.from.0].concat();
        for (protocol, control) in &self.tags {
            bytes.extend(protocol.to_be_bytes());
            bytes.extend(control.to_be_bytes());
        }
        bytes.extend(self.ether_type.to_be_bytes());
        bytes.extend(payload);
        bytes
    }
}

/// Implements the setters of the link header for a builder with a field `link`.
macro_rules! link_setters {
    () => {
        /// Sets the destination MAC address.
        pub fn to(mut self, station: millrace_wire::MacAddr) -> Self {
            self.link.to = station;
            self
        }

        /// Sets the source MAC address.
        pub fn from(mut self, station: millrace_wire::MacAddr) -> Self {
            self.link.from = station;
            self
        }

        /// Sets the EtherType.
        pub fn ether_type(mut self, value: u16) -> Self {
            self.link.ether_type = value;
            self
        }

        /// Adds an inner VLAN tag with this TPID and control field (TCI).
        pub fn tag(mut self, protocol: u16, control: u16) -> Self {
            self.link.tags.push((protocol, control));
            self
        }
    };
}
pub(crate) use link_setters;

/// Frame with arbitrary bytes after its link header.
#[derive(Clone, Debug)]
pub struct RawFrame {
    link: Link,
    payload: Vec<u8>,
}

impl RawFrame {
    /// Returns a frame of this EtherType from the host behind port a to port a.
    pub fn new(ether_type: u16, payload: &[u8]) -> Self {
        Self { link: Link::new(ether_type), payload: payload.into() }
    }

    link_setters!();
}

impl Frame for RawFrame {
    fn bytes(&self) -> Vec<u8> {
        self.link.frame(&self.payload)
    }
}

impl Frame for Vec<u8> {
    fn bytes(&self) -> Vec<u8> {
        self.clone()
    }
}

impl Frame for &[u8] {
    fn bytes(&self) -> Vec<u8> {
        self.to_vec()
    }
}
