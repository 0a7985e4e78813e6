//! Ingress: reception and parsing of packets, and steering of packets to the worker of their flow.

#[expect(clippy::indexing_slicing, reason = "notes on a batch side by side, by places in it")]
mod plain;
mod read;
pub(crate) mod receive;
pub(crate) mod steer;

use crate::classify::Classifier;
use crate::forward::fib::Fib;
use crate::gates::Gates;
use crate::observe::Observation;
use crate::options::Options;
use crate::ports::PortTable;

/// State of the receive and parse stages: the ports, and the tables that complete flow keys.
pub(crate) struct Ingress<'a> {
    pub ports: &'a mut PortTable,
    /// Ports of first fragments, for the later fragments, and the flow hash.
    pub classifier: &'a mut Classifier,
    pub gates: &'a Gates,
    pub fib: &'a Fib,
    pub options: &'a Options,
    pub observation: &'a mut Observation,
}
