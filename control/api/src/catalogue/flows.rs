//! Resources of flows and connections, and of the lookup of a packet.

use millrace_controller::FlowQuery;
use millrace_controller::operation::{
    FlushFlows, ListConnections, ListFlows, Lookup, ReleaseFlow, ReserveFlow,
};

use crate::endpoint::{Endpoint, Resource};
use crate::resources::principals::{ReleaseQuery, release};
use crate::resources::{ask, create, placement, run};

/// Returns the resources of flows and connections, and of the lookup of a packet.
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
        Resource::new("/connections").on(
            Endpoint::get::<ListConnections>("connections that the router tracks, which match a filter")
                .arguments::<ListConnections>(),
            ask::<ListConnections>,
        ),
        Resource::new("/reservations").on(
            Endpoint::create::<ReserveFlow>(
                "reserves processor time or a rate for flows: adds a principal, a filter and a binding together",
            )
            .body::<ReserveFlow>(),
            create::<ReserveFlow>,
        ),
        Resource::new("/reservations/{name}").on(
            Endpoint::delete::<ReleaseFlow>("removes a principal with its filters and bindings")
                .arguments::<ReleaseQuery>(),
            release,
        ),
        placement::resource(),
        Resource::new("/lookup").on(
            Endpoint::post::<Lookup>("shows how the router would forward a packet").body::<Lookup>(),
            run::<Lookup>,
        ),
    ]
}
