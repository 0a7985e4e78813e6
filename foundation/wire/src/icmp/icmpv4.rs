//! ICMP for IPv4 (RFC 792; next-hop MTU RFC 1191).
//!
//! Getters never panic after `new_checked`, which verifies that the buffer has the common header of 8 octets.
//! The meaning of its last four octets depends on the type. `rest` returns them raw, and [`Repr::parse`]
//! decodes them.

use std::fmt;
use std::net::Ipv4Addr;

use crate::bytes::{
    array, get_u8, get_u16, get_u32, octets, octets_mut, put, put_u8, put_u16, put_u32, view,
};
use crate::error::need;
use crate::{WireError, checksum};

/// Length in octets of the common header of all messages.
pub const HEADER_LEN: usize = 8;

mod field {
    pub const TYPE: usize = 0;
    pub const CODE: usize = 1;
    pub const CHECKSUM: usize = 2;
    pub const REST: usize = 4;
    pub const SECOND_WORD: usize = 6;
}

/// ICMP type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Type(pub u8);

impl Type {
    /// Echo reply.
    pub const ECHO_REPLY: Self = Self(0);
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: Self = Self(3);
    /// Source quench, which a router must not send (RFC 6633).
    pub const SOURCE_QUENCH: Self = Self(4);
    /// Redirect.
    pub const REDIRECT: Self = Self(5);
    /// Echo request.
    pub const ECHO_REQUEST: Self = Self(8);
    /// Time exceeded.
    pub const TIME_EXCEEDED: Self = Self(11);
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: Self = Self(12);
    /// Timestamp.
    pub const TIMESTAMP: Self = Self(13);
    /// Timestamp reply.
    pub const TIMESTAMP_REPLY: Self = Self(14);

    /// Whether the message reports an error. A router must not send an error about such a message (RFC 1812,
    /// 4.3.2.7).
    #[inline]
    #[must_use]
    pub const fn is_error(self) -> bool {
        matches!(
            self,
            Self::DESTINATION_UNREACHABLE
                | Self::SOURCE_QUENCH
                | Self::REDIRECT
                | Self::TIME_EXCEEDED
                | Self::PARAMETER_PROBLEM
        )
    }
}

