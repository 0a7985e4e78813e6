//! Reasons why a packet is invalid in its connection.

/// Reason why a packet belongs to no connection, or can't come from a host that follows the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Invalid {
    /// The packet belongs to no connection, and can't open one.
    NotOpening,
    /// The transport header is cut, or its fields contradict each other.
    Malformed,
    /// The sequence number is outside the window that the receiver has advertised.
    Sequence,
    /// The packet acknowledges data that was never sent, or was acknowledged long ago.
    Acknowledgment,
    /// The verification tag of an SCTP packet is not the receiver's.
    Tag,
    /// An ICMP error quotes a packet that belongs to no connection.
    QuotesNothing,
}

impl Invalid {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::NotOpening,
        Self::Malformed,
        Self::Sequence,
        Self::Acknowledgment,
        Self::Tag,
        Self::QuotesNothing,
    ];

    /// Returns the name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotOpening => "not-opening",
            Self::Malformed => "malformed",
            Self::Sequence => "sequence",
            Self::Acknowledgment => "acknowledgment",
            Self::Tag => "tag",
            Self::QuotesNothing => "quotes-nothing",
        }
    }
}
