//! State of a connection, by protocol.

use millrace_memory::zeroable;
use millrace_wire::Protocol;

use crate::direction::Direction;
use crate::exchange::Exchange;
use crate::invalid::Invalid;
use crate::sctp::{Sctp, SctpPhase};
use crate::tcp::{Segment, Tcp};

/// Packet of a connection, from its transport header on.
#[derive(Clone, Copy, Debug)]
pub struct Transport<'a> {
    /// Octets from the transport header on, as far as they are at hand. At least the transport header has to
    /// be among them.
    pub octets: &'a [u8],
    /// Number of all octets from the transport header on; of a fragment, its own.
    pub length: usize,
    /// Fragment that the packet is.
    pub fragment: Fragment,
}

/// Fragment of an IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fragment {
    /// The packet is whole.
    #[default]
    Whole,
    /// First fragment, with the transport header.
    First,
    /// Later fragment, without a transport header.
    Later,
}

impl Transport<'_> {
    /// Returns whether the packet is a later fragment, without a transport header.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment == Fragment::Later
    }

    /// Reads the TCP segment; `None` if it is malformed.
    #[inline]
    fn segment(&self) -> Option<Segment> {
        let segment = Segment::read(self.octets, self.length)?;
        Some(Segment { is_fragment: self.fragment == Fragment::First, ..segment })
    }
}

zeroable! {
    /// State of a connection, by protocol.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum State {
        /// No connection.
        Free = 0,
        /// TCP.
        Tcp(Tcp),
        /// SCTP.
        Sctp(Sctp),
        /// UDP and UDP-Lite.
        Udp(Exchange),
        /// ICMP and ICMPv6 queries.
        Query(Exchange),
        /// All other protocols.
        Other(Exchange),
    }
}

/// List of the connections that new ones may recycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recycling {
    /// Connections without opening and end, such as UDP, of which only the originator has sent packets.
    Unanswered,
    /// All others that are not assured.
    Unassured,
}

impl State {
    /// Opens a connection by a packet of its originator. With `adopts`, a segment of TCP other than SYN opens
    /// it, too.
    ///
    /// # Errors
    /// The reason why the packet opens no connection.
    pub fn open(protocol: Protocol, transport: &Transport<'_>, adopts: bool) -> Result<Self, Invalid> {
        Ok(match protocol {
            Protocol::TCP | Protocol::SCTP if transport.is_later_fragment() => {
                return Err(Invalid::NotOpening);
            }
            Protocol::TCP => {
                let segment = transport.segment().ok_or(Invalid::Malformed)?;
                let opened = Tcp::open(&segment);
                Self::Tcp(if adopts { opened.or_else(|_| Tcp::adopt(&segment))? } else { opened? })
            }
            Protocol::SCTP => Self::Sctp(Sctp::open(transport.octets)?),
            Protocol::UDP | Protocol::UDP_LITE => Self::Udp(Exchange::Unanswered),
            Protocol::ICMP | Protocol::ICMPV6 => Self::Query(Exchange::Unanswered),
            _ => Self::Other(Exchange::Unanswered),
        })
    }

    /// Sets the epoch of a connection that has just been opened.
    pub fn begin_epoch(&mut self, epoch: u16) {
        match self {
            Self::Tcp(tcp) => tcp.epoch = epoch,
            Self::Sctp(sctp) => sctp.epoch = epoch,
            Self::Free | Self::Udp(_) | Self::Query(_) | Self::Other(_) => {}
        }
    }

    /// Notes the epoch of a packet. Between epochs, packets may have passed untracked, so TCP is no longer
    /// checked against its windows, and SCTP may have other tags.
    #[inline]
    pub fn enter_epoch(&mut self, epoch: u16) {
        match self {
            Self::Tcp(tcp) => tcp.enter_epoch(epoch),
            Self::Sctp(sctp) => sctp.enter_epoch(epoch),
            Self::Free | Self::Udp(_) | Self::Query(_) | Self::Other(_) => {}
        }
    }

