//! Commands to the schedulers of ports.

use millrace_schedule::ScheduleError;
use millrace_units::{Instant, PortId, QueueId};

use super::{ReplyTo, answer};
use crate::offloaded_flows::Invalidation;
use crate::ports::scheduler::{FlowQueueReport, NodesPage, Piece, ScheduleChange};
use crate::router::Router;

/// Command to the scheduler of a port. It goes to the worker that owns the port's device.
#[derive(Debug)]
pub enum SchedulerCommand {
    /// Makes changes in order until one is refused. A long list comes in pieces, each with its own answer, so
    /// that packets wait for one piece at most.
    Change(PortId, Vec<ScheduleChange>, Piece, ReplyTo<Result<(), ScheduleError>>),
    /// Asks for a page of nodes, from the given index on.
    ShowNodes(PortId, u32, ReplyTo<NodesPage>),
    /// Asks for a page of a leaf's flow queues, from the given index on.
    ShowQueues(PortId, QueueId, usize, ReplyTo<Result<Vec<FlowQueueReport>, ScheduleError>>),
    /// Asks for the leaf that packets for a queue enter; `None` if the port has no scheduler at this worker.
    FindLeaf(PortId, QueueId, ReplyTo<Option<QueueId>>),
}

impl SchedulerCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // The change may add or remove the scheduler that holds the packets of all flows to this port.
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

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router, now: Instant) {
        match self {
            Self::Change(port, changes, piece, reply) => {
                let seed = router.seed;
                answer(&reply, router.queueing().schedule(port, (&changes, piece), seed, now));
            }
            Self::ShowNodes(port, first, reply) => answer(&reply, router.ports.nodes(port, first, now)),
            Self::ShowQueues(port, leaf, first, reply) => {
                answer(&reply, router.ports.flow_queues(port, leaf, first));
            }
            Self::FindLeaf(port, queue, reply) => answer(&reply, router.ports.leaf(port, queue)),
        }
    }
}
