//! Resources of flows and of the lookup of a packet.

use millrace_controller::FlowQuery;
use millrace_controller::operation::{FlushFlows, ListFlows, Lookup};

use crate::endpoint::{Endpoint, Resource};
use crate::resources::{ask, placement, run};

/// Returns the resources of flows and of the lookup of a packet.
pub(super) fn flows() -> Vec<Resource> {
    vec![
        Resource::new("/flows")
            .on(
                Endpoint::get::<ListFlows>("flows that match a filter, in an order").arguments::<FlowQuery>(),
                ask::<ListFlows>,
            )
            .on(
                Endpoint::delete::<FlushFlows>("flushes flows that match a filter").arguments::<FlushFlows>(),
                ask::<FlushFlows>,
            ),
        placement::resource(),
        Resource::new("/lookup").on(
            Endpoint::post::<Lookup>("shows how the router would forward a packet").body::<Lookup>(),
            run::<Lookup>,
        ),
    ]
}
