//! Neighbour discovery (RFC 4861): neighbour solicitation, neighbour advertisement and redirect.
//!
//! Getters never panic after `new_checked`, which verifies that the buffer holds the fixed part of the
//! message's type. A receiver may use a message only if [`validate`] accepts it: `validate` checks hop limit,
//! code, checksum, addresses and options.

use std::net::Ipv6Addr;

use crate::bytes::{Field, array, field_types, fields, octets, put, view};
use crate::checksum::{Sum, pseudo_header_v6};
use crate::error::need;
use crate::icmpv6::{self, Type};
use crate::{MacAddr, Protocol, WireError};

/// Hop limit that proves that no router has forwarded the packet.
pub const HOP_LIMIT: u8 = 255;
/// Length in octets of a solicitation or an advertisement without options.
pub const NEIGHBOUR_LEN: usize = 24;
/// Length in octets of a redirect without options.
pub const REDIRECT_LEN: usize = 40;

const LINK_ADDRESS_OPTION_LEN: usize = 8;

/// Offsets of two fields in octets: the type, and the destination address of a redirect.
mod field {
    pub const TYPE: usize = 0;
    pub const DESTINATION: usize = 24;
}

/// Option types (RFC 4861, 4.6).
pub mod option {
    /// Source link-layer address.
    pub const SOURCE_LINK_ADDRESS: u8 = 1;
    /// Target link-layer address.
    pub const TARGET_LINK_ADDRESS: u8 = 2;
    /// Beginning of the redirected packet.
    pub const REDIRECTED_HEADER: u8 = 4;
}

/// Flags of a neighbour advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender is a router.
    pub const ROUTER: Self = Self(0x80);
    /// The advertisement answers a solicitation.
    pub const SOLICITED: Self = Self(0x40);
    /// The advertisement overrides the receiver's cached link-layer address.
    pub const OVERRIDE: Self = Self(0x20);

    /// Returns whether all bits of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Returns the solicited-node multicast address of `address` (RFC 4291, 2.7.1).
#[must_use]
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

view! {
    /// View of a solicitation, an advertisement or a redirect, from the ICMPv6 header on.
    Packet
}

field_types! {
    Flags: |[octet]: [u8; 1]| Self(octet), |flags: Self| [flags.0];
}

fields! {
    Packet:
    /// Type of the message.
    message_type / set_message_type: Type = field::TYPE;
    /// Flags of an advertisement.
    flags / set_flags: Flags = 4;
    /// Target address of the message; in a redirect, the better next hop.
    target / set_target: Ipv6Addr = 8;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Accepts a buffer whose type is one of the three messages, and that holds the fixed part of this
    /// message.
    pub fn check(&self) -> Result<(), WireError> {
        need("ndp", super::HEADER_LEN, self.data())?;
        match self.message_type() {
            Type::NEIGHBOUR_SOLICITATION | Type::NEIGHBOUR_ADVERTISEMENT | Type::REDIRECT => {
                need("ndp", self.fixed_len(), self.data())
            }
            Type(found) => {
                let (field, offset, found) = ("type", field::TYPE, found.into());
                Err(WireError::Field { header: "ndp", field, offset, found, expected: "135, 136 or 137" })
            }
        }
    }

    /// Returns the length of the part before the options, in octets.
    fn fixed_len(&self) -> usize {
        if self.message_type() == Type::REDIRECT { REDIRECT_LEN } else { NEIGHBOUR_LEN }
    }

    /// Returns a view of the fields that all ICMPv6 messages have, such as code and checksum.
    pub fn icmp(&self) -> icmpv6::Packet<&[u8]> {
        icmpv6::Packet::new_unchecked(self.data())
    }

    /// Returns the destination address of a redirect; `None` for other messages.
    pub fn destination(&self) -> Option<Ipv6Addr> {
        (self.message_type() == Type::REDIRECT).then(|| Field::get(self.data(), field::DESTINATION))
    }

    /// Iterates over the options, up to the first malformed one.
    pub fn options(&self) -> Options<'_> {
        let offset = self.fixed_len();
        Options { rest: octets(self.data(), offset..), offset }
    }

    /// Returns the Ethernet address in the first option of type `kind`; `None` if there is none.
    pub fn link_address(&self, kind: u8) -> Option<MacAddr> {
        self.options()
            .map_while(Result::ok)
            .find(|option| option.kind == kind)
            .and_then(|option| option.link_address())
    }
}

/// View of an option in the octets of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Offset of the option's type octet from the start of the message.
    pub offset: usize,
    /// Option type.
    pub kind: u8,
    /// Data after type and length.
    pub data: &'a [u8],
}

