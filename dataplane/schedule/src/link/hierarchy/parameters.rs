//! Ranges of node settings and shares.

use super::node::Kind;
use super::{LinkScheduler, NodeId, NodeKind, ScheduleError, Share};
use crate::Item;
use crate::aqm::codel_objection;
use crate::arena::NONE;
use crate::link::priority::PRIORITY_LEVELS;
use crate::link::weights::MOST_QUANTUM;
use crate::queue::QueueSettings;
use crate::queue_manager::MOST_QUEUES;
use crate::rate::MOST_BYTES;

/// Checks the settings of a node on their own.
pub(super) fn check_kind(node: NodeId, kind: &NodeKind) -> Result<(), ScheduleError> {
    let range = |what, value: u64, least: u64, most: u64| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(ScheduleError::Range { node, what, value, least, most })
    };
    match kind {
        NodeKind::Fifo(settings) => check_queue(node, settings),
        NodeKind::FlowQueues(settings) => {
            range("queues", settings.queues.into(), 1, u64::from(MOST_QUEUES) - 1)?;
            range("the quantum", settings.quantum.into(), 1, MOST_QUANTUM.into())?;
            range("the capacity", settings.capacity.map_or(1, |capacity| capacity.0), 1, u64::MAX)?;
            check_queue(node, &settings.queue)
        }
        NodeKind::FqCodel(settings) => {
            range("queues", settings.flows.into(), 1, MOST_QUEUES.into())?;
            range("the quantum", settings.quantum.into(), 256, MOST_QUANTUM.into())?;
            range("the limit", settings.limit.into(), 1, u32::MAX.into())?;
            refuse_if(node, codel_objection(&settings.codel))
        }
        NodeKind::TokenBucket { rate, burst } => {
            range("the rate", rate.0, 1, u64::MAX)?;
            range("the burst", (*burst).into(), 1, MOST_BYTES.into())
        }
        NodeKind::Priority | NodeKind::DeficitRoundRobin | NodeKind::Hfsc => Ok(()),
    }
}

/// Checks the settings of a queue on their own.
pub(super) fn check_queue(node: NodeId, settings: &QueueSettings) -> Result<(), ScheduleError> {
    refuse_if(node, settings.aqm.objection())
}

fn refuse_if(node: NodeId, objection: Option<String>) -> Result<(), ScheduleError> {
    objection.map_or(Ok(()), |text| Err(ScheduleError::Settings { node, text }))
}

impl<T: Item> LinkScheduler<T> {
    /// Checks that a child's share matches its parent's kind and is in range. `parent` may be [`NONE`].
    pub(super) fn check_share(
        &self,
        node: NodeId,
        parent: u32,
        share: &Share,
        is_inner_class: bool,
    ) -> Result<(), ScheduleError> {
        let parent_id = NodeId(parent);
        let kind = if parent == NONE { Kind::Vacant } else { self.nodes[parent as usize].kind };
        match (kind, share) {
            (Kind::Vacant, Share::Only) => Ok(()),
            (Kind::Priority(index), Share::Level(level)) => self.check_level(node, parent_id, index, *level),
            (Kind::RoundRobin(_), Share::Quantum(quantum)) => {
                let (what, value, most) = ("the quantum", u64::from(*quantum), u64::from(MOST_QUANTUM));
                if value == 0 || value > most {
                    return Err(ScheduleError::Range { node, what, value, least: 1, most });
                }
                Ok(())
            }
            (Kind::Hfsc { .. }, Share::Curves(curves)) => {
                super::check::check_curves(node, curves, is_inner_class)
            }
            (Kind::TokenBucket(index), Share::Only) => match self.token_buckets.get(index).only_child() {
                Some(other) if other != node.0 => {
                    Err(ScheduleError::OnlyChild { node, parent: parent_id, other: NodeId(other) })
                }
                _ => Ok(()),
            },
            (kind, _) => {
                let (parent, needed) = needs(kind);
                Err(ScheduleError::Share { node, parent, needed })
            }
        }
    }

    fn check_level(&self, node: NodeId, parent: NodeId, index: u32, level: u32) -> Result<(), ScheduleError> {
        if level >= PRIORITY_LEVELS {
            let (what, value, most) = ("the level", u64::from(level), u64::from(PRIORITY_LEVELS) - 1);
            return Err(ScheduleError::Range { node, what, value, least: 0, most });
        }
        match self.priorities.get(index).at(level) {
            Some(other) if other != node.0 && !self.trusting => {
                Err(ScheduleError::Level { node, level, parent, other: NodeId(other) })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the name of a parent's kind, and the share that it needs from a child.
fn needs(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Priority(_) => ("priority", "needs a level"),
        Kind::RoundRobin(_) => ("deficit-round-robin", "needs a quantum"),
        Kind::Hfsc { .. } => ("hfsc", "needs curves"),
        Kind::TokenBucket(_) => ("token-bucket", "takes no level, quantum or curves"),
        Kind::Vacant => ("port", "takes no level, quantum or curves"),
        Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) => ("leaf", "is not possible"),
    }
}
