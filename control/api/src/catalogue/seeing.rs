//! Resources of observation: drops, traces, rates, events, counters and captures.

use millrace_controller::TraceRequest;
use millrace_controller::operation::{
    ClearCounters, GetCounters, GetStatus, ListDrops, ListEvents, ReadLastDrops, StartCapture, StartTrace,
};
use millrace_controller::view::{DroppedView, TraceView};

use crate::endpoint::{Endpoint, Resource};
use crate::resources::observe::rates::RatesView;
use crate::resources::observe::{capture, drops, events, metrics, rates, trace};
use crate::resources::show;

/// Returns the resources of dropped and traced packets, rates and events.
pub(super) fn packets() -> Vec<Resource> {
    vec![
        Resource::new("/drops").on(Endpoint::get::<ListDrops>("drops by reason"), show::<ListDrops>),
        Resource::new("/drops/packets").on(
            Endpoint::get_as::<ReadLastDrops, Vec<DroppedView>>(
                "the last dropped packets, up to 8 for each reason and worker; as pcapng, or as a stream, if accepted",
            )
            .arguments::<drops::Wanted>()
            .streams(),
            drops::packets,
        ),
        Resource::new("/trace").on(
            Endpoint::get_as::<StartTrace, Vec<TraceView>>(
                "traces of packets, stage by stage, until ?count= packets are traced; as pcapng, or as a stream, if accepted",
            )
            .arguments::<TraceRequest>()
            .streams(),
            trace::trace,
        ),
        Resource::new("/rates").on(
            Endpoint::get_as::<GetCounters, RatesView>(
                "packet and byte rates of ports, ?hz= times a second as a stream, or once",
            )
            .arguments::<rates::Wanted>()
            .streams(),
            rates::rates,
        ),
        Resource::new("/events").on(
            Endpoint::get::<ListEvents>(
                "events; with `Accept: text/event-stream` as a stream, after Last-Event-ID",
            )
            .arguments::<events::Wanted>()
            .streams_on(),
            events::events,
        ),
    ]
}

/// Returns the resources of counters and captures.
pub(super) fn counters() -> Vec<Resource> {
    vec![
        Resource::new("/metrics").on(
            Endpoint::get_as::<GetStatus, String>("metrics in OpenMetrics format").media(metrics::MEDIA),
            metrics::metrics,
        ),
        Resource::new("/counters").on(
            Endpoint::delete::<ClearCounters>(
                "resets packet counters; counters of queues, schedulers and flows continue",
            ),
            show::<ClearCounters>,
        ),
        Resource::new("/capture").on(
            Endpoint::get_as::<StartCapture, String>(
                "captures frames as pcapng, until ?count= frames are captured or the client disconnects",
            )
            .arguments::<capture::Wanted>()
            .media("application/x-pcapng"),
            capture::capture,
        ),
    ]
}
