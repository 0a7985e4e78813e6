//! TCP handshakes, as far as the client's segments show them.

use millrace_wire::tcp::Flags;

/// Kind of a segment in a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Segment {
    /// SYN without ACK.
    Syn,
    /// SYN with ACK.
    SynAck,
    /// ACK without SYN.
    Ack,
    /// RST, with or without other flags.
    Reset,
}

impl Segment {
    /// Returns the kind of a segment with these flags; `None` if it has no part in a handshake.
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
    /// Half-open attempt, counted in the entry of its destination.
    HalfOpen,
    /// Half-open attempt whose destination has no entry.
    HalfOpenElsewhere,
    /// Completed handshake.
    Open,
}

impl State {
    /// Bytes of the flow state.
    pub const BYTES: usize = 1;

    /// Converts the byte of a flow state into the handshake's state; 0 is a new flow.
    #[inline]
    pub fn load(byte: u8) -> Self {
        match byte {
            1 => Self::HalfOpen,
            2 => Self::HalfOpenElsewhere,
            3 => Self::Open,
            _ => Self::None,
        }
    }

    /// Converts the handshake's state into the byte of a flow state.
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