impl RawOption<'_> {
    /// Returns the Ethernet address of a link-layer address option; `None` for other options and lengths.
    #[must_use]
    pub fn link_address(&self) -> Option<MacAddr> {
        let of_address = matches!(self.kind, option::SOURCE_LINK_ADDRESS | option::TARGET_LINK_ADDRESS);
        (of_address && self.data.len() == 6).then(|| MacAddr(array(self.data, 0)))
    }
}

/// Iterator over options, up to the end of the message or the first malformed option.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<RawOption<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let &kind = self.rest.first()?;
        let units = self.rest.get(1).copied().unwrap_or(0);
        let len = usize::from(units) * 8;
        let Some((octets, rest)) = self.rest.split_at_checked(len).filter(|_| len > 0) else {
            self.rest = &[];
            let (field, offset, found) = ("option length", self.offset + 1, units.into());
            let expected = "1 or more, and within the message";
            return Some(Err(WireError::Field { header: "ndp", field, offset, found, expected }));
        };
        let option = RawOption { offset: self.offset, kind, data: octets.get(2..).unwrap_or_default() };
        self.rest = rest;
        self.offset += len;
        Some(Ok(option))
    }
}

/// Faults for which a receiver must silently ignore a message (RFC 4861, 7.1.1, 7.1.2 and 8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NdpFault {
    /// The hop limit is not 255: the message came from another link.
    HopLimit,
    /// The message is too short, has another type, or has a malformed option.
    Malformed(WireError),
    /// The checksum is wrong.
    Checksum,
    /// The code is not 0.
    Code,
    /// The target, or the destination of a redirect, is invalid.
    Target,
    /// The source or destination of the packet is invalid.
    Address,
    /// A solicitation from the unspecified address has a source link-layer address.
    UnspecifiedWithLinkAddress,
    /// An advertisement to a multicast address has the solicited flag.
    SolicitedMulticast,
}

impl From<WireError> for NdpFault {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}

/// Checks an ICMPv6 message by the rules of RFC 4861, 7.1.1, 7.1.2 and 8.1. `hop_limit`, `src` and `dst` are
/// those of the packet that contains the message `data`. The caller must check whether the sender of a
/// redirect is the first hop.
pub fn validate(hop_limit: u8, src: Ipv6Addr, dst: Ipv6Addr, data: &[u8]) -> Result<Packet<&[u8]>, NdpFault> {
    if hop_limit != HOP_LIMIT {
        return Err(NdpFault::HopLimit);
    }
    let packet = Packet::new_checked(data)?;
    let pseudo = pseudo_header_v6(src, dst, Protocol::ICMPV6, data.len() as u32);
    if !packet.icmp().verify_checksum(pseudo) {
        return Err(NdpFault::Checksum);
    }
    if packet.icmp().code() != 0 {
        return Err(NdpFault::Code);
    }
    packet.options().try_for_each(|option| option.map(|_| ()))?;
    match packet.message_type() {
        Type::REDIRECT => validate_redirect(&packet, src)?,
        _ => validate_neighbour(&packet, src, dst)?,
    }
    Ok(packet)
}

fn validate_neighbour(packet: &Packet<&[u8]>, src: Ipv6Addr, dst: Ipv6Addr) -> Result<(), NdpFault> {
    if packet.target().is_multicast() {
        return Err(NdpFault::Target);
    }
    if packet.message_type() == Type::NEIGHBOUR_ADVERTISEMENT {
        let solicited = dst.is_multicast() && packet.flags().contains(Flags::SOLICITED);
        return if solicited { Err(NdpFault::SolicitedMulticast) } else { Ok(()) };
    }
    if !src.is_unspecified() {
        return Ok(());
    }
    // RFC 4861, 7.1.1 requires a solicited-node multicast address as destination, but does not say of which
    // target.
    if solicited_node(dst) != dst {
        return Err(NdpFault::Address);
    }
    let has_address = packet.options().flatten().any(|option| option.kind == option::SOURCE_LINK_ADDRESS);
    if has_address { Err(NdpFault::UnspecifiedWithLinkAddress) } else { Ok(()) }
}

fn validate_redirect(packet: &Packet<&[u8]>, src: Ipv6Addr) -> Result<(), NdpFault> {
    if !src.is_unicast_link_local() {
        return Err(NdpFault::Address);
    }
    let (target, destination) = (packet.target(), packet.destination().unwrap_or(Ipv6Addr::UNSPECIFIED));
    let allowed = !destination.is_multicast() && (target.is_unicast_link_local() || target == destination);
    if allowed { Ok(()) } else { Err(NdpFault::Target) }
}

