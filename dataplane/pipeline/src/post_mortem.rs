//! What a worker leaves behind when it panics.

use std::net::IpAddr;

use millrace_forward::NeighbourState;
use millrace_units::{InstanceId, PortId};
use millrace_wire::MacAddr;

use crate::ports::DeviceId;
use crate::router::Router;

/// Most neighbours that are kept.
const MOST_NEIGHBOURS: usize = 4096;

/// The batch that a worker worked on, and what a replay of it needs.
#[derive(Debug, Default)]
pub struct PostMortem {
    /// The device that the batch came by; none for a batch that another worker handed over.
    pub device: Option<DeviceId>,
    /// The frames of the batch, as far as the router had rewritten them.
    pub frames: Vec<Vec<u8>>,
    /// Resolved neighbours, up to 4,096.
    pub neighbours: Vec<(PortId, IpAddr, MacAddr)>,
    /// The instance whose call went on.
    pub instance: Option<InstanceId>,
}

impl PostMortem {
    /// Reads it from a router that does not run any more.
    pub(crate) fn of(router: &Router) -> Self {
        let (arrivals, device) = &router.arrivals;
        let known = router.neighbours.iter().filter_map(|(key, state, _)| match state {
            NeighbourState::Reachable(mac) => Some((key.port, key.address, mac)),
            NeighbourState::Incomplete | NeighbourState::Failed => None,
        });
        Self {
            device: *device,
            frames: arrivals.frames().collect(),
            neighbours: known.take(MOST_NEIGHBOURS).collect(),
            instance: router.pulse().calling().map(|calling| calling.instance),
        }
    }
}
