//! ICMP for IPv6 (RFC 4443). Module [`ndp`](crate::ndp) has the neighbour discovery messages.
//!
//! Getters never panic after `new_checked`, which verifies that the buffer has the common header of 8 octets.

use std::fmt;

use crate::WireError;
use crate::bytes::{array, get_u8, get_u16, get_u32, octets, octets_mut, put, put_u8, put_u16, view};
use crate::checksum::Sum;
use crate::error::need;

/// Length in octets of the common header of all messages.
pub const HEADER_LEN: usize = 8;

mod field {
    pub const TYPE: usize = 0;
    pub const CODE: usize = 1;
    pub const CHECKSUM: usize = 2;
    pub const REST: usize = 4;
    pub const SECOND_WORD: usize = 6;
}

/// ICMPv6 type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Type(pub u8);

impl Type {
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: Self = Self(1);
    /// Packet too big.
    pub const PACKET_TOO_BIG: Self = Self(2);
    /// Time exceeded.
    pub const TIME_EXCEEDED: Self = Self(3);
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: Self = Self(4);
    /// Echo request.
    pub const ECHO_REQUEST: Self = Self(128);
    /// Echo reply.
    pub const ECHO_REPLY: Self = Self(129);
    /// Multicast listener query (RFC 2710).
    pub const LISTENER_QUERY: Self = Self(130);
    /// Multicast listener report (RFC 2710).
    pub const LISTENER_REPORT: Self = Self(131);
    /// Router solicitation (RFC 4861).
    pub const ROUTER_SOLICITATION: Self = Self(133);
    /// Router advertisement (RFC 4861).
    pub const ROUTER_ADVERTISEMENT: Self = Self(134);
    /// Neighbour solicitation (RFC 4861).
    pub const NEIGHBOUR_SOLICITATION: Self = Self(135);
    /// Neighbour advertisement (RFC 4861).
    pub const NEIGHBOUR_ADVERTISEMENT: Self = Self(136);
    /// Redirect (RFC 4861).
    pub const REDIRECT: Self = Self(137);

    /// Whether the message is an error (RFC 4443, 2.1) or a redirect. No error may be sent about either (2.4(e)).
    #[inline]
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 < 128 || self.0 == Self::REDIRECT.0
    }

    /// Whether the message belongs to neighbour discovery.
    #[inline]
    #[must_use]
    pub const fn is_ndp(self) -> bool {
        matches!(self.0, 133..=137)
    }
}

/// Codes of destination unreachable (RFC 4443, 3.1).
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Forbidden by policy.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The neighbour does not answer.
    pub const ADDRESS: u8 = 3;
    /// No process listens at the port.
    pub const PORT: u8 = 4;
}

/// Codes of time exceeded (RFC 4443, 3.3).
pub mod time_exceeded {
    /// Hop limit expired in transit.
    pub const TRANSIT: u8 = 0;
    /// Fragments did not arrive in time.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of parameter problem (RFC 4443, 3.4; RFC 7112).
pub mod parameter_problem {
    /// A header field is wrong.
    pub const HEADER_FIELD: u8 = 0;
    /// A next header is unknown.
    pub const NEXT_HEADER: u8 = 1;
    /// An option is unknown.
    pub const OPTION: u8 = 2;
    /// The first fragment lacks headers.
    pub const INCOMPLETE_CHAIN: u8 = 3;
}

view! {
    /// A view of an ICMPv6 message.
    Packet
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer that holds the header.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 8 octets.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("icmpv6", HEADER_LEN, self.data())
    }

    /// Returns the type of the message.
    #[inline]
    pub fn message_type(&self) -> Type {
        Type(get_u8(self.data(), field::TYPE))
    }

    /// Returns the code of the message.
    #[inline]
    pub fn code(&self) -> u8 {
        get_u8(self.data(), field::CODE)
    }

