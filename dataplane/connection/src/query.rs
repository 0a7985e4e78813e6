//! ICMP queries: requests and their replies, which share an identifier (RFC 792, RFC 950, RFC 4443).

use millrace_wire::Protocol;

/// ICMP query message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Query {
    /// Identifier that the request chose.
    pub identifier: u16,
    /// Type of the request, for requests and replies.
    pub request: u8,
    /// Whether this is the request.
    pub is_request: bool,
}

/// Types of the requests of ICMP with the types of their replies: echo, timestamp, information, address mask.
const V4: [(u8, u8); 4] = [(8, 0), (13, 14), (15, 16), (17, 18)];
/// Types of the echo request and the echo reply of ICMPv6.
const V6: [(u8, u8); 1] = [(128, 129)];

impl Query {
    /// Reads a message; `None` if it is no query, or cut before the end of the identifier.
    #[inline]
    pub fn read(protocol: u8, message: &[u8]) -> Option<Self> {
        let [kind, _, _, _, high, low, ..] = *message else { return None };
        let pairs: &[_] = if Protocol(protocol) == Protocol::ICMP { &V4 } else { &V6 };
        let (request, _) = *pairs.iter().find(|(request, reply)| [*request, *reply].contains(&kind))?;
        Some(Self { identifier: u16::from_be_bytes([high, low]), request, is_request: kind == request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_queries_are_read() {
        let (icmp, icmpv6) = (Protocol::ICMP.0, Protocol::ICMPV6.0);
        let read = |protocol, kind| Query::read(protocol, &[kind, 0, 0, 0, 1, 2]);
        let query = |request, is_request| Some(Query { identifier: 258, request, is_request });
        assert_eq!([read(icmp, 8), read(icmp, 0)], [query(8, true), query(8, false)]);
        assert_eq!([read(icmp, 13), read(icmp, 18)], [query(13, true), query(17, false)]);
        assert_eq!([read(icmpv6, 128), read(icmpv6, 129)], [query(128, true), query(128, false)]);
        assert_eq!([read(icmp, 3), read(icmpv6, 8), read(icmpv6, 1)], [None; 3]);
        assert_eq!(Query::read(icmp, &[8, 0, 0, 0, 1]), None);
    }
}
