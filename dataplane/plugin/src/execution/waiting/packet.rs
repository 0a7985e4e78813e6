//! Waiting packets, and the ends of their wait.

use super::{Place, Ticket};
use crate::execution::direction::Direction;
use crate::flow_state::StateRef;
use millrace_packet::{DropReason, FlowKey, Packet};

/// Waiting packet with all data that its journey needs.
#[derive(Debug)]
pub struct Waiting {
    /// The packet.
    pub packet: Packet,
    /// Flow key of the packet.
    pub key: FlowKey,
    /// Destination link address, if an earlier stage resolved it.
    pub destination: [u8; 6],
    /// Stage at which the packet continues.
    pub place: Place,
    /// State block of the packet's flow.
    pub state: StateRef,
    /// Number of consecutive instances that have passed the packet on to another instance.
    pub passed_on: u8,
}

/// Packet that waits no longer.
#[derive(Debug)]
pub struct Released {
    /// The packet, and the stage at which it continues.
    pub waiting: Waiting,
    /// Output ports that the instance chose, if the packet continues.
    pub direction: Option<Direction>,
    /// End of the packet's journey, if the packet does not continue.
    pub end: Option<End>,
}

impl Released {
    /// Releases a packet that continues without a direction.
    pub(crate) fn on(waiting: Waiting) -> Self {
        Self { waiting, direction: None, end: None }
    }
}

/// Packet removed from its batch in order to wait.
#[derive(Debug)]
pub struct Kept {
    /// The packet.
    pub packet: Packet,
    /// Flow key of the packet.
    pub key: FlowKey,
    /// Destination link address, if an earlier stage resolved it.
    pub destination: [u8; 6],
    /// State block of the packet's flow.
    pub state: StateRef,
}

/// End of a packet's journey at an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The instance dropped the packet.
    Drop(DropReason),
    /// The instance consumed the packet.
    Consume,
    /// The packet is classified again.
    Classify,
}

/// Reason that a packet left its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The journey of the packet is over.
    End(End),
    /// The packet waits: the caller hands it with this ticket to
    /// [`WorkerPlugins::keep`](crate::WorkerPlugins::keep).
    Keep(Ticket),
}
