//! Connections of packets, for instances whose state belongs to connections.

use crate::binary::connection;

/// Scope of the state that the router keeps for an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StateScope {
    /// Each flow has a state of its own: packets with the same six-tuple.
    #[default]
    Flow,
    /// Both directions of a connection share a state, and the router tracks the packets of the instance's paths.
    Connection,
}

impl StateScope {
    /// Each scope with its name in manifests.
    pub const NAMED: [(&str, Self); 2] = [("flow", Self::Flow), ("connection", Self::Connection)];

    /// Returns the name in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Connection => "connection",
        }
    }
}

/// Status of a packet's connection when the packet arrives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum ConnectionStatus {
    /// The router does not track the packet for this instance.
    #[default]
    Untracked = connection::UNTRACKED as u8,
    /// The packet opens the connection, or repeats its opening before an answer.
    New = connection::NEW as u8,
    /// Both sides have sent packets, or the packet is the first answer.
    Established = connection::ESTABLISHED as u8,
    /// The packet is an ICMP error that quotes a packet of the connection.
    Related = connection::RELATED as u8,
    /// The packet belongs to no connection and can't open one, or contradicts the state of its connection.
    Invalid = connection::INVALID as u8,
}

impl ConnectionStatus {
    /// Returns the status with this number; [`Untracked`](Self::Untracked) for an unknown one.
    pub const fn from_number(number: u8) -> Self {
        match number as u32 {
            connection::NEW => Self::New,
            connection::ESTABLISHED => Self::Established,
            connection::RELATED => Self::Related,
            connection::INVALID => Self::Invalid,
            _ => Self::Untracked,
        }
    }
}

/// Connection of a packet. The default is a packet that the router does not track.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketConnection {
    /// Number of the connection, from 1; 0 if the packet belongs to none. A later connection may get the same number.
    pub number: u32,
    /// Serial number that distinguishes connections with the same number.
    pub serial: u32,
    /// Status of the connection.
    pub status: ConnectionStatus,
    /// Whether the packet goes to the side that opened the connection.
    pub is_reply: bool,
    /// Whether the packet counts for the connection, which ends when the router has dropped all packets that count.
    pub is_counted: bool,
}