/// Codes of destination unreachable (RFC 792; RFC 1812, 5.2.7.1).
pub mod unreachable {
    /// No route to the network.
    pub const NETWORK: u8 = 0;
    /// The host does not answer on its link.
    pub const HOST: u8 = 1;
    /// The host does not know the protocol.
    pub const PROTOCOL: u8 = 2;
    /// No process listens at the port.
    pub const PORT: u8 = 3;
    /// Fragmentation is needed and forbidden.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Forbidden by policy.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// Codes of time exceeded.
pub mod time_exceeded {
    /// TTL expired in transit.
    pub const TRANSIT: u8 = 0;
    /// Fragments did not arrive in time.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of redirect.
pub mod redirect {
    /// Redirect for a network.
    pub const NETWORK: u8 = 0;
    /// Redirect for a host, the only redirect that a router may send (RFC 1812, 5.2.7.2).
    pub const HOST: u8 = 1;
}

view! {
    /// A view of an ICMP message.
    Packet
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer that holds the header.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 8 octets.
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("icmp", HEADER_LEN, self.data())
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

    /// Returns the identifier of an echo or timestamp message.
    #[inline]
    pub fn identifier(&self) -> u16 {
        get_u16(self.data(), field::REST)
    }

    /// Returns the sequence number of an echo or timestamp message.
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

    /// Whether the checksum over the whole buffer is right.
    pub fn verify_checksum(&self) -> bool {
        checksum::sum(self.data()).is_valid()
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
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let value = checksum::checksum(self.data());
        self.set_checksum(value);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Repr::parse(self) {
            Ok(repr) => repr.fmt(f),
            Err(_) => write!(f, "icmp type {} code {}", self.message_type().0, self.code()),
        }
    }
}

/// Message as a value. `quote` is the beginning of the packet that caused the message, from its IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repr<'a> {
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
    /// Destination unreachable.
    DestinationUnreachable {
        /// Code, one of [`unreachable`].
        code: u8,
        /// MTU of the next hop in octets, with [`unreachable::FRAGMENTATION_NEEDED`]; otherwise 0.
        next_hop_mtu: u16,
        /// Packet that could not be delivered.
        quote: &'a [u8],
    },
    /// Redirect to a better router.
    Redirect {
        /// Code, one of [`redirect`].
        code: u8,
        /// Address of the better router.
        gateway: Ipv4Addr,
        /// Redirected packet.
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
        /// Code: 0 for an error at the pointer, 1 for a missing option.
        code: u8,
        /// Offset of the bad octet from the start of the quoted IPv4 header.
        pointer: u8,
        /// Packet with the problem.
        quote: &'a [u8],
    },
    /// Timestamp request or reply: three times in milliseconds since midnight UT.
    Timestamp {
        /// Whether the message is a reply.
        reply: bool,
        /// Identifier.
        identifier: u16,
        /// Sequence number.
        sequence: u16,
        /// Times at which the request was sent and received, and the reply sent.
        times: [u32; 3],
    },
}

impl<'a> Repr<'a> {
    /// Reads the message that fills the buffer. Fields that RFC 792 calls unused are not looked at.
    ///
    /// # Errors
    /// [`WireError::Checksum`]; [`WireError::Field`] if the type is none of these; [`WireError::Truncated`] for a
    /// timestamp below 20 octets.
    pub fn parse<T: AsRef<[u8]>>(packet: &'a Packet<T>) -> Result<Self, WireError> {
        if !packet.verify_checksum() {
            return Err(WireError::Checksum { header: "icmp" });
        }
        let (code, payload, rest) = (packet.code(), packet.payload(), packet.rest());
        let [pointer, ..] = rest;
        let (identifier, sequence) = (packet.identifier(), packet.sequence());
        Ok(match packet.message_type() {
            Type::ECHO_REQUEST => Self::EchoRequest { identifier, sequence, data: payload },
            Type::ECHO_REPLY => Self::EchoReply { identifier, sequence, data: payload },
            Type::DESTINATION_UNREACHABLE => {
                Self::DestinationUnreachable { code, next_hop_mtu: sequence, quote: payload }
            }
            Type::REDIRECT => Self::Redirect { code, gateway: rest.into(), quote: payload },
            Type::TIME_EXCEEDED => Self::TimeExceeded { code, quote: payload },
            Type::PARAMETER_PROBLEM => Self::ParameterProblem { code, pointer, quote: payload },
            Type::TIMESTAMP | Type::TIMESTAMP_REPLY => {
                need("icmp timestamp", HEADER_LEN + 12, packet.data())?;
                let times = [get_u32(payload, 0), get_u32(payload, 4), get_u32(payload, 8)];
                let reply = packet.message_type() == Type::TIMESTAMP_REPLY;
                Self::Timestamp { reply, identifier, sequence, times }
            }
            Type(found) => return Err(unknown_type(found)),
        })
    }

    /// Returns type, code, and the four octets whose meaning depends on the type.
    fn head(&self) -> (Type, u8, [u8; 4]) {
        let words = |high: u16, low: u16| (u32::from(high) << 16 | u32::from(low)).to_be_bytes();
        match *self {
            Self::EchoRequest { identifier, sequence, .. } => {
                (Type::ECHO_REQUEST, 0, words(identifier, sequence))
            }
            Self::EchoReply { identifier, sequence, .. } => {
                (Type::ECHO_REPLY, 0, words(identifier, sequence))
            }
            Self::DestinationUnreachable { code, next_hop_mtu, .. } => {
                (Type::DESTINATION_UNREACHABLE, code, words(0, next_hop_mtu))
            }
            Self::Redirect { code, gateway, .. } => (Type::REDIRECT, code, gateway.octets()),
            Self::TimeExceeded { code, .. } => (Type::TIME_EXCEEDED, code, [0; 4]),
            Self::ParameterProblem { code, pointer, .. } => {
                (Type::PARAMETER_PROBLEM, code, [pointer, 0, 0, 0])
            }
            Self::Timestamp { reply: false, identifier, sequence, .. } => {
                (Type::TIMESTAMP, 0, words(identifier, sequence))
            }
            Self::Timestamp { identifier, sequence, .. } => {
                (Type::TIMESTAMP_REPLY, 0, words(identifier, sequence))
            }
        }
    }

    /// Returns the octets after the header, except for timestamp messages.
    fn body(&self) -> &'a [u8] {
        match *self {
            Self::EchoRequest { data, .. } | Self::EchoReply { data, .. } => data,
            Self::DestinationUnreachable { quote, .. }
            | Self::Redirect { quote, .. }
            | Self::TimeExceeded { quote, .. }
            | Self::ParameterProblem { quote, .. } => quote,
            Self::Timestamp { .. } => &[],
        }
    }

