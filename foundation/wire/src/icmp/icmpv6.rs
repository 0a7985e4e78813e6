//! ICMP for IPv6 (RFC 4443). Module [`ndp`](crate::ndp) has the neighbour discovery messages.

use crate::WireError;
use crate::bytes::{field_types, fields, view};
use crate::checksum::Sum;
use crate::error::need;

use super::HEADER_LEN;

/// ICMPv6 type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Type(pub u8);

impl Type {
    /// Neighbour solicitation (RFC 4861).
    pub const NEIGHBOUR_SOLICITATION: Self = Self(135);
    /// Neighbour advertisement (RFC 4861).
    pub const NEIGHBOUR_ADVERTISEMENT: Self = Self(136);
    /// Redirect (RFC 4861).
    pub const REDIRECT: Self = Self(137);

    /// Returns whether the message belongs to neighbour or router discovery.
    #[inline]
    #[must_use]
    pub const fn is_ndp(self) -> bool {
        matches!(self.0, 133..=137)
    }
}

field_types! {
    Type: |[number]: [u8; 1]| Self(number), |kind: Self| [kind.0];
}

view! {
    /// View of an ICMPv6 message.
    Packet
}

fields! {
    Packet:
    /// Code of the message.
    code: u8 = 1;
    /// Checksum of message and pseudo-header.
    checksum / set_checksum: u16 = 2;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer of at least 8 octets, the header.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("icmpv6", HEADER_LEN, self.data())
    }

    /// Returns whether the checksum over the whole buffer is right. `pseudo`: sum of the pseudo-header.
    pub fn verify_checksum(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.data()).is_valid()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Computes the checksum over the whole buffer and sets it. `pseudo`: sum of the pseudo-header.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let value = pseudo.bytes(self.data()).checksum();
        self.set_checksum(value);
    }
}
