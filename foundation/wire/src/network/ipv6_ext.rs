//! IPv6 extension headers (RFC 8200, 4): a bounded walk to the upper-layer header, the fragment header, and
//! the options of the hop-by-hop and destination headers.
//!
//! A walk never panics, whatever the octets are. It ends after a given number of headers, so its cost per
//! packet is bounded. Getters of [`Header`] never panic after `new_checked`.

use std::fmt;

use crate::bytes::{get_u8, get_u16, get_u32, octets, put_u8, put_u16, put_u32, view};
use crate::error::need;
use crate::{Protocol, WireError, ipv6};

/// Maximum number of extension headers that [`walk`] passes.
pub const DEFAULT_LIMIT: usize = 8;
/// Length in octets of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

const MIN_HEADER_LEN: usize = 8;

mod field {
    pub const NEXT_HEADER: usize = 0;
    pub const LENGTH: usize = 1;
    pub const OPTIONS: usize = 2;
    pub const FRAGMENT_OFFSET: usize = 2;
    pub const FRAGMENT_IDENTIFICATION: usize = 4;
    pub const ROUTING_TYPE: usize = 2;
    pub const SEGMENTS_LEFT: usize = 3;
}

view! {
    /// A view of an extension header whose length field counts units of 8 octets beyond the first 8:
    /// hop-by-hop options, destination options or routing.
    Header
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Accepts a buffer that holds the header.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check(&self) -> Result<(), WireError> {
        need("ipv6 extension", MIN_HEADER_LEN, self.data())?;
        need("ipv6 extension", self.header_len(), self.data())
    }

    /// Returns the protocol number of the next header.
    #[inline]
    pub fn next_header(&self) -> Protocol {
        Protocol(get_u8(self.data(), field::NEXT_HEADER))
    }

    /// Returns the length of the header in octets: 8 to 2,048.
    #[inline]
    pub fn header_len(&self) -> usize {
        (usize::from(get_u8(self.data(), field::LENGTH)) + 1) * 8
    }

    /// Iterates over the options of an options header; `offset` is the offset of the header in its packet.
    #[inline]
    pub fn options(&self, offset: usize) -> Options<'_> {
        Options {
            rest: octets(self.data(), field::OPTIONS..self.header_len()),
            offset: offset + field::OPTIONS,
        }
    }

    /// Returns the type of a routing header.
    #[inline]
    pub fn routing_type(&self) -> u8 {
        get_u8(self.data(), field::ROUTING_TYPE)
    }

    /// Returns the segments left of a routing header.
    #[inline]
    pub fn segments_left(&self) -> u8 {
        get_u8(self.data(), field::SEGMENTS_LEFT)
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Header<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ipv6 extension of {} octets, then {}", self.header_len(), self.next_header())
    }
}

/// A fragment header as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentRepr {
    /// Protocol number of the first header of the fragmented part.
    pub next_header: Protocol,
    /// Offset of this fragment in the fragmented part, in octets: 0 to 65,528, a multiple of 8.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Identification, which all fragments of a packet share.
    pub identification: u32,
}

impl FragmentRepr {
    /// Reads the header at the start of `data`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 8 octets.
    #[inline]
    pub fn parse(data: &[u8]) -> Result<Self, WireError> {
        need("ipv6 fragment", FRAGMENT_HEADER_LEN, data)?;
        let word = get_u16(data, field::FRAGMENT_OFFSET);
        Ok(Self {
            next_header: Protocol(get_u8(data, field::NEXT_HEADER)),
            offset: word & !7,
            more: word & 1 != 0,
            identification: get_u32(data, field::FRAGMENT_IDENTIFICATION),
        })
    }

    /// Returns the number of octets that [`emit`](Self::emit) writes.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        FRAGMENT_HEADER_LEN
    }

    /// Writes the header at the start of `data`.
    pub fn emit(&self, data: &mut [u8]) {
        put_u8(data, field::NEXT_HEADER, self.next_header.0);
        put_u8(data, field::LENGTH, 0);
        put_u16(data, field::FRAGMENT_OFFSET, (self.offset & !7) | u16::from(self.more));
        put_u32(data, field::FRAGMENT_IDENTIFICATION, self.identification);
    }

    /// Whether this fragment is the first one, which has the upper-layer header or the headers before it.
    #[inline]
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Whether this fragment is the whole packet (RFC 6946).
    #[inline]
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

