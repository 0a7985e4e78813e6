//! Idle times after which connections end.

use std::time::Duration;

use crate::exchange::Exchange;
use crate::sctp::SctpPhase;
use crate::state::State;
use crate::tcp::Phase;

/// Idle times after which connections end, by protocol and phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// TCP and SCTP, between the first packet and the end of the handshake. RFC 5382, REQ-5: at least 4
    /// minutes for a connection that is partially open.
    pub opening: Duration,
    /// TCP and SCTP, established. RFC 5382, REQ-5: at least 2 hours 4 minutes.
    pub established: Duration,
    /// TCP and SCTP, after the first FIN or SHUTDOWN. RFC 5382, REQ-5: at least 4 minutes.
    pub closing: Duration,
    /// TCP and SCTP, after the end of the connection.
    pub closed: Duration,
    /// UDP, before an answer.
    pub udp_unanswered: Duration,
    /// UDP, with packets in both directions. RFC 4787, REQ-5: at least 2 minutes, 5 recommended.
    pub udp: Duration,
    /// ICMP queries. RFC 5508, REQ-1: at least 60 s.
    pub query: Duration,
    /// All other protocols.
    pub other: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            opening: seconds(240),
            established: seconds(7440),
            closing: seconds(240),
            closed: seconds(10),
            udp_unanswered: seconds(30),
            udp: seconds(300),
            query: seconds(60),
            other: seconds(600),
        }
    }
}

impl Timeouts {
    /// Returns the idle time of a connection in this state.
    #[inline]
    pub(crate) fn of(&self, state: &State) -> Duration {
        match state {
            State::Free => Duration::ZERO,
            State::Tcp(tcp) => match tcp.phase() {
                Phase::Established => self.established,
                Phase::None | Phase::SynSent | Phase::SynReceived => self.opening,
                Phase::Closing => self.closing,
                Phase::TimeWait | Phase::Reset => self.closed,
            },
            State::Sctp(sctp) => match sctp.phase() {
                SctpPhase::Established => self.established,
                SctpPhase::Init | SctpPhase::InitAck | SctpPhase::CookieEcho => self.opening,
                SctpPhase::Closing => self.closing,
                SctpPhase::Closed => self.closed,
            },
            State::Udp(Exchange::Unanswered) => self.udp_unanswered,
            State::Udp(Exchange::Answered | Exchange::Resumed | Exchange::Stream) => self.udp,
            State::Query(_) => self.query,
            State::Other(_) => self.other,
        }
    }
}
