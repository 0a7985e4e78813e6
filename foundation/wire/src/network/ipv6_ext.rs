//! IPv6 extension headers (RFC 8200, 4): a bounded walk over them to the upper-layer header, and the fragment
//! header.
//!
//! A walk never panics, whatever the octets are. It ends after a given number of headers, so its cost per
//! packet is bounded.

use crate::bytes::{Field as _, octets};
use crate::error::need;
use crate::{Protocol, WireError, ipv6};

/// Maximum number of extension headers that [`walk`] passes.
pub const DEFAULT_LIMIT: usize = 8;
/// Length in octets of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

mod field {
    pub const NEXT_HEADER: usize = 0;
    pub const LENGTH: usize = 1;
    pub const FRAGMENT_OFFSET: usize = 2;
    pub const FRAGMENT_IDENTIFICATION: usize = 4;
}

/// Fragment header as a value.
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
    /// Reads the header at the start of `data`, of at least 8 octets.
    #[inline]
    pub fn parse(data: &[u8]) -> Result<Self, WireError> {
        need("ipv6 fragment", FRAGMENT_HEADER_LEN, data)?;
        let word = u16::get(data, field::FRAGMENT_OFFSET);
        Ok(Self {
            next_header: Protocol::get(data, field::NEXT_HEADER),
            offset: word & !7,
            more: word & 1 != 0,
            identification: u32::get(data, field::FRAGMENT_IDENTIFICATION),
        })
    }

    /// Returns whether this fragment is the first one, which begins with the headers after the fragment
    /// header.
    #[inline]
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Returns whether this fragment is the whole packet (an atomic fragment, RFC 6946).
    #[inline]
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// Reason for the end of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The next header is an upper-layer header, or one that this router does not parse, such as ESP.
    UpperLayer,
    /// The next header is "no next header".
    NoNextHeader,
    /// The walk has passed the fragment header of a later fragment, after which no header begins.
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
    /// Protocol number of the header at `offset`, where the walk ended. If `end` is [`End::UpperLayer`], it
    /// is the upper-layer protocol.
    pub protocol: Protocol,
    /// Offset of the header of `protocol`.
    pub offset: usize,
    /// Offset of the next header field that contains `protocol`.
    pub announced_at: usize,
    /// Number of extension headers passed.
    pub headers: usize,
    /// Whether the first extension header is a hop-by-hop options header.
    pub hop_by_hop: bool,
    /// Fragment header, and its offset; `None` without one.
    pub fragment: Option<(usize, FragmentRepr)>,
    /// Reason for the end of the walk.
    pub end: End,
}

impl Walk {
    /// Returns the upper-layer protocol and the offset of its header; `None` if the walk did not reach it.
    #[inline]
    #[must_use]
    pub fn upper_layer(&self) -> Option<(Protocol, usize)> {
        (self.end == End::UpperLayer).then_some((self.protocol, self.offset))
    }
}

/// Walks over at most [`DEFAULT_LIMIT`] extension headers of `packet`, no further than its payload length or
/// the end of its buffer.
#[inline]
pub fn walk<T: AsRef<[u8]>>(packet: &ipv6::Packet<T>) -> Walk {
    let mut walk = Walk {
        protocol: packet.next_header(),
        offset: ipv6::HEADER_LEN,
        announced_at: 6,
        headers: 0,
        hop_by_hop: false,
        fragment: None,
        end: End::UpperLayer,
    };
    walk.end = loop {
        if let Some(end) = walk.step(packet.payload()) {
            break end;
        }
    };
    walk
}

impl Walk {
    /// Passes one extension header. If the header can't be passed, returns the reason, which ends the walk.
    #[inline]
    fn step(&mut self, payload: &[u8]) -> Option<End> {
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
        if self.headers == DEFAULT_LIMIT {
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
        match self.protocol {
            Protocol::HOP_BY_HOP => self.hop_by_hop = true,
            Protocol::FRAGMENT => {
                self.fragment = FragmentRepr::parse(header).ok().map(|repr| (self.offset, repr))
            }
            _ => {}
        }
        let later =
            self.protocol == Protocol::FRAGMENT && self.fragment.is_some_and(|(_, repr)| !repr.is_first());
        self.announced_at = self.offset + field::NEXT_HEADER;
        self.protocol = Protocol::get(header, field::NEXT_HEADER);
        self.offset += header.len();
        self.headers += 1;
        later.then_some(End::LaterFragment)
    }
}

/// Returns the octets of the extension header at the start of `data`; `None` unless all are in `data`.
///
/// The length octet counts units of 8 octets after the first 8. In AH it counts units of 4 octets after the
/// first 8 (RFC 4302, 2.2). Fragment headers have no length octet.
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

#[cfg(test)]
mod tests;
