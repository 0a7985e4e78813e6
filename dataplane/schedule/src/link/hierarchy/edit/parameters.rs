//! Ranges of node settings and shares.

use super::super::ScheduleError;
use super::super::disciplines::Disciplines;
use super::super::guarantees::check_curves;
use super::super::node::{NodeKind, Share};
use super::super::nodes::Kind;
use crate::NodeId;
use crate::aqm::codel_objection;
use crate::link::priority::PRIORITY_LEVELS;
use crate::link::round::MOST_QUANTUM;
use crate::queue::QueueSettings;
use crate::queue_manager::MOST_QUEUES;
use crate::rate::MOST_BYTES;

/// Checks the settings of a node, without regard to the tree.
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

/// Checks the settings of a queue, without regard to the tree.
fn check_queue(node: NodeId, settings: &QueueSettings) -> Result<(), ScheduleError> {
    refuse_if(node, settings.aqm.objection())
}

fn refuse_if(node: NodeId, objection: Option<String>) -> Result<(), ScheduleError> {
    objection.map_or(Ok(()), |text| Err(ScheduleError::Settings { node, text }))
}

/// Place of a node below a parent.
pub(super) struct Place {
    pub node: NodeId,
    pub parent: NodeId,
    /// Scheduler of the parent; [`Kind::Vacant`] without a parent.
    pub above: Kind,
    /// Whether the node is an inner class of an H-FSC hierarchy at this place.
    pub is_inner_class: bool,
}

impl Place {
    /// Creates the place of a node below a parent with the scheduler `above`. An H-FSC node below another
    /// H-FSC node is an inner class.
    pub fn new(node: NodeId, parent: NodeId, above: Kind, is_hfsc: bool) -> Self {
        let is_inner_class = is_hfsc && matches!(above, Kind::Hfsc { .. });
        Self { node, parent, above, is_inner_class }
    }

    /// Checks that a child's share matches its parent's kind and is in range. If the changes are `trusted`,
    /// two children may have the same level for a time.
    pub fn check_share(
        &self,
        disciplines: &Disciplines,
        share: &Share,
        trusted: bool,
    ) -> Result<(), ScheduleError> {
        let Self { node, parent, above, is_inner_class } = *self;
        match (above, share) {
            (Kind::Vacant, Share::Only) => Ok(()),
            (Kind::Priority(index), Share::Level(level)) => {
                let other = disciplines.priorities[index].at(*level);
                self.check_level(*level, other.filter(|_| !trusted))
            }
            (Kind::RoundRobin(_), Share::Quantum(quantum)) => {
                let (what, value, most) = ("the quantum", u64::from(*quantum), u64::from(MOST_QUANTUM));
                if value == 0 || value > most {
                    return Err(ScheduleError::Range { node, what, value, least: 1, most });
                }
                Ok(())
            }
            (Kind::Hfsc { .. }, Share::Curves(curves)) => check_curves(node, curves, is_inner_class),
            (Kind::TokenBucket(index), Share::Only) => match disciplines.token_buckets[index].only_child() {
                Some(other) if other != node.0 => {
                    Err(ScheduleError::OnlyChild { node, parent, other: NodeId(other) })
                }
                _ => Ok(()),
            },
            (above, _) => {
                let (parent, needed) = needs(above);
                Err(ScheduleError::Share { node, parent, needed })
            }
        }
    }

    /// Checks that a level is in range, and free. `other`: the child that has the level now.
    fn check_level(&self, level: u32, other: Option<u32>) -> Result<(), ScheduleError> {
        let Self { node, parent, .. } = *self;
        if level >= PRIORITY_LEVELS {
            let (what, value, most) = ("the level", u64::from(level), u64::from(PRIORITY_LEVELS) - 1);
            return Err(ScheduleError::Range { node, what, value, least: 0, most });
        }
        match other {
            Some(other) if other != node.0 => {
                Err(ScheduleError::Level { node, level, parent, other: NodeId(other) })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the name of a parent's kind, and the name of the share that its children need.
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
