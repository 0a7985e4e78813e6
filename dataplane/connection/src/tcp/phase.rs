//! Phases of a TCP connection.

use millrace_memory::zeroable;

zeroable! {
    /// Phase of a TCP connection.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Phase {
        /// No connection.
        #[default]
        None = 0,
        /// The originator has sent SYN.
        SynSent,
        /// The other side has answered.
        SynReceived,
        /// The originator has acknowledged the answer.
        Established,
        /// A side has sent FIN.
        Closing,
        /// Both sides have acknowledged the other's FIN.
        TimeWait,
        /// A side has reset the connection.
        Reset,
    }
}

impl Phase {
    /// Returns the name in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SynSent => "syn-sent",
            Self::SynReceived => "syn-received",
            Self::Established => "established",
            Self::Closing => "closing",
            Self::TimeWait => "time-wait",
            Self::Reset => "reset",
        }
    }

    /// Returns whether the other side has answered.
    #[inline]
    pub const fn is_answered(self) -> bool {
        !matches!(self, Self::None | Self::SynSent)
    }

    /// Returns whether the originator has acknowledged the answer, so that both sides really exist.
    #[inline]
    pub const fn is_past_handshake(self) -> bool {
        matches!(self, Self::Established | Self::Closing | Self::TimeWait)
    }

    /// Returns whether the connection is over, so that its record may go.
    #[inline]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::TimeWait | Self::Reset)
    }
}
