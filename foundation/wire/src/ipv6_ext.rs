//! IPv6 extension headers (RFC 8200, 4): a bounded walk to the upper-layer header, the fragment header, and the
//! options of the hop-by-hop and destination headers.
//!
//! Nothing in a walk panics, whatever the octets are, and it ends after a given number of headers, so that its cost
//! per packet has a bound. Getters of [`Header`] never panic after `new_checked`.

use std::fmt;

use crate::bytes::{get_u8, get_u16, get_u32, octets, put_u8, put_u16, put_u32, view};
use crate::error::need;
use crate::{Protocol, WireError, ipv6};

/// Headers that [`walk`] looks through before it gives up.
pub const DEFAULT_LIMIT: usize = 8;
/// Octets of a fragment header.
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
    /// A view of an extension header that counts its length in units of 8 octets beyond the first 8: hop-by-hop
    /// options, destination options, routing.
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

    /// What follows the header.
    #[inline]
    pub fn next_header(&self) -> Protocol {
        Protocol(get_u8(self.data(), field::NEXT_HEADER))
    }

    /// Octets of the header: 8 to 2,048.
    #[inline]
    pub fn header_len(&self) -> usize {
        (usize::from(get_u8(self.data(), field::LENGTH)) + 1) * 8
    }

    /// The options, if the header is one of options; `offset` is where it lies in its packet.
    #[inline]
    pub fn options(&self, offset: usize) -> Options<'_> {
        Options {
            rest: octets(self.data(), field::OPTIONS..self.header_len()),
            offset: offset + field::OPTIONS,
        }
    }

    /// The routing type, if the header is one of routing.
    #[inline]
    pub fn routing_type(&self) -> u8 {
        get_u8(self.data(), field::ROUTING_TYPE)
    }

    /// Segments left, if the header is one of routing.
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
    /// What the fragmented part begins with.
    pub next_header: Protocol,
    /// Where this fragment belongs, in octets: 0 to 65,528, a multiple of 8.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Which fragments belong together.
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

    /// Octets that [`emit`](Self::emit) writes.
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

    /// Whether the upper-layer header, or what precedes it, is in this fragment.
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

/// Where a header lies, in octets from the start of the IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its first octet.
    pub offset: usize,
    /// Its length.
    pub len: usize,
}

/// Why a walk ended where it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// At an upper-layer header, or at one this router does not know: ESP is among them.
    UpperLayer,
    /// At "no next header".
    NoNextHeader,
    /// Behind the fragment header of a fragment that is not the first: no header begins here.
    LaterFragment,
    /// At hop-by-hop options that do not follow the fixed header (RFC 8200, 4.1).
    MisplacedHopByHop,
    /// At a second fragment header: two packets would claim the octets behind it (RFC 8200, 4.1 and 4.5).
    RepeatedFragment,
    /// At an extension header that is not wholly in the packet.
    Truncated,
    /// At one extension header more than allowed.
    Limit,
}

/// What a walk found. All offsets are in octets from the start of the IPv6 header, as those of ICMPv6 messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// What lies at `offset`: the upper-layer protocol if `end` is [`End::UpperLayer`].
    pub protocol: Protocol,
    /// Where it begins.
    pub offset: usize,
    /// Where the octet is that announced `protocol`.
    pub announced_at: usize,
    /// Extension headers passed.
    pub headers: usize,
    /// The hop-by-hop options.
    pub hop_by_hop: Option<Extent>,
    /// The last routing header.
    pub routing: Option<Extent>,
    /// The fragment header and where it begins.
    pub fragment: Option<(usize, FragmentRepr)>,
    /// Why the walk ended.
    pub end: End,
}

impl Walk {
    /// Whether the walk was cut short by its limit.
    #[inline]
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.end == End::Limit
    }

    /// The upper-layer protocol and where its header begins, if the walk came to it.
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
    /// Passes one extension header, or says why not.
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

    /// Notes what the header says and goes behind it.
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

/// The octets of the extension header at the start of `data`, if they are all there. The length octet counts units
/// of 8 octets beyond the first 8; in AH, units of 4 beyond the first 8 (RFC 4302, 2.2); fragment headers have none.
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

/// What to do with a packet that has an option one does not know (RFC 8200, 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnknownAction {
    /// Go on with the next option.
    Skip,
    /// Drop the packet.
    Discard,
    /// Drop it and send a parameter problem, code 2.
    Report,
    /// Drop it and send a parameter problem, code 2, unless its destination is a multicast address.
    ReportUnlessMulticast,
}

/// An option of a hop-by-hop or destination header, in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Where the option's type octet is, from where the header's offset was counted.
    pub offset: usize,
    /// Option type.
    pub kind: u8,
    /// What follows type and length.
    pub data: &'a [u8],
}

impl RawOption<'_> {
    /// One octet of padding.
    pub const PAD1: u8 = 0;
    /// Padding with a length.
    pub const PADN: u8 = 1;
    /// Router alert (RFC 2711).
    pub const ROUTER_ALERT: u8 = 5;
    /// Jumbo payload (RFC 2675).
    pub const JUMBO_PAYLOAD: u8 = 0xc2;

    /// What to do if the option is not known: the two highest bits of its type.
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

/// An option that does not end in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionFault {
    /// Where the offending octet is: the length, or the type if the header ends behind it.
    pub offset: usize,
    /// Option type.
    pub kind: u8,
}

impl fmt::Display for OptionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, kind } = self;
        write!(f, "ipv6 option {kind:#04x}: its length at offset {offset} must end it within its header")
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
    /// Reads the option at the start, which is neither absent nor of one octet.
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