impl fmt::Display for FragmentRepr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { next_header, offset, more, identification } = self;
        let more = if *more { "+" } else { "" };
        write!(f, "ipv6 fragment {offset}{more} id {identification:#010x} {next_header}")
    }
}

/// Position of a header, in octets from the start of the IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first octet.
    pub offset: usize,
    /// Length of the header.
    pub len: usize,
}

/// Reason for the end of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The next header is an upper-layer header, or one that this router does not know, such as ESP.
    UpperLayer,
    /// The next header is "no next header".
    NoNextHeader,
    /// The walk passed the fragment header of a later fragment: no header begins after it.
    LaterFragment,
    /// The next header is a hop-by-hop options header that does not follow the fixed header (RFC 8200, 4.1).
    MisplacedHopByHop,
    /// The next header is a second fragment header: two packets would claim the octets after it (RFC 8200,
    /// 4.1 and 4.5).
    RepeatedFragment,
    /// The next extension header is not completely in the packet.
    Truncated,
    /// The number of extension headers exceeds the limit.
    Limit,
}

/// Result of a walk. All offsets are in octets from the start of the IPv6 header, as in ICMPv6 messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// Protocol number of the header at `offset`: the upper-layer protocol if `end` is [`End::UpperLayer`].
    pub protocol: Protocol,
    /// Offset of the header of `protocol`.
    pub offset: usize,
    /// Offset of the Next Header field that holds `protocol`.
    pub announced_at: usize,
    /// Number of extension headers passed.
    pub headers: usize,
    /// Hop-by-hop options header.
    pub hop_by_hop: Option<Extent>,
    /// Last routing header.
    pub routing: Option<Extent>,
    /// Offset of the fragment header, and the header.
    pub fragment: Option<(usize, FragmentRepr)>,
    /// Reason for the end of the walk.
    pub end: End,
}

impl Walk {
    /// Whether the limit ended the walk.
    #[inline]
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.end == End::Limit
    }

    /// Returns the upper-layer protocol and the offset of its header, if the walk reached it.
    #[inline]
    #[must_use]
    pub fn upper_layer(&self) -> Option<(Protocol, usize)> {
        (self.end == End::UpperLayer).then_some((self.protocol, self.offset))
    }
}

/// Walks over at most [`DEFAULT_LIMIT`] extension headers.
#[inline]
pub fn walk<T: AsRef<[u8]>>(packet: &ipv6::Packet<T>) -> Walk {
    walk_limited(packet, DEFAULT_LIMIT)
}

/// Walks over at most `limit` extension headers of `packet`, up to its payload length or the end of its buffer.
#[inline]
pub fn walk_limited<T: AsRef<[u8]>>(packet: &ipv6::Packet<T>, limit: usize) -> Walk {
    let mut walk = Walk {
        protocol: packet.next_header(),
        offset: ipv6::HEADER_LEN,
        announced_at: 6,
        headers: 0,
        hop_by_hop: None,
        routing: None,
        fragment: None,
        end: End::UpperLayer,
    };
    walk.end = loop {
        if let Some(end) = walk.step(packet.payload(), limit) {
            break end;
        }
    };
    walk
}

impl Walk {
    /// Passes one extension header; returns the reason if it can't.
    #[inline]
    fn step(&mut self, payload: &[u8], limit: usize) -> Option<End> {
        match self.protocol {
            Protocol::HOP_BY_HOP if self.headers > 0 => return Some(End::MisplacedHopByHop),
            Protocol::FRAGMENT if self.fragment.is_some() => return Some(End::RepeatedFragment),
            Protocol::HOP_BY_HOP
            | Protocol::DESTINATION_OPTIONS
            | Protocol::ROUTING
            | Protocol::FRAGMENT
            | Protocol::AH => {}
            Protocol::NO_NEXT_HEADER => return Some(End::NoNextHeader),
            _ => return Some(End::UpperLayer),
        }
        if self.headers == limit {
            return Some(End::Limit);
        }
        let Some(header) = whole_header(self.protocol, octets(payload, self.offset - ipv6::HEADER_LEN..))
        else {
            return Some(End::Truncated);
        };
        self.pass(header)
    }

