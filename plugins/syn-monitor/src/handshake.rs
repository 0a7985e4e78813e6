//! How a connection begins, as what the client sends shows it.

use millrace_wire::tcp::Flags;

/// What a segment is to a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Segment {
    /// SYN without ACK.
    Syn,
    /// SYN with ACK.
    SynAck,
    /// ACK without SYN.
    Ack,
    /// RST, whatever is beside it.
    Reset,
}

impl Segment {
    /// The segment with these control bits; `None` when it is nothing to a handshake.
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

/// How far a flow has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// No attempt was seen.
    None,
    /// An attempt, counted at its destination.
    HalfOpen,
    /// An attempt, counted with those whose destination found no place.
    HalfOpenElsewhere,
    /// The handshake was completed.
    Open,
}

impl State {
    /// Bytes that the router keeps for each flow.
    pub const BYTES: usize = 1;

    /// From the byte that is kept; zero is a new flow.
    #[inline]
    pub fn load(byte: u8) -> Self {
        match byte {
            1 => Self::HalfOpen,
            2 => Self::HalfOpenElsewhere,
            3 => Self::Open,
            _ => Self::None,
        }
    }

    /// The byte to keep.
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

    /// What a segment of the flow means.
    #[inline]
    pub fn event(self, segment: Segment) -> Event {
        match (segment, self.is_half_open()) {
            (Segment::Syn, false) => Event::Begun,
            (Segment::Syn, true) => Event::Repeated,
            (Segment::Ack, true) => Event::Completed,
            (Segment::Reset, true) => Event::Aborted,
            (Segment::SynAck, _) | (Segment::Ack | Segment::Reset, false) => Event::Nothing,
        }
    }
}

/// What happened to a connection attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Nothing,
    Begun,
    Repeated,
    Completed,
    Aborted,
}