/// Neighbour discovery message as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repr<'a> {
    /// Request for the link-layer address of `target`.
    NeighbourSolicitation {
        /// Address to resolve.
        target: Ipv6Addr,
        /// The sender's link-layer address.
        source_link: Option<MacAddr>,
    },
    /// Announcement of the link-layer address of `target`, the sender's address.
    NeighbourAdvertisement {
        /// Flags: router, solicited, override.
        flags: Flags,
        /// Address of the sender.
        target: Ipv6Addr,
        /// Link-layer address of the sender.
        target_link: Option<MacAddr>,
    },
    /// Notification that `target` is a better next hop to `destination`.
    Redirect {
        /// Better next hop, or the destination itself if it is on the link.
        target: Ipv6Addr,
        /// Destination of the redirected packet.
        destination: Ipv6Addr,
        /// The target's link-layer address.
        target_link: Option<MacAddr>,
        /// Beginning of the redirected packet, from its IPv6 header on, at most 2,032 octets. Its length
        /// should be a multiple of 8 octets, the unit of the option; otherwise it is cut. An empty quote
        /// omits the option.
        quote: &'a [u8],
    },
}

impl<'a> Repr<'a> {
    /// Reads the message without a check of its validity (see [`validate`]).
    ///
    /// # Errors
    /// [`WireError::Field`] if an option is malformed.
    pub fn parse<T: AsRef<[u8]>>(packet: &'a Packet<T>) -> Result<Self, WireError> {
        packet.options().try_for_each(|option| option.map(|_| ()))?;
        let target = packet.target();
        let target_link = packet.link_address(option::TARGET_LINK_ADDRESS);
        Ok(match packet.destination() {
            Some(destination) => {
                let mut options = packet.options().flatten();
                let quote = options.find(|option| option.kind == option::REDIRECTED_HEADER);
                // The option has six reserved octets after type and length.
                let quote = quote.and_then(|option| option.data.get(6..)).unwrap_or(&[]);
                Self::Redirect { target, destination, target_link, quote }
            }
            None if packet.message_type() == Type::NEIGHBOUR_ADVERTISEMENT => {
                Self::NeighbourAdvertisement { flags: packet.flags(), target, target_link }
            }
            None => {
                let source_link = packet.link_address(option::SOURCE_LINK_ADDRESS);
                Self::NeighbourSolicitation { target, source_link }
            }
        })
    }

    /// Returns the message type, the length of the fixed part, and type and address of the link-layer address
    /// option, if there is one.
    fn parts(&self) -> (Type, usize, Option<(u8, MacAddr)>) {
        let (message_type, len, kind, address) = match *self {
            Self::NeighbourSolicitation { source_link, .. } => {
                (Type::NEIGHBOUR_SOLICITATION, NEIGHBOUR_LEN, option::SOURCE_LINK_ADDRESS, source_link)
            }
            Self::NeighbourAdvertisement { target_link, .. } => {
                (Type::NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_LEN, option::TARGET_LINK_ADDRESS, target_link)
            }
            Self::Redirect { target_link, .. } => {
                (Type::REDIRECT, REDIRECT_LEN, option::TARGET_LINK_ADDRESS, target_link)
            }
        };
        (message_type, len, address.map(|address| (kind, address)))
    }

    /// Returns the part of the quote that [`emit`](Self::emit) writes: whole units of 8 octets, up to the
    /// maximum length of the option.
    fn quoted(&self) -> &'a [u8] {
        match *self {
            Self::Redirect { quote, .. } => octets(quote, ..quote.len().min(254 * 8) / 8 * 8),
            _ => &[],
        }
    }

    /// Returns the number of octets that [`emit`](Self::emit) writes: the message with its options.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        let (_, fixed, link) = self.parts();
        let quote = match self.quoted().len() {
            0 => 0,
            len => 8 + len,
        };
        fixed + if link.is_some() { LINK_ADDRESS_OPTION_LEN } else { 0 } + quote
    }

    /// Writes the message and its checksum. The message must fill the buffer. `pseudo`: sum of the
    /// pseudo-header.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>, pseudo: Sum) {
        let (message_type, mut at, link) = self.parts();
        packet.buffer.as_mut().fill(0);
        packet.set_message_type(message_type);
        match *self {
            Self::NeighbourSolicitation { target, .. } => packet.set_target(target),
            Self::NeighbourAdvertisement { flags, target, .. } => {
                packet.set_target(target);
                packet.set_flags(flags);
            }
            Self::Redirect { target, destination, .. } => {
                packet.set_target(target);
                destination.put(packet.buffer.as_mut(), field::DESTINATION);
            }
        }
        let data = packet.buffer.as_mut();
        if let Some((kind, address)) = link {
            put(data, at, &[kind, 1]);
            put(data, at + 2, &address.0);
            at += LINK_ADDRESS_OPTION_LEN;
        }
        let quote = self.quoted();
        if !quote.is_empty() {
            put(data, at, &[option::REDIRECTED_HEADER, (1 + quote.len() / 8) as u8]);
            put(data, at + 8, quote);
        }
        icmpv6::Packet::new_unchecked(data).fill_checksum(pseudo);
    }
}

#[cfg(test)]
mod tests;
