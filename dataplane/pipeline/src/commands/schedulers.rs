//! Commands to the schedulers of ports.

use millrace_schedule::ScheduleError;
use millrace_units::{PortId, QueueId};

use super::ReplyTo;
use crate::driver_flows::Invalidation;
use crate::port_scheduler::{FlowQueueReport, NodesPage, Piece, ScheduleChange};

/// Command to the scheduler of a port, for the worker that has the port's device.
#[derive(Debug)]
pub enum SchedulerCommand {
    /// Makes changes one after the other until one is refused. A long list comes in pieces, each of which is answered: packets wait for
    /// one piece at most.
    Change(PortId, Vec<ScheduleChange>, Piece, ReplyTo<Result<(), ScheduleError>>),
    /// Asks for nodes of the scheduler: a bounded number, from this one on.
    ShowNodes(PortId, u32, ReplyTo<NodesPage>),
    /// Asks for the flow queues of a leaf: a bounded number, from this one on.
    ShowQueues(PortId, QueueId, usize, ReplyTo<Result<Vec<FlowQueueReport>, ScheduleError>>),
    /// Asks for the leaf where packets of this queue wait; none where the port has no scheduler, or another worker has it.
    FindLeaf(PortId, QueueId, ReplyTo<Option<QueueId>>),
}

impl SchedulerCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // Packets of every flow that leaves by the port wait in its tree from now on, or no longer.
            Self::Change(..) => Invalidation::Entries,
            Self::ShowNodes(..) | Self::ShowQueues(..) | Self::FindLeaf(..) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::FindLeaf(..) => true,
            Self::Change(..) | Self::ShowNodes(..) | Self::ShowQueues(..) => false,
        }
    }
}
