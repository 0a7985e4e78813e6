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

/// Receive and parse stages: the ports, and the state that completes flow keys.
pub(crate) struct Ingress<'a> {
    pub ports: &'a mut PortTable,
    /// Fragments that wait for later ones, and the hash of flow keys.
    pub classifier: &'a mut Classifier,
    pub gates: &'a Gates,
    pub fib: &'a Fib,
    pub options: &'a Options,
    pub observation: &'a mut Observation,
}
