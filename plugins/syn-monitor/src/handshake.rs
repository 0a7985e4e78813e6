//! TCP handshakes, followed by the client's segments only.

use millrace_wire::tcp::Flags;

/// Kind of segment in a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Segment {
    /// SYN without ACK.
    Syn,
    /// SYN with ACK.
    SynAck,
    /// ACK without SYN.
    Ack,
    /// RST, with any other flags.
    Reset,
}

impl Segment {
    /// Returns the kind of a segment with these control bits; `None` if it plays no part in a handshake.
    #[inline]
    pub fn of(flags: Flags) -> Option<Self> {
        if flags.contains(Flags::RST) {
            return Some(Self::Reset);
        }
        match (flags.contains(Flags::SYN), flags.contains(Flags::ACK)) {
            (true, false) => Some(Self::Syn),
            (true, true) => Some(Self::SynAck),
            (false, true) => Some(Self::Ack),
            (false, false) => None,
        }
    }
}

/// State of a flow's handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// No connection attempt so far.
    None,
    /// Attempt whose destination has an entry and counts it.
    HalfOpen,
    /// Attempt whose destination has no entry.
    HalfOpenElsewhere,
    /// Completed handshake.
    Open,
}

impl State {
    /// Bytes of state that the router stores for each flow.
    pub const BYTES: usize = 1;

    /// Reads the state from its byte; zero is a new flow.
    #[inline]
    pub fn load(byte: u8) -> Self {
        match byte {
            1 => Self::HalfOpen,
            2 => Self::HalfOpenElsewhere,
            3 => Self::Open,
            _ => Self::None,
        }
    }

    /// Returns the byte of the state.
    #[inline]
    pub fn store(self) -> u8 {
        match self {
            Self::None => 0,
            Self::HalfOpen => 1,
            Self::HalfOpenElsewhere => 2,
            Self::Open => 3,
        }
    }

    #[inline]
    pub fn is_half_open(self) -> bool {
        matches!(self, Self::HalfOpen | Self::HalfOpenElsewhere)
    }
}