    /// Returns the length of header and body, which [`emit`](Self::emit) writes, in octets.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        match self {
            Self::Timestamp { .. } => HEADER_LEN + 12,
            _ => HEADER_LEN + self.body().len(),
        }
    }

    /// Writes the message, which must fill the buffer, and its checksum.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let (message_type, code, rest) = self.head();
        packet.set_message_type(message_type);
        packet.set_code(code);
        packet.set_rest(rest);
        put(packet.payload_mut(), 0, self.body());
        if let Self::Timestamp { times, .. } = self {
            for (at, &time) in times.iter().enumerate() {
                put_u32(packet.payload_mut(), at * 4, time);
            }
        }
        packet.fill_checksum();
    }
}

fn unknown_type(found: u8) -> WireError {
    let (field, offset, expected) = ("type", field::TYPE, "0, 3, 5, 8, 11, 12, 13 or 14");
    WireError::Field { header: "icmp", field, offset, found: found.into(), expected }
}

impl fmt::Display for Repr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EchoRequest { identifier, sequence, data } => {
                write!(f, "icmp echo request id {identifier} seq {sequence} data {}", data.len())
            }
            Self::EchoReply { identifier, sequence, data } => {
                write!(f, "icmp echo reply id {identifier} seq {sequence} data {}", data.len())
            }
            Self::DestinationUnreachable { code, next_hop_mtu, .. } => {
                write!(f, "icmp destination unreachable code {code} mtu {next_hop_mtu}")
            }
            Self::Redirect { code, gateway, .. } => write!(f, "icmp redirect code {code} to {gateway}"),
            Self::TimeExceeded { code, .. } => write!(f, "icmp time exceeded code {code}"),
            Self::ParameterProblem { code, pointer, .. } => {
                write!(f, "icmp parameter problem code {code} at {pointer}")
            }
            Self::Timestamp { reply, identifier, sequence, .. } => {
                let reply = if *reply { " reply" } else { "" };
                write!(f, "icmp timestamp{reply} id {identifier} seq {sequence}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn emitted(repr: &Repr<'_>) -> Vec<u8> {
        let mut data = vec![0xff; repr.buffer_len()];
        repr.emit(&mut Packet::new_checked(&mut data[..]).unwrap());
        data
    }

    #[test]
    fn an_odd_quote_has_a_valid_checksum() {
        let repr = Repr::TimeExceeded { code: time_exceeded::TRANSIT, quote: &[0x45; 29] };
        let data = emitted(&repr);
        assert_eq!(data.len(), 37);
        assert!(Packet::new_checked(&data[..]).unwrap().verify_checksum());
    }

    #[test]
    fn the_next_hop_mtu_is_in_the_last_two_octets_of_the_header() {
        let code = unreachable::FRAGMENTATION_NEEDED;
        let data = emitted(&Repr::DestinationUnreachable { code, next_hop_mtu: 1400, quote: &[] });
        assert_eq!(data[4..8], [0, 0, 0x05, 0x78]);
    }

    #[test]
    fn errors_and_queries_are_distinguished() {
        let errors: Vec<_> = (0..=u8::MAX).filter(|&number| Type(number).is_error()).collect();
        assert_eq!(errors, [3, 4, 5, 11, 12]);
    }

    #[test]
    fn a_wrong_checksum_and_an_unknown_type_are_refused() {
        let mut data = emitted(&Repr::EchoRequest { identifier: 1, sequence: 2, data: b"abc" });
        data[9] ^= 1;
        let error = Repr::parse(&Packet::new_checked(&data[..]).unwrap()).unwrap_err();
        assert_eq!(error, WireError::Checksum { header: "icmp" });
        let mut packet = Packet::new_checked([42u8, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        packet.fill_checksum();
        assert!(matches!(Repr::parse(&packet), Err(WireError::Field { found: 42, .. })));
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(which in 0usize..8, code: u8, a: u16, b: u16, address: u32, times: [u32; 3],
                                            body: Vec<u8>) {
            let (identifier, sequence, quote, data) = (a, b, &body[..], &body[..]);
            let repr = match which {
                0 => Repr::EchoRequest { identifier, sequence, data },
                1 => Repr::EchoReply { identifier, sequence, data },
                2 => Repr::DestinationUnreachable { code, next_hop_mtu: a, quote },
                3 => Repr::Redirect { code, gateway: address.into(), quote },
                4 => Repr::TimeExceeded { code, quote },
                5 => Repr::ParameterProblem { code, pointer: b as u8, quote },
                6 => Repr::Timestamp { reply: false, identifier, sequence, times },
                _ => Repr::Timestamp { reply: true, identifier, sequence, times },
            };
            let data = emitted(&repr);
            let packet = Packet::new_checked(&data[..]).unwrap();
            prop_assert_eq!(Repr::parse(&packet), Ok(repr));
        }
    }
}
