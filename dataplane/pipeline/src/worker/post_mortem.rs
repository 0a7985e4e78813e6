//! Report of a worker that panicked.

use std::net::IpAddr;

use millrace_forward::NeighbourState;
use millrace_units::{InstanceId, PortId};
use millrace_wire::MacAddr;

use crate::ports::DeviceId;
use crate::router::Router;

/// Maximum number of neighbours in a report.
const MOST_NEIGHBOURS: usize = 4096;

/// Report of a panicked worker: the batch that it treated, and the state needed for a replay.
#[derive(Debug, Default)]
pub struct PostMortem {
    /// Ingress device of the batch; `None` for a batch from another worker.
    pub device: Option<DeviceId>,
    /// Frames of the batch; stages may have rewritten some of them.
    pub frames: Vec<Vec<u8>>,
    /// Resolved neighbours, up to 4,096.
    pub neighbours: Vec<(PortId, IpAddr, MacAddr)>,
    /// Instance whose call was running; `None` if there was none.
    pub instance: Option<InstanceId>,
}

impl PostMortem {
    /// Reads the report from a router that no longer runs.
    pub(crate) fn of(router: &Router) -> Self {
        let (arrivals, device) = &router.arrivals;
        let known = router.forwarding.neighbours.iter().filter_map(|(key, state, _)| match state {
            NeighbourState::Reachable(mac) => Some((key.port, key.address, mac)),
            NeighbourState::Incomplete | NeighbourState::Failed => None,
        });
        Self {
            device: *device,
            frames: arrivals.frames().collect(),
            neighbours: known.take(MOST_NEIGHBOURS).collect(),
            instance: router.gates.plugins().instances().pulse().calling().map(|calling| calling.instance),
        }
    }
}
