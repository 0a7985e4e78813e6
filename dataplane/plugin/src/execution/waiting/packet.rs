//! Packets that wait for an instance, and the possible ends of their wait.

use super::Ticket;
use crate::connection_state::PackedConnection;
use crate::execution::direction::Direction;
use crate::flow_state::StateRef;
use crate::slab::Key;
use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_plugin_abi::{PacketConnection, Position};
use millrace_units::{Instant, PathId, PrincipalId};

/// Stage of a path, given by its position and its index among the stages at this position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Path of the packet.
    pub path: PathId,
    /// Position of the stage.
    pub position: Position,
    /// Index of the stage among the path's stages at this position.
    pub stage: u16,
}

impl Place {
    /// Returns the next stage.
    pub(crate) fn next(self) -> Self {
        Self { stage: self.stage + 1, ..self }
    }

    /// Returns the previous stage; `None` for the first.
    pub(crate) fn before(self) -> Option<Self> {
        Some(Self { stage: self.stage.checked_sub(1)?, ..self })
    }
}

/// Instances that have passed a packet on to another instance in a row, at one stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PassedOn {
    /// Instance that gets the packet in place of the stage's own, by the key with which it was added; `None` if no
    /// instance has passed it on.
    pub(crate) to: Option<Key>,
    /// Number of these instances.
    pub(crate) times: u8,
}

impl PassedOn {
    /// No instance has passed the packet on.
    pub(crate) const NONE: Self = Self { to: None, times: 0 };

    /// Returns the same for a packet that another instance passes on to `to`.
    pub(crate) fn next(self, to: Option<Key>) -> Self {
        Self { to, times: self.times.saturating_add(1) }
    }

    /// Whether an instance has passed the packet on.
    #[inline]
    pub fn is_passed(self) -> bool {
        self.to.is_some()
    }
}

/// Packet that waits for an instance, with all data to continue in the pipeline.
#[derive(Debug)]
pub struct Waiting {
    /// The packet.
    pub packet: Packet,
    /// Flow key of the packet.
    pub key: FlowKey,
    /// Destination MAC address, if an earlier stage resolved it.
    pub destination: [u8; 6],
    /// Stage at which the packet continues.
    pub place: Place,
    /// Reference to the state block of the packet's flow.
    pub state: StateRef,
    /// Connection of the packet; the default if the packet is not tracked yet.
    pub connection: PackedConnection,
    /// Instances that have passed the packet on to another one.
    pub passed_on: PassedOn,
    /// Principal that pays for the stage; `None` if the worker calls its instance at once.
    pub payer: Option<PrincipalId>,
    /// Earliest time at which a packet of its slice began to wait for the processor; `None` before its slice.
    pub(crate) since: Option<Instant>,
}

impl Waiting {
    /// Returns where the packet continues: its stage, and the instance there.
    #[inline]
    pub fn entry(&self) -> (Place, PassedOn) {
        (self.place, self.passed_on)
    }

    /// Returns the places that the packet takes while it waits: one for each of its memory frames.
    pub(super) fn places(&self) -> usize {
        if self.packet.is_linear() { 1 } else { self.packet.segments().count() }
    }
}

/// Packet whose wait for an instance is over.
#[derive(Debug)]
pub struct Released {
    /// The packet, and the stage at which it continues.
    pub waiting: Waiting,
    /// Egress ports that the instance chose; `None` if it chose none.
    pub direction: Option<Direction>,
    /// End of the packet's journey; `None` if the packet continues.
    pub end: Option<End>,
    /// Rank of the first gate that the packet has not passed; 0 if its place tells it.
    pub reached: u32,
}

impl Released {
    /// Releases a packet that continues, with no egress port chosen.
    pub fn on(waiting: Waiting) -> Self {
        Self { waiting, direction: None, end: None, reached: 0 }
    }
}

/// Packet taken out of its batch to wait for an instance.
#[derive(Debug)]
pub struct Kept {
    /// The packet.
    pub packet: Packet,
    /// Flow key of the packet.
    pub key: FlowKey,
    /// Destination MAC address, if an earlier stage resolved it.
    pub destination: [u8; 6],
    /// Reference to the state block of the packet's flow.
    pub state: StateRef,
    /// Connection of the packet; the default if the packet is not tracked yet.
    pub connection: PacketConnection,
}

/// End of a packet's pass through its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The worker drops the packet for this reason.
    Drop(DropReason),
    /// The worker drops the packet, and sends an ICMP error to its source.
    Reject,
    /// The instance consumed the packet.
    Consume,
    /// The packet starts again at the classify stage.
    Classify,
}

/// Reason that a packet left its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The journey of the packet is over.
    End(End),
    /// The packet must wait: the caller hands it with this ticket to
    /// [`WorkerPlugins::keep`](crate::WorkerPlugins::keep).
    Keep(Ticket),
}
