//! Fast path: forwards batches of packets whose flows are known, or that no filter applies to.

#[expect(
    clippy::indexing_slicing,
    reason = "packets and fates of a batch by places that were asked for in it"
)]
pub(crate) mod bare;
#[expect(clippy::indexing_slicing, reason = "runs of a batch, by places in it")]
pub(crate) mod express;
mod record;

use crate::classify::Classifier;
use crate::forward::tables::ForwardingTables;
use crate::gates::Gates;
use crate::options::Options;
use crate::ports::PortTable;

/// State of the fast path of known flows: the flow records, and the tables of the stages that the fast path
/// replaces.
pub(crate) struct FastPath<'a> {
    pub classifier: &'a mut Classifier,
    pub gates: &'a mut Gates,
    pub forwarding: &'a mut ForwardingTables,
    pub ports: &'a PortTable,
    pub options: &'a Options,
}
