//! Results of tracking a packet.

use crate::direction::Direction;
use crate::invalid::Invalid;
use crate::key::{ConnectionKey, Orientation};

/// Reference to a connection, which becomes invalid when the connection ends. The default refers to none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionRef {
    pub(crate) slot: u32,
    pub(crate) serial: u32,
}

impl ConnectionRef {
    /// Returns the reference to the connection with a number and a serial number.
    pub fn new(number: u32, serial: u32) -> Self {
        Self { slot: number, serial }
    }

    /// Returns the number of the connection, from 1 to the maximum of the table. A later connection may get the same
    /// number.
    #[inline]
    pub fn number(self) -> u32 {
        self.slot
    }

    /// Returns the serial number, which distinguishes connections with the same number: each is the successor of the
    /// previous one, and never 0. Serial numbers wrap around.
    #[inline]
    pub fn serial(self) -> u32 {
        self.serial
    }
}

/// Relation of a packet to its connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Relation {
    /// The packet has opened the connection.
    Opening,
    /// The packet repeats the opening, or comes before an answer.
    New,
    /// Both sides have sent packets, or the packet is the first answer.
    Established,
    /// The packet is an ICMP error that quotes a packet of the connection.
    Related,
}

/// Packet with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// The connection.
    pub connection: ConnectionRef,
    /// Direction of the packet.
    pub direction: Direction,
    /// Relation of the packet to the connection.
    pub relation: Relation,
    /// Whether the packet counts for the connection until it is [dropped](crate::ConnectionTable::drop_counted). ICMP
    /// errors don't count, and neither do packets beyond 65,535.
    pub is_counted: bool,
}

/// Reason why a packet has no connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The packet is invalid.
    Invalid(Invalid),
    /// The source has its maximum of connections.
    SourceFull,
    /// The table is full of assured connections.
    TableFull,
}

/// Reason why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EndReason {
    /// No packet came during the idle time.
    Expired,
    /// The table was full, and a new connection took the place of this one, which was not assured.
    Recycled,
    /// The same two endpoints opened another connection.
    Reopened,
    /// All its packets were dropped.
    Dropped,
    /// A caller removed the connection.
    Removed,
}

/// Connection that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Reference to the connection, which is invalid now.
    pub connection: ConnectionRef,
    /// Key of the connection.
    pub key: ConnectionKey,
    /// Orientation of the originator's packets.
    pub originator: Orientation,
    /// Word that the caller had stored.
    pub word: u32,
    /// Reason of the end.
    pub reason: EndReason,
}

/// Result of tracking a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracked {
    /// Connection of the packet, or the reason why it has none.
    pub known: Result<Known, Refusal>,
    /// Connection that ended because of the packet.
    pub ended: Option<Ended>,
}