    /// Advances by a packet. A later fragment changes no state of TCP and SCTP.
    ///
    /// # Errors
    /// The reason why the packet is invalid; the state stays the same.
    #[inline]
    pub fn advance(&mut self, direction: Direction, transport: &Transport<'_>) -> Result<(), Invalid> {
        match self {
            Self::Tcp(_) | Self::Sctp(_) if transport.is_later_fragment() => {}
            Self::Tcp(tcp) => {
                let segment = transport.segment().ok_or(Invalid::Malformed)?;
                tcp.advance(direction, &segment)?;
            }
            Self::Sctp(sctp) => sctp.advance(direction, transport.octets)?,
            Self::Udp(exchange) | Self::Query(exchange) | Self::Other(exchange) => {
                exchange.advance(direction);
            }
            Self::Free => return Err(Invalid::NotOpening),
        }
        Ok(())
    }

    /// Returns whether a packet opens a new connection in place of this one, which is over or was never
    /// answered.
    #[inline]
    pub fn is_reopened_by(&self, direction: Direction, transport: &Transport<'_>) -> bool {
        match self {
            Self::Tcp(tcp) if !transport.is_later_fragment() => {
                // Of all segments, only SYN opens; its flags are in the fourteenth octet.
                transport.octets.get(13).is_some_and(|flags| flags & 0x12 == 2)
                    && transport.segment().is_some_and(|segment| tcp.is_reopened_by(direction, &segment))
            }
            Self::Sctp(sctp) if !transport.is_later_fragment() => sctp.is_reopened_by(transport.octets),
            _ => false,
        }
    }

    /// Returns whether both sides have answered each other. New connections can't recycle the connection then. With a
    /// forged source address, that can't happen in TCP and SCTP, and in other protocols only if the other side answers
    /// twice.
    #[inline]
    pub fn is_assured(&self) -> bool {
        self.recycling().is_none()
    }

    /// Returns the list of connections to recycle that the connection belongs to; `None` if it is assured.
    #[inline]
    pub fn recycling(&self) -> Option<Recycling> {
        let is_assured = match self {
            Self::Free => false,
            Self::Tcp(tcp) => !tcp.phase().is_over() && tcp.phase().is_past_handshake(),
            Self::Sctp(sctp) => matches!(sctp.phase(), SctpPhase::Established | SctpPhase::Closing),
            Self::Udp(exchange) | Self::Query(exchange) | Self::Other(exchange) => match exchange {
                Exchange::Unanswered => return Some(Recycling::Unanswered),
                Exchange::Answered | Exchange::Resumed => false,
                Exchange::Stream => true,
            },
        };
        (!is_assured).then_some(Recycling::Unassured)
    }

    /// Returns whether the other side has answered.
    #[inline]
    pub fn is_answered(&self) -> bool {
        match self {
            Self::Free => false,
            Self::Tcp(tcp) => tcp.phase().is_answered(),
            Self::Sctp(sctp) => sctp.phase() != SctpPhase::Init,
            Self::Udp(exchange) | Self::Query(exchange) | Self::Other(exchange) => {
                *exchange != Exchange::Unanswered
            }
        }
    }

    /// Returns whether the sender of a direction may have sent a packet that an ICMP error quotes. Off-path
    /// senders of errors don't know the sequence numbers of TCP (RFC 5927, 4.1).
    pub fn has_sent(&self, direction: Direction, sequence: Option<u32>) -> bool {
        match (self, sequence) {
            (Self::Tcp(tcp), Some(sequence)) => tcp.has_sent(direction, sequence),
            (Self::Tcp(_), None) => false,
            (state, _) => *state != Self::Free,
        }
    }

    /// Returns the name of the phase in lists.
    pub fn phase(&self) -> &'static str {
        match self {
            Self::Free => "none",
            Self::Tcp(tcp) => tcp.phase().name(),
            Self::Sctp(sctp) => sctp.phase().name(),
            Self::Udp(exchange) | Self::Query(exchange) | Self::Other(exchange) => exchange.name(),
        }
    }
}
