//! Directions of a connection.

/// Direction of a packet in its connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the originator, which sent the first packet.
    Original = 0,
    /// To the originator.
    Reply = 1,
}

impl Direction {
    /// Returns the opposite direction.
    #[inline]
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Original => Self::Reply,
            Self::Reply => Self::Original,
        }
    }

    /// Returns the name in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Reply => "reply",
        }
    }
}
