//! Resources of observation: drops, traces, rates, events, counters and captures.

use axum::routing::{delete, get};
use millrace_controller::Role::{Operator, Viewer};
use millrace_controller::view::{DropView, DroppedView, TraceView};
use millrace_controller::{EventPage, Router};

use crate::effect::Effect;
use crate::operation::{Operation, Resource};
use crate::resources::rates::RatesView;
use crate::resources::read;
use crate::resources::{self, capture, drops, events, metrics, rates, trace};

/// Returns the resources of dropped and traced packets, rates and events.
pub(super) fn packets() -> Vec<Resource> {
    vec![
        Resource::new("/drops")
            .on(Operation::get::<Vec<DropView>>(Viewer, "drops by reason"), read(Router::drops)),
        Resource::new("/drops/packets").on(
            Operation::get::<Vec<DroppedView>>(
                Operator,
                "the last dropped packets, up to 8 for each reason and worker; as pcapng, or as a stream, if accepted",
            ).effect(Effect::Packets)
            .arguments::<drops::Wanted>()
            .streams(),
            get(drops::packets),
        ),
        Resource::new("/trace").on(
            Operation::get::<Vec<TraceView>>(
                Operator,
                "traces of packets, stage by stage, until there are ?count=; as pcapng, or as a stream, if accepted",
            ).effect(Effect::Packets)
            .arguments::<trace::Wanted>()
            .streams(),
            get(trace::trace),
        ),
        Resource::new("/rates").on(
            Operation::get::<RatesView>(
                Viewer,
                "packet and byte rates of ports, ?hz= times a second as a stream, or once",
            )
            .arguments::<rates::Wanted>()
            .streams(),
            get(rates::rates),
        ),
        Resource::new("/events").on(
            Operation::get::<EventPage>(
                Viewer,
                "events; with `Accept: text/event-stream` as a stream, after Last-Event-ID",
            )
            .arguments::<events::Wanted>()
            .streams_on(),
            get(events::events),
        ),
    ]
}

/// Returns the resources of counters and captures.
pub(super) fn counters() -> Vec<Resource> {
    vec![
        Resource::new("/metrics").on(
            Operation::get::<String>(Viewer, "metrics in OpenMetrics format").media(metrics::MEDIA),
            get(metrics::metrics),
        ),
        Resource::new("/counters").on(
            Operation::delete::<resources::Cleared>(
                Operator,
                "resets packet counters; counters of queues, schedulers and flows continue",
            ),
            delete(resources::clear),
        ),
        Resource::new("/capture").on(
            Operation::get::<String>(
                Operator,
                "captures frames as pcapng, until there are ?count= or the client disconnects",
            )
            .effect(Effect::Packets)
            .arguments::<capture::Wanted>()
            .media("application/x-pcapng"),
            get(capture::capture),
        ),
    ]
}
