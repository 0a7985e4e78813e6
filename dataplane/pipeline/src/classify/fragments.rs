//! Assignment of fragments to the flows of their first fragments.

use millrace_classify::{Fragment, fragment_key};
use millrace_packet::{DropReason, Exceptions, Family, Packet};
use millrace_units::Instant;
use millrace_wire::Protocol;

use super::Classifier;
use crate::gates::Gates;
use crate::parse::Parsed;

/// Number of octets at the start of an IPv6 packet's fragmentable part that may hold headers. It applies if
/// some binding can refuse packets. The router then drops a first fragment with longer headers. It also drops
/// a later fragment that begins within these octets, if the first fragment is unknown.
///
/// The first fragment holds all headers (RFC 7112). Under the minimum MTU of 1,280 octets (RFC 8200, 5), it
/// has room for this number of octets after the IPv6 header and the fragment header.
const HEADERS_END: u16 = 1232;
/// Replaces [`HEADERS_END`] for later fragments if bindings exist but none can refuse packets. The TCP flags
/// lie within these octets.
const UNSEEN_HEADERS_END: u16 = 16;

impl Classifier {
    /// Assigns a later fragment to the flow of its first fragment, or records a first fragment. Returns the
    /// drop reason of a fragment that could evade filters.
    pub fn join_fragments(
        &mut self,
        packet: &mut Packet,
        parsed: &mut Parsed,
        gates: &Gates,
        now: Instant,
    ) -> Result<(), DropReason> {
        let Some(fragment) = parsed.fragment else { return Ok(()) };
        let Fragment { identification, first, offset, headers_end } = fragment;
        if parsed.overlaps_header && gates.is_bound() {
            // The fragment could overwrite fields that filters have checked (RFC 1858, 3.2; RFC 3128).
            return Err(DropReason::Ip4Fragment);
        }
        let is_cut = packet.exceptions.contains(Exceptions::CUT);
        if first && is_cut && gates.judges() {
            // Filters on ports or flags would not match the later fragments (RFC 1858, 3.1; RFC 7112).
            return Err(match parsed.key.family() {
                Family::V4 => DropReason::Ip4Fragment,
                Family::V6 => DropReason::Ip6HeaderChain,
            });
        }
        let is_told_apart = Protocol(parsed.key.protocol).has_ports() || parsed.key.family() == Family::V6;
        if !is_told_apart || is_cut {
            return Ok(());
        }
        if headers_end > HEADERS_END && gates.refuses() {
            return Err(DropReason::Ip6HeaderChain);
        }
        let hash = self.flows.hash(&fragment_key(&parsed.key));
        let mut candidate = parsed.candidate(packet);
        if first {
            self.fragments.begin(&candidate, hash, fragment, now);
        } else {
            let end = self.fragments.follow(&mut candidate, hash, identification, now);
            let end = end.unwrap_or(match parsed.key.family() {
                Family::V4 => 0,
                Family::V6 if gates.refuses() => HEADERS_END,
                Family::V6 => UNSEEN_HEADERS_END,
            });
            if offset < end && gates.is_bound() {
                // The first fragment's header chain determines the extent of the headers (RFC 5722; RFC
                // 7112).
                return Err(DropReason::Ip4Fragment);
            }
            (parsed.key, parsed.varying.tcp_flags) = (candidate.key, candidate.tcp_flags);
            packet.exceptions = candidate.exceptions;
        }
        Ok(())
    }
}
