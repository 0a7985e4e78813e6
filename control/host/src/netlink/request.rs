//! Builder of netlink requests.

use std::net::IpAddr;

/// Flags of a request with acknowledgement.
pub(crate) const ACK: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
/// Flags of a list (dump) request.
pub(crate) const DUMP: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;

const HEADER: usize = 16;

/// Netlink message under construction. Its length fields are valid after each call.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Creates a message with a fixed header after netlink's own header.
    pub fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(header);
        let mut request = Self { bytes };
        request.close();
        request
    }

    /// Appends an attribute.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.bytes.extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.close();
        self
    }

    /// Appends a number in the machine's byte order.
    pub fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Appends an address.
    pub fn ip(self, kind: u16, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => self.attribute(kind, &ip.octets()),
            IpAddr::V6(ip) => self.attribute(kind, &ip.octets()),
        }
    }

    /// Returns the finished message with its sequence number.
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    fn close(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
    }
}
