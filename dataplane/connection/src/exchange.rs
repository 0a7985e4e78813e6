//! State of a connection whose protocol has no opening and no end: UDP, ICMP queries and others.

use crate::direction::Direction;

/// Packets seen of a connection without opening and end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Exchange {
    /// Only the originator has sent.
    #[default]
    Unanswered,
    /// Both sides have sent.
    Answered,
    /// The originator has sent again after an answer.
    Resumed,
    /// The other side has answered again. Forged packets bring that about only with a host that answers them twice.
    Stream,
}

impl Exchange {
    /// Returns the name in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unanswered => "unanswered",
            Self::Answered | Self::Resumed => "answered",
            Self::Stream => "stream",
        }
    }

    /// Advances by a packet.
    #[inline]
    pub fn advance(&mut self, direction: Direction) {
        *self = match (*self, direction) {
            (Self::Unanswered, Direction::Reply) => Self::Answered,
            (Self::Answered, Direction::Original) => Self::Resumed,
            (Self::Resumed, Direction::Reply) => Self::Stream,
            (state, _) => state,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_needs_two_answers() {
        let mut exchange = Exchange::default();
        let mut after = |direction| {
            exchange.advance(direction);
            exchange
        };
        assert_eq!(after(Direction::Original), Exchange::Unanswered);
        assert_eq!(after(Direction::Reply), Exchange::Answered);
        assert_eq!(after(Direction::Reply), Exchange::Answered);
        assert_eq!(after(Direction::Original), Exchange::Resumed);
        assert_eq!(after(Direction::Original), Exchange::Resumed);
        assert_eq!(after(Direction::Reply), Exchange::Stream);
        assert_eq!(after(Direction::Original), Exchange::Stream);
    }
}
