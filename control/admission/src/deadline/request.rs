//! Requests for a deadline, and the reasons to refuse them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::resource::Unit;

/// Request of a flow that every packet leaves the router within a deadline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowRequest {
    /// Longest time in the router, above 0.
    pub deadline: Duration,
    /// Least mean time between packets, above 0.
    pub interval: Duration,
    /// Number of packets that may arrive at once, at least 1: the packets form a token bucket of this depth,
    /// with a token per interval.
    pub burst: u32,
    /// Resources in the order in which a packet passes them. At least one does work of the flow's own.
    pub stages: Vec<Stage>,
}

/// Demand of a flow on a resource.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stage {
    /// Name of the resource.
    pub resource: String,
    /// Demand per packet.
    pub demand: Demand,
}

/// Demand per packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// Work in cycles or bits on the wire. A stage with 0 is left out.
    Own(u64),
    /// The packet uses the share of another flow, which pays for it (section 6).
    SameAs(String),
}

/// Reason to refuse a request. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The name is in use.
    #[error("{0:?}: name in use: release it first, or give another name")]
    InUse(String),
    /// No flow has the name.
    #[error("{0:?}: no such flow")]
    UnknownFlow(String),
    /// No resource has the name.
    #[error("{0:?}: no such resource")]
    UnknownResource(String),
    /// A packet passes the resource twice.
    #[error("{0:?}: listed twice: add up the work of a packet")]
    Twice(String),
    /// The request has no work of its own.
    #[error("no work: give the cycles or bits of a packet for at least one resource")]
    NoWork,
    /// A setting is zero.
    #[error("{0} must be above 0")]
    Zero(&'static str),
    /// The deadline is shorter than the work that nothing pre-empts.
    #[error(
        "deadline of {deadline:?}: must exceed {blocking:?}, the time of other work that nothing pre-empts and \
         of shared shares; the free shares allow {possible:?}"
    )]
    Blocked {
        /// Requested deadline.
        deadline: Duration,
        /// Time of other work and of shared shares.
        blocking: Duration,
        /// Shortest deadline that fits.
        possible: Duration,
    },
    /// A resource lacks the rate.
    #[error(
        "{resource:?}: a packet each {interval:?} needs {}, but {} is left{}",
        unit.show(*needed), unit.show(*free), fitting.map_or(String::new(), |time| format!(": send one each {time:?}"))
    )]
    Lacks {
        /// Name of the resource.
        resource: String,
        /// Unit of the resource.
        unit: Unit,
        /// Time in which the resource must do the work of a packet.
        interval: Duration,
        /// Least share that does the work in the interval.
        needed: u64,
        /// Free share.
        free: u64,
        /// Interval that fits; `None` if the resource has no free share.
        fitting: Option<Duration>,
    },
    /// The free shares don't do the work within the deadline.
    #[error(
        "deadline of {deadline:?}: the free shares allow {possible:?}, most of it at {slowest:?}, which {}",
        match lacks {
            Some(lacks) => format!("lacks {}", unit.show(*lacks)),
            None => "could not meet it with its whole capacity".to_owned(),
        }
    )]
    Late {
        /// Requested deadline.
        deadline: Duration,
        /// Shortest deadline that fits.
        possible: Duration,
        /// Resource that takes most of the time.
        slowest: String,
        /// Unit of this resource.
        unit: Unit,
        /// Share of it that would have to be free, too; `None` if its whole capacity would be too small.
        lacks: Option<u64>,
    },
    /// The flow to share with has no share of the resource.
    #[error("{owner:?} has no share of {resource:?} to share")]
    NoShare {
        /// Flow to share with.
        owner: String,
        /// Name of the resource.
        resource: String,
    },
    /// Another flow uses a share of the flow.
    #[error("{name:?}: {by:?} uses its share: release {by:?} first")]
    Shared {
        /// Flow to release.
        name: String,
        /// First flow that uses its share.
        by: String,
    },
    /// The capacity is below the promises.
    #[error("{resource:?}: a capacity of {} is below the promised {}", unit.show(*capacity), unit.show(*promised))]
    Capacity {
        /// Name of the resource.
        resource: String,
        /// Unit of the resource.
        unit: Unit,
        /// Requested capacity.
        capacity: u64,
        /// Sum of the promised shares.
        promised: u64,
    },
    /// The resource is in use.
    #[error("{resource:?}: has {}: release them first", millrace_units::count(*flows as u64, "flow"))]
    Occupied {
        /// Name of the resource.
        resource: String,
        /// Number of flows that hold a share.
        flows: usize,
    },
    /// The new resource counts shares in another unit.
    #[error("{resource:?}: is another kind of resource: remove it first")]
    OtherUnit {
        /// Name of the resource.
        resource: String,
    },
}
