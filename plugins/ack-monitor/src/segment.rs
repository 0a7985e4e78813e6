//! What of a TCP segment matters to its acknowledgments.

use millrace_plugin_abi::{Exceptions, Family, FlowKey, Packet};
use millrace_wire::tcp::{self, Flags};
use millrace_wire::{Protocol, ipv4, ipv6};

/// A segment that acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// The acknowledgment number.
    pub number: u32,
    /// The window, not scaled.
    pub window: u16,
    /// Whether it has neither data nor SYN nor FIN.
    pub is_bare: bool,
}

impl Segment {
    /// The segment of a packet; `None` where it is none, does not acknowledge, or can't be read.
    #[inline]
    pub fn read(key: &FlowKey, packet: &Packet) -> Option<Self> {
        let hidden = Exceptions::FRAGMENT.with(Exceptions::CUT);
        if Protocol(key.protocol) != Protocol::TCP || packet.exceptions.bits() & hidden.bits() != 0 {
            return None;
        }
        let tcp = tcp::Packet::new_checked(packet.transport()).ok()?;
        let flags = tcp.flags();
        if !flags.contains(Flags::ACK) || flags.contains(Flags::RST) {
            return None;
        }
        let before = packet.transport_offset().saturating_sub(packet.network_offset());
        let has_data = length(key.family(), packet)? > before + tcp.header_len();
        let is_bare = !has_data && (flags & (Flags::SYN | Flags::FIN)) == Flags::default();
        Some(Self { number: tcp.acknowledgment(), window: tcp.window(), is_bare })
    }
}

/// Octets from the network header to the end of what it carries, without padding of the link.
#[inline]
fn length(family: Family, packet: &Packet) -> Option<usize> {
    Some(match family {
        Family::V4 => ipv4::Packet::new_checked(packet.network()).ok()?.total_len().into(),
        Family::V6 => {
            let payload = ipv6::Packet::new_checked(packet.network()).ok()?.payload_len();
            ipv6::HEADER_LEN + usize::from(payload)
        }
    })
}