    /// Returns the checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        get_u16(self.data(), field::CHECKSUM)
    }

    /// Returns the four octets whose meaning depends on the type.
    #[inline]
    pub fn rest(&self) -> [u8; 4] {
        array(self.data(), field::REST)
    }

    /// Returns the identifier of an echo message.
    #[inline]
    pub fn identifier(&self) -> u16 {
        get_u16(self.data(), field::REST)
    }

    /// Returns the sequence number of an echo message.
    #[inline]
    pub fn sequence(&self) -> u16 {
        get_u16(self.data(), field::SECOND_WORD)
    }

    /// Returns the octets after the header, up to the end of the buffer: the echoed data or the quoted
    /// packet.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        octets(self.data(), HEADER_LEN..)
    }

    /// Whether the checksum over the whole buffer is right, under the sum of the pseudo-header.
    pub fn verify_checksum(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.data()).is_valid()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the type. The checksum stays as it is.
    pub fn set_message_type(&mut self, value: Type) {
        put_u8(self.buffer.as_mut(), field::TYPE, value.0);
    }

    /// Sets the code. The checksum stays as it is.
    pub fn set_code(&mut self, code: u8) {
        put_u8(self.buffer.as_mut(), field::CODE, code);
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, value: u16) {
        put_u16(self.buffer.as_mut(), field::CHECKSUM, value);
    }

    /// Sets the four octets whose meaning depends on the type.
    pub fn set_rest(&mut self, octets: [u8; 4]) {
        put(self.buffer.as_mut(), field::REST, &octets);
    }

    /// Returns the octets after the header, for writes.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        octets_mut(self.buffer.as_mut(), HEADER_LEN..)
    }

    /// Computes the checksum over the whole buffer and sets it.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let value = pseudo.bytes(self.data()).checksum();
        self.set_checksum(value);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Repr::from_fields(self) {
            Ok(repr) => repr.fmt(f),
            Err(_) => write!(f, "icmpv6 type {} code {}", self.message_type().0, self.code()),
        }
    }
}

/// Message as a value. `quote` is the beginning of the packet that caused the message, from its IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repr<'a> {
    /// Destination unreachable.
    DestinationUnreachable {
        /// Code, one of [`unreachable`].
        code: u8,
        /// Packet that could not be delivered.
        quote: &'a [u8],
    },
    /// Packet too big.
    PacketTooBig {
        /// MTU of the next link, in octets.
        mtu: u32,
        /// Packet that was too big.
        quote: &'a [u8],
    },
    /// Time exceeded.
    TimeExceeded {
        /// Code, one of [`time_exceeded`].
        code: u8,
        /// Packet that expired.
        quote: &'a [u8],
    },
    /// Parameter problem.
    ParameterProblem {
        /// Code, one of [`parameter_problem`].
        code: u8,
        /// Offset of the bad octet from the start of the quoted IPv6 header.
        pointer: u32,
        /// Packet with the problem.
        quote: &'a [u8],
    },
    /// Echo request; the reply returns `data`.
    EchoRequest {
        /// Identifier.
        identifier: u16,
        /// Sequence number.
        sequence: u16,
        /// Arbitrary data for the reply.
        data: &'a [u8],
    },
    /// Echo reply.
    EchoReply {
        /// Identifier of the request.
        identifier: u16,
        /// Sequence number of the request.
        sequence: u16,
        /// Data of the request.
        data: &'a [u8],
    },
}

impl<'a> Repr<'a> {
    /// Reads the message that fills the buffer. Unused fields are not looked at.
    ///
    /// # Errors
    /// [`WireError::Checksum`]; [`WireError::Field`] if the type is none of these.
    pub fn parse<T: AsRef<[u8]>>(packet: &'a Packet<T>, pseudo: Sum) -> Result<Self, WireError> {
        if !packet.verify_checksum(pseudo) {
            return Err(WireError::Checksum { header: "icmpv6" });
        }
        Self::from_fields(packet)
    }

    fn from_fields<T: AsRef<[u8]>>(packet: &'a Packet<T>) -> Result<Self, WireError> {
        let (code, payload, word) = (packet.code(), packet.payload(), get_u32(packet.data(), field::REST));
        let (identifier, sequence) = (packet.identifier(), packet.sequence());
        Ok(match packet.message_type() {
            Type::DESTINATION_UNREACHABLE => Self::DestinationUnreachable { code, quote: payload },
            Type::PACKET_TOO_BIG => Self::PacketTooBig { mtu: word, quote: payload },
            Type::TIME_EXCEEDED => Self::TimeExceeded { code, quote: payload },
            Type::PARAMETER_PROBLEM => Self::ParameterProblem { code, pointer: word, quote: payload },
            Type::ECHO_REQUEST => Self::EchoRequest { identifier, sequence, data: payload },
            Type::ECHO_REPLY => Self::EchoReply { identifier, sequence, data: payload },
            Type(found) => return Err(unknown_type(found)),
        })
    }

