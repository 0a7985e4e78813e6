//! Record of a connection: two cache lines.

use millrace_memory::zeroable;

use crate::direction::Direction;
use crate::key::{ConnectionKey, Orientation};
use crate::state::{Recycling, State};

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
        /// Counted packets that were not dropped.
        pub packets: u16,
        /// Slot of the timing wheel, counted over all levels.
        pub spoke: u8,
        /// [`TURNED`], and [`UNANSWERED`] or [`UNASSURED`] for a record in this [list](Recycling).
        marks: u8,
    }
}

/// The originator is the key's second endpoint.
const TURNED: u8 = 1;
const UNANSWERED: u8 = 2;
const UNASSURED: u8 = 4;

/// Lists that a record can be in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Membership {
    /// A slot of the timing wheel.
    Wheel = 0,
    /// Connections that new ones may recycle: one of the lists of [`Recycling`].
    Recyclable = 1,
}

impl Record {
    /// Counts a packet. Returns `false` if the count is at its maximum.
    #[inline]
    pub fn count(&mut self) -> bool {
        let is_counted = self.packets != u16::MAX;
        self.packets = self.packets.saturating_add(1);
        is_counted
    }

    /// Takes back a counted packet that was dropped. Returns whether all counted packets were dropped.
    pub fn uncount(&mut self) -> bool {
        self.packets = self.packets.saturating_sub(1);
        self.packets == 0
    }

    /// Sets the list of the record. Returns its list before.
    #[inline]
    pub fn set_recycling(&mut self, recycling: Option<Recycling>) -> Option<Recycling> {
        let before = self.recycling();
        let mark = match recycling {
            Some(Recycling::Unanswered) => UNANSWERED,
            Some(Recycling::Unassured) => UNASSURED,
            None => 0,
        };
        self.marks = self.marks & TURNED | mark;
        before
    }

    /// Returns the list of the record; `None` if new connections can't recycle it.
    #[inline]
    pub fn recycling(&self) -> Option<Recycling> {
        match self.marks & !TURNED {
            UNANSWERED => Some(Recycling::Unanswered),
            UNASSURED => Some(Recycling::Unassured),
            _ => None,
        }
    }

    /// Sets the orientation of packets from the originator, for a new connection in no list.
    pub fn set_originator(&mut self, originator: Orientation) {
        self.marks = if originator == Orientation::Backward { TURNED } else { 0 };
    }

    /// Returns the direction of a packet with this orientation.
    #[inline]
    pub fn direction(&self, orientation: Orientation) -> Direction {
        if orientation == self.originator() { Direction::Original } else { Direction::Reply }
    }

    /// Returns the orientation of packets from the originator.
    #[inline]
    pub fn originator(&self) -> Orientation {
        if self.marks & TURNED != 0 { Orientation::Backward } else { Orientation::Forward }
    }
}
