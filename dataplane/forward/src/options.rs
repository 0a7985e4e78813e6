//! Options of IPv4 packets in transit: RFC 1812, 5.3.13; RFC 7126; RFC 6274, 3.13.
//!
//! Padding, unknown options, record route and timestamp pass unchanged (OP-01, OP-02). Packets with source
//! routes are dropped: RFC 7126 (BCP 186), 4.3 and 4.4, requires this, although RFC 1812 forwards them by
//! default. Malformed options are answered with an ICMP error (OP-07).

use millrace_wire::ipv4::{self, option};
use millrace_wire::tlv::{OptionFault, RawOption};

/// Treatment of source-routed packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceRoutePolicy {
    /// Drop the packets.
    #[default]
    Drop,
    /// Forward the packets to their current destination address, with the option unchanged.
    Ignore,
}

/// Treatment of a packet because of its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsVerdict {
    /// Forward the packet with its options unchanged.
    Pass,
    /// Drop the packet silently, because it carries a source route.
    SourceRoute,
    /// Drop the packet, and send its source an ICMP parameter problem.
    Malformed {
        /// Offset of the wrong octet from the start of the header.
        pointer: u8,
    },
}

/// Checks the options of an IPv4 header that passed the sanity checks. `header` contains the whole header.
pub fn check_options4(header: &[u8], policy: SourceRoutePolicy) -> OptionsVerdict {
    for found in ipv4::Packet::new_unchecked(header).options() {
        let checked = found.and_then(|found| check_pointer(&found).map(|()| found));
        match checked {
            Ok(found) if option::is_source_route(&found) && policy == SourceRoutePolicy::Drop => {
                return OptionsVerdict::SourceRoute;
            }
            Ok(_) => {}
            Err(fault) => return OptionsVerdict::Malformed { pointer: fault.offset as u8 },
        }
    }
    OptionsVerdict::Pass
}

/// Checks the pointer of a route or timestamp option. It must be at least 4, or 5 in a timestamp (RFC 791,
/// 3.1), so that it points past the option's fixed part.
fn check_pointer(found: &RawOption<'_>) -> Result<(), OptionFault> {
    let least = match found.kind() {
        option::RECORD_ROUTE | option::LOOSE_SOURCE_ROUTE | option::STRICT_SOURCE_ROUTE => 4,
        option::TIMESTAMP => 5,
        _ => return Ok(()),
    };
    let length = found.len();
    let fault = |at| OptionFault { offset: found.offset + at };
    match option::pointer(found) {
        // A timestamp has a fourth fixed octet before its slots, for overflow and flag.
        _ if length + 1 < least => Err(fault(1)),
        Some(pointer) if usize::from(pointer) >= least => Ok(()),
        Some(_) => Err(fault(2)),
        None => Err(fault(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_packets::ip4;
    use OptionsVerdict::{Malformed, Pass, SourceRoute};
    use millrace_wire::Protocol;
    use proptest::prelude::*;

    #[test]
    fn options_in_transit() {
        let rows: [(&str, &[u8], OptionsVerdict); 18] = [
            ("OP-01 no options", &[], Pass),
            ("OP-01 no operation and end", &[1, 1, 1, 0], Pass),
            ("OP-01 forty octets of no operation", &[1; 40], Pass),
            ("OP-02 unknown option", &[0x9e, 4, 0xaa, 0xbb], Pass),
            ("OP-03 loose source route", &[131, 7, 4, 10, 0, 0, 2, 0], SourceRoute),
            ("OP-03 strict source route behind padding", &[1, 137, 7, 4, 10, 0, 0, 2], SourceRoute),
            ("OP-05 record route with room", &[7, 7, 4, 0, 0, 0, 0, 0], Pass),
            ("OP-05 full record route", &[7, 7, 8, 1, 2, 3, 4, 0], Pass),
            ("OP-06 timestamp", &[68, 8, 5, 0, 0, 0, 0, 0], Pass),
            ("OP-07 length 0", &[0x9e, 0, 0, 0], Malformed { pointer: 21 }),
            ("OP-07 length 1", &[0x9e, 1, 0, 0], Malformed { pointer: 21 }),
            ("OP-07 length past the end", &[1, 0x9e, 4, 0], Malformed { pointer: 22 }),
            ("OP-07 kind without length", &[1, 1, 1, 0x9e], Malformed { pointer: 23 }),
            ("OP-07 record route, pointer 3", &[7, 7, 3, 0, 0, 0, 0, 0], Malformed { pointer: 22 }),
            ("OP-07 source route, pointer 0", &[131, 7, 0, 0, 0, 0, 0, 0], Malformed { pointer: 22 }),
            ("OP-07 timestamp, pointer 4", &[68, 8, 4, 0, 0, 0, 0, 0], Malformed { pointer: 22 }),
            ("OP-07 record route without pointer", &[7, 2, 0, 0], Malformed { pointer: 21 }),
            ("OP-07 timestamp without flags", &[68, 3, 5, 0], Malformed { pointer: 21 }),
        ];
        for (what, options, verdict) in rows {
            let bytes = ip4(Protocol::UDP, options, b"payload");
            assert_eq!(check_options4(&bytes, SourceRoutePolicy::Drop), verdict, "{what}");
        }
    }

    #[test]
    fn ignored_source_route_passes() {
        let bytes = ip4(Protocol::UDP, &[131, 7, 4, 10, 0, 0, 2, 0], b"payload");
        assert_eq!(check_options4(&bytes, SourceRoutePolicy::Ignore), Pass);
    }

    proptest! {
        /// Test case OP-07: no octets cause a panic, or a pointer outside of the header.
        #[test]
        fn any_octets_end_in_a_verdict(options in proptest::collection::vec(any::<u8>(), 0..=40)) {
            let bytes = ip4(Protocol::UDP, &options, b"");
            if let Malformed { pointer } = check_options4(&bytes, SourceRoutePolicy::Drop) {
                prop_assert!((20..bytes.len()).contains(&pointer.into()));
            }
        }
    }
}