    /// Records the content of a header and advances past it.
    #[inline]
    fn pass(&mut self, header: &[u8]) -> Option<End> {
        let extent = Extent { offset: self.offset, len: header.len() };
        match self.protocol {
            Protocol::HOP_BY_HOP => self.hop_by_hop = Some(extent),
            Protocol::ROUTING => self.routing = Some(extent),
            Protocol::FRAGMENT => {
                self.fragment = FragmentRepr::parse(header).ok().map(|repr| (self.offset, repr))
            }
            _ => {}
        }
        let later =
            self.protocol == Protocol::FRAGMENT && self.fragment.is_some_and(|(_, repr)| !repr.is_first());
        self.announced_at = self.offset + field::NEXT_HEADER;
        self.protocol = Protocol(get_u8(header, field::NEXT_HEADER));
        self.offset += header.len();
        self.headers += 1;
        later.then_some(End::LaterFragment)
    }
}

/// Returns the octets of the extension header at the start of `data`, if all are in `data`. The length octet
/// counts units of 8 octets beyond the first 8. In AH it counts units of 4 beyond the first 8 (RFC 4302,
/// 2.2). Fragment headers have no length octet.
#[inline]
fn whole_header(protocol: Protocol, data: &[u8]) -> Option<&[u8]> {
    let length = usize::from(*data.get(field::LENGTH)?);
    let len = match protocol {
        Protocol::FRAGMENT => FRAGMENT_HEADER_LEN,
        Protocol::AH => (length + 2) * 4,
        _ => (length + 1) * 8,
    };
    data.get(..len)
}

/// Action on a packet with an unknown option (RFC 8200, 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnknownAction {
    /// Skip the option.
    Skip,
    /// Drop the packet.
    Discard,
    /// Drop the packet and send a parameter problem, code 2.
    Report,
    /// Drop the packet and send a parameter problem, code 2, unless its destination is a multicast address.
    ReportUnlessMulticast,
}

/// An option of a hop-by-hop or destination header, without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Offset of the option's type octet, with the origin of the header's offset.
    pub offset: usize,
    /// Option type.
    pub kind: u8,
    /// Data after type and length.
    pub data: &'a [u8],
}

impl RawOption<'_> {
    /// Padding of one octet.
    pub const PAD1: u8 = 0;
    /// Padding with a length field.
    pub const PADN: u8 = 1;
    /// Router alert (RFC 2711).
    pub const ROUTER_ALERT: u8 = 5;
    /// Jumbo payload (RFC 2675).
    pub const JUMBO_PAYLOAD: u8 = 0xc2;

    /// Returns the action on the option if it is unknown: the two highest bits of its type.
    #[inline]
    #[must_use]
    pub const fn unknown_action(&self) -> UnknownAction {
        match self.kind >> 6 {
            0 => UnknownAction::Skip,
            1 => UnknownAction::Discard,
            2 => UnknownAction::Report,
            _ => UnknownAction::ReportUnlessMulticast,
        }
    }

    /// Whether a router may change the option's data.
    #[inline]
    #[must_use]
    pub const fn may_change(&self) -> bool {
        self.kind & 0x20 != 0
    }
}

/// Error: an option extends beyond its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionFault {
    /// Offset of the offending octet: the length, or the type if the header ends after it.
    pub offset: usize,
    /// Option type.
    pub kind: u8,
}

impl fmt::Display for OptionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, kind } = self;
        write!(f, "ipv6 option {kind:#04x}: length at offset {offset} exceeds the extension header")
    }
}

impl std::error::Error for OptionFault {}

/// Iterates over options other than padding, up to the end of the header or the first malformed one.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Options<'a> {
    /// Reads the option at the start, which must exist and have more than one octet.
    fn option(&self, kind: u8) -> Result<RawOption<'a>, OptionFault> {
        let length = *self.rest.get(1).ok_or(OptionFault { offset: self.offset, kind })?;
        let data = self.rest.get(2..2 + usize::from(length));
        let data = data.ok_or(OptionFault { offset: self.offset + 1, kind })?;
        Ok(RawOption { offset: self.offset, kind, data })
    }

    fn advance(&mut self, count: usize) {
        self.rest = octets(self.rest, count..);
        self.offset += count;
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<RawOption<'a>, OptionFault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let kind = *self.rest.first()?;
            if kind == RawOption::PAD1 {
                self.advance(1);
                continue;
            }
            let option = self.option(kind);
            match option {
                Ok(option) => self.advance(2 + option.data.len()),
                Err(_) => self.rest = &[],
            }
            if kind != RawOption::PADN || option.is_err() {
                return Some(option);
            }
        }
    }
}

#[cfg(test)]
mod tests;