    /// Returns type, code, and the four octets whose meaning depends on the type.
    fn head(&self) -> (Type, u8, u32) {
        let words = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        match *self {
            Self::DestinationUnreachable { code, .. } => (Type::DESTINATION_UNREACHABLE, code, 0),
            Self::PacketTooBig { mtu, .. } => (Type::PACKET_TOO_BIG, 0, mtu),
            Self::TimeExceeded { code, .. } => (Type::TIME_EXCEEDED, code, 0),
            Self::ParameterProblem { code, pointer, .. } => (Type::PARAMETER_PROBLEM, code, pointer),
            Self::EchoRequest { identifier, sequence, .. } => {
                (Type::ECHO_REQUEST, 0, words(identifier, sequence))
            }
            Self::EchoReply { identifier, sequence, .. } => {
                (Type::ECHO_REPLY, 0, words(identifier, sequence))
            }
        }
    }

    /// Returns the octets after the header.
    fn body(&self) -> &'a [u8] {
        match *self {
            Self::EchoRequest { data, .. } | Self::EchoReply { data, .. } => data,
            Self::DestinationUnreachable { quote, .. }
            | Self::PacketTooBig { quote, .. }
            | Self::TimeExceeded { quote, .. }
            | Self::ParameterProblem { quote, .. } => quote,
        }
    }

    /// Returns the length of header and body, which [`emit`](Self::emit) writes, in octets.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + self.body().len()
    }

    /// Writes the message, which must fill the buffer, and its checksum.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>, pseudo: Sum) {
        let (message_type, code, rest) = self.head();
        packet.set_message_type(message_type);
        packet.set_code(code);
        packet.set_rest(rest.to_be_bytes());
        put(packet.payload_mut(), 0, self.body());
        packet.fill_checksum(pseudo);
    }
}

fn unknown_type(found: u8) -> WireError {
    let (field, offset, expected) = ("type", field::TYPE, "1 to 4, 128 or 129");
    WireError::Field { header: "icmpv6", field, offset, found: found.into(), expected }
}

impl fmt::Display for Repr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DestinationUnreachable { code, .. } => {
                write!(f, "icmpv6 destination unreachable code {code}")
            }
            Self::PacketTooBig { mtu, .. } => write!(f, "icmpv6 packet too big mtu {mtu}"),
            Self::TimeExceeded { code, .. } => write!(f, "icmpv6 time exceeded code {code}"),
            Self::ParameterProblem { code, pointer, .. } => {
                write!(f, "icmpv6 parameter problem code {code} at {pointer}")
            }
            Self::EchoRequest { identifier, sequence, data } => {
                write!(f, "icmpv6 echo request id {identifier} seq {sequence} data {}", data.len())
            }
            Self::EchoReply { identifier, sequence, data } => {
                write!(f, "icmpv6 echo reply id {identifier} seq {sequence} data {}", data.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;
    use crate::checksum::pseudo_header_v6;
    use proptest::prelude::*;

    #[test]
    fn errors_and_queries_are_distinguished() {
        assert!((0..128).all(|number| Type(number).is_error()));
        let above: Vec<_> = (128..=u8::MAX).filter(|&number| Type(number).is_error()).collect();
        assert_eq!(above, [137]);
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(which in 0usize..6, code: u8, a: u16, b: u16, word: u32, body: Vec<u8>,
                                            src: u128, dst: u128) {
            let (identifier, sequence, quote, data) = (a, b, &body[..], &body[..]);
            let repr = match which {
                0 => Repr::DestinationUnreachable { code, quote },
                1 => Repr::PacketTooBig { mtu: word, quote },
                2 => Repr::TimeExceeded { code, quote },
                3 => Repr::ParameterProblem { code, pointer: word, quote },
                4 => Repr::EchoRequest { identifier, sequence, data },
                _ => Repr::EchoReply { identifier, sequence, data },
            };
            let mut data = vec![0xff; repr.buffer_len()];
            let pseudo = pseudo_header_v6(src.into(), dst.into(), Protocol::ICMPV6, data.len() as u32);
            repr.emit(&mut Packet::new_checked(&mut data[..]).unwrap(), pseudo);
            let packet = Packet::new_checked(&data[..]).unwrap();
            prop_assert_eq!(Repr::parse(&packet, pseudo), Ok(repr));
            let mut damaged = data.clone();
            damaged[1] ^= 1;
            let damaged = Packet::new_checked(&damaged[..]).unwrap();
            prop_assert_eq!(Repr::parse(&damaged, pseudo), Err(WireError::Checksum { header: "icmpv6" }));
        }
    }
}
