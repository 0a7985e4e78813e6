//! Record of a connection: two cache lines.

use millrace_memory::zeroable;

use crate::direction::Direction;
use crate::key::{ConnectionKey, Orientation};
use crate::state::State;

zeroable! {
    /// Links of a record in a list; 0 for none.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Links {
        pub previous: u32,
        pub next: u32,
    }
}

zeroable! {
    /// Record of a connection.
    #[derive(Debug)]
    #[repr(C, align(64))]
    pub(crate) struct Record {
        pub key: ConnectionKey,
        pub state: State,
        /// Next record with the same hash; 0 for the last. Of a free record: the next free one.
        pub chain: u32,
        /// Links in the lists that [`Membership`] names.
        pub links: [Links; 2],
        /// Tick of the timing wheel after which the connection ends.
        pub expires: u32,
        /// Slot of the originator's address in the table of sources.
        pub source: u32,
        /// Word of the caller.
        pub word: u32,
        /// Serial number of the connection; of a free record, that of the next one, or 0 before the first.
        pub serial: u32,
        /// Whether the originator is the key's second endpoint.
        pub is_turned: bool,
        /// Whether the record is in the list of connections that new ones may recycle.
        pub is_recyclable: bool,
        /// Slot of the timing wheel, and its level.
        pub spoke: u8,
        pub level: u8,
    }
}

/// Lists that a record can be in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Membership {
    /// A slot of the timing wheel.
    Wheel = 0,
    /// The connections that new ones may recycle.
    Recyclable = 1,
}

impl Record {
    /// Returns the direction of a packet with this orientation.
    #[inline]
    pub fn direction(&self, orientation: Orientation) -> Direction {
        match (orientation == Orientation::Backward) == self.is_turned {
            true => Direction::Original,
            false => Direction::Reply,
        }
    }

    /// Returns the orientation of packets from the originator.
    #[inline]
    pub fn originator(&self) -> Orientation {
        if self.is_turned { Orientation::Backward } else { Orientation::Forward }
    }
}
