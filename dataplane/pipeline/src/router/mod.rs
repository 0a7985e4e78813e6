//! Router of a worker: its state, and the order in which packets pass the stages.

pub(crate) mod control;
mod follow_up;
mod host_output;
mod journey;
mod made;
mod resume;
mod scratch;
pub(crate) mod shedding;
pub(crate) mod slices;
mod stages;
mod take_over;
mod timers;
mod trace_pieces;
mod trace_steps;

use millrace_classify::FlowTableError;
use millrace_forward::FibReader;
use millrace_packet::{Arrivals, Pool};

use crate::classify::Classifier;
use crate::egress::errors::IcmpErrors;
use crate::forward::tables::ForwardingTables;
use crate::gates::Gates;
use crate::handover::Handover;
use crate::observe::Observation;
use crate::observe::event::Event;
use crate::offloaded_flows::OffloadedFlows;
use crate::options::Options;
use crate::pending::Pending;
use crate::ports::{DeviceId, PortTable};
use crate::punt::Punt;
use crate::router::scratch::Scratch;

/// Forwarding state of a worker: everything between the devices, that is, the tables and the state of each
/// stage.
pub struct Router {
    pub(crate) pool: Pool,
    pub(crate) seed: u64,
    pub(crate) options: Options,
    pub(crate) ports: PortTable,
    pub(crate) classifier: Classifier,
    pub(crate) gates: Gates,
    pub(crate) forwarding: ForwardingTables,
    pub(crate) punt: Punt,
    pub(crate) errors: IcmpErrors,
    /// Offloaded flows; `None` without offload.
    pub(crate) offload: Option<Box<OffloadedFlows>>,
    /// Rings to and from other workers; `None` with a single worker.
    pub(crate) handover: Option<Box<Handover>>,
    pub(crate) observation: Observation,
    pub(crate) pending: Pending,
    pub(crate) scratch: Scratch,
    /// Last batch that the worker received, and its ingress device; the device is `None` before the first
    /// batch, and for a batch from another worker.
    pub(crate) arrivals: (Arrivals, Option<DeviceId>),
}

impl Router {
    /// Returns a router without ports. `prefixes` is the shared route table; `seed` keys the router's hashes,
    /// and should be random.
    ///
    /// # Errors
    /// When the kernel maps no memory for the flow table.
    pub fn new(pool: Pool, prefixes: FibReader, seed: u64) -> Result<Self, FlowTableError> {
        Ok(Self {
            seed,
            options: Options::default(),
            ports: PortTable::default(),
            classifier: Classifier::new(&Options::default(), seed)?,
            gates: Gates::default(),
            forwarding: ForwardingTables::new(prefixes, pool.capacity(), seed),
            punt: Punt::new(seed),
            errors: IcmpErrors::new(seed),
            offload: None,
            handover: None,
            observation: Observation::default(),
            pending: Pending::default(),
            scratch: Scratch::default(),
            arrivals: (Arrivals::new(pool.clone()), None),
            pool,
        })
    }

    /// Invalidates the flow records if the replacement of an instance may have changed paths.
    pub(crate) fn after_succession(&mut self) {
        if self.gates.plugins_mut().bindings.take_reclassify() {
            self.classifier.changes.everything_changed();
        }
    }

    /// Returns the next event for control.
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        if let Some(event) = self.observation.events.pop_front() {
            return Some(event);
        }
        let failure = self.gates.plugins_mut().instances_mut().take_failure();
        failure.map(Event::InstanceFailed).or_else(|| self.gates.take_discarded().map(Event::Discards))
    }
}
