//! Fields of a TCP segment that the plugin uses.

use millrace_plugin_abi::{Exceptions, Family, FlowKey, Packet};
use millrace_wire::tcp::{self, Flags};
use millrace_wire::{Protocol, ipv4, ipv6};

/// TCP segment with an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Acknowledgment number.
    pub number: u32,
    /// TCP window, unscaled.
    pub window: u16,
    /// Whether the segment has neither data nor SYN nor FIN.
    pub is_bare: bool,
}

impl Segment {
    /// Reads the TCP segment of a packet. Returns `None` for another protocol, unreadable headers, or a
    /// segment that the plugin doesn't count.
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

/// Returns the number of octets from the network header to the end of the payload, without link padding.
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
