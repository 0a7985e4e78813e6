//! Operations that show status, counters, events, drops, traces and captures.

use std::collections::HashMap;

use millrace_packet::DropReason;
use millrace_pipeline::{
    DropQuery, DroppedPacket, MOST_TRACED, ObservationCommand, Snapshot, TraceOrder, trace,
};
use millrace_telemetry::{EventPage, EventQuery};
use millrace_units::PortId;

use crate::events::Events;
use crate::observe::capture::{Capture, CaptureRequest};
use crate::observe::last_drops::{DropCursor, view};
use crate::observe::trace::{Journeys, TIME, TraceRequest, TraceTime};
use crate::operation::kinds::{Acting, Action, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::ports::device::time_of_day;
use crate::ports::device_drops_now;
use crate::router::{Router, Seen};
use crate::settings::Progress;
use crate::settings::Waiting;
use crate::show::KernelShare;
use crate::view::{
    ApplyingView, Cleared, DropView, DroppedView, IterationsView, MemoryView, MirrorView,
    PluginInterfaceView, StatusView, SummaryView, TraceView,
};
use crate::workers::ask::Ask;
use crate::workers::crash_capture::crashes;
use crate::{ControlError, show};

/// Starts a trace. Only one trace runs at a time.
#[derive(Clone, Debug, Default)]
pub struct StartTrace(pub TraceRequest);

impl Operation for StartTrace {
    type Answer = Trace;
    type Kind = Action;
    const EFFECT: Effect = Effect::Packets;
    const TAKES_MEMORY: bool = true;
    const NO_INVERSE: &'static str = "a trace ends by itself";

    /// # Errors
    /// Returns an error for an invalid filter, a number out of range, or while another trace is running.
    async fn carry_out(self, acting: &Acting) -> Result<Trace, ControlError> {
        let Self(request) = self;
        let count = request.count.unwrap_or(TraceRequest::COUNT);
        let count = ControlError::in_range("count", count, 1..=MOST_TRACED)?;
        let every = ControlError::in_range("every", request.every.unwrap_or(1), 1..=1 << 20)?;
        let time = request.time.map_or(TIME, TraceTime::duration);
        let filter = acting.select(request.filter.as_deref())?;
        let router = acting.router();
        let mut inner = router.lock();
        if inner.observation.tracing.is_some() {
            return Err(ControlError::conflict(
                "another trace is running, and only one can run at a time: stop it, or wait until it ends"
                    .to_owned(),
            ));
        }
        inner.observation.traces += 1;
        let number = inner.observation.traces;
        let order = TraceOrder { filter, every, count, time };
        let (sinks, sources): (Vec<_>, _) =
            (0..inner.workers.len()).map(|_| trace(number, order.clone())).unzip();
        let start = |sink| ObservationCommand::StartTrace(Box::new(sink));
        inner.workers.tell_each(sinks.into_iter().map(start).collect())?;
        inner.observation.tracing = Some(number);
        Ok(Trace { router: router.clone(), number, journeys: Journeys::new(sources, (count, time)) })
    }
}

/// Running trace. It ends when the requested number of packets is traced, when its time limit is reached, or
/// when the value is dropped.
#[derive(Debug)]
pub struct Trace {
    router: Router,
    number: u32,
    journeys: Journeys,
}

impl Trace {
    /// Returns the journeys that have ended since the last call, in order of arrival. Also returns a journey,
    /// as incomplete, if its next step does not arrive in time. The flag tells whether the trace is over.
    pub fn take(&mut self) -> (Vec<TraceView>, bool) {
        let (ended, over) = self.journeys.take();
        if ended.is_empty() {
            return (Vec::new(), over);
        }
        let inner = self.router.lock();
        (self.journeys.render(ended, &inner.model, &inner.routes.table), over)
    }

    /// Returns the number of packets that the trace lacks or shows incompletely, because their steps were
    /// read too slowly.
    pub fn lost(&self) -> u64 {
        self.journeys.lost()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let mut inner = self.router.lock();
        inner.observation.tracing = None;
        // If the router has stopped, the command fails, and there is no trace to stop.
        let _ = inner.workers.tell(|| ObservationCommand::StopTrace(self.number));
    }
}

/// Starts a capture.
#[derive(Clone, Debug, Default)]
pub struct StartCapture(pub CaptureRequest);

impl Operation for StartCapture {
    type Answer = Capture;
    type Kind = Action;
    const EFFECT: Effect = Effect::Packets;
    const TAKES_MEMORY: bool = true;
    const NO_INVERSE: &'static str = "a capture ends by itself";

    /// # Errors
    /// Returns an error for an unknown port, gate or instance, or an invalid filter.
    async fn carry_out(self, acting: &Acting) -> Result<Capture, ControlError> {
        let Self(request) = self;
        let filter = acting.select(request.filter.as_deref())?;
        let mut inner = acting.router().lock();
        inner.observation.captures += 1;
        let number = inner.observation.captures;
        let workers = inner.workers.len();
        let (capture, sinks) = Capture::new(&request, filter.as_ref(), number, &inner.model, workers)?;
        let start = |sink| ObservationCommand::StartCapture(Box::new(sink));
        inner.workers.tell_each(sinks.into_iter().map(start).collect())?;
        Ok(capture)
    }
}

/// Lists the events that a query selects.
#[derive(Clone, Debug, Default)]
pub struct ListEvents(pub EventQuery);

impl Operation for ListEvents {
    type Answer = EventPage;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<EventPage, ControlError> {
        Ok(router.events().page(&self.0))
    }
}

/// Returns a handle on the event log, with which a reader waits for further events.
#[derive(Clone, Copy, Debug, Default)]
pub struct FollowEvents;

impl Operation for FollowEvents {
    type Answer = Events;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Events, ControlError> {
        Ok(router.events().clone())
    }
}

/// Sets all packet counters to zero. Counters of queues, schedulers and flows continue.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClearCounters;

impl Operation for ClearCounters {
    type Answer = Cleared;
    type Kind = Action;
    const EFFECT: Effect = Effect::Forwarding;
    const NO_INVERSE: &'static str = "the earlier counts are lost";

    async fn carry_out(self, acting: &Acting) -> Result<Cleared, ControlError> {
        let mut inner = acting.router().lock();
        inner.workers.clear_counters()?;
        let offsets: HashMap<PortId, KernelShare> = inner
            .model
            .ports
            .iter()
            .map(|plan| (plan.id, inner.devices.share(plan.id, inner.offload.sent(plan.id))))
            .collect();
        let drops = device_drops_now(&inner.model);
        inner.counters.clear(offsets, drops);
        inner.seen().snapshot().map(|_| Cleared { cleared: true })
    }
}

/// Returns the dropped packets in the drop log that are newer than a cursor, ordered by time. Also returns
/// the cursor for the next reading.
#[derive(Clone, Debug, Default)]
pub struct ReadLastDrops {
    /// Drop reason of the packets; `None` for all reasons.
    pub reason: Option<String>,
    /// Cursor that the last reading returned; the default value for the first reading.
    pub cursor: DropCursor,
}

impl Operation for ReadLastDrops {
    type Answer = (Vec<DroppedView>, DropCursor);
    type Kind = Query;
    const EFFECT: Effect = Effect::Packets;

    /// # Errors
    /// Returns an error for an unknown reason, or if the data plane does not answer.
    async fn carry_out(self, router: &Reading) -> Result<(Vec<DroppedView>, DropCursor), ControlError> {
        let Self { reason, mut cursor } = self;
        let known = || DropReason::ALL.iter().map(|reason| reason.name());
        let find =
            |name| DropReason::from_name(name).ok_or_else(|| ControlError::unknown("reason", name, known()));
        let reason = reason.as_deref().map(find).transpose()?;
        let mut guard = router.lock();
        let inner = guard.seen();
        cursor.0.resize(inner.workers.len(), 0);
        let unseen = |worker: usize| DropQuery { reason, after: cursor.0[worker] };
        let answers =
            inner.workers.ask_each(|worker, reply| ObservationCommand::LastDrops(unseen(worker), reply))?;
        let mut dropped: Vec<(usize, DroppedPacket)> = Vec::new();
        for (worker, (seen, packets)) in cursor.0.iter_mut().zip(answers).enumerate() {
            *seen = packets.iter().map(|packet| packet.number).max().unwrap_or(*seen);
            dropped.extend(packets.into_iter().map(|packet| (worker, packet)));
        }
        dropped.sort_by_key(|(_, packet)| packet.at);
        let origin = time_of_day();
        let views =
            dropped.iter().map(|(worker, packet)| view(*worker, packet, origin, inner.model)).collect();
        Ok((views, cursor))
    }
}

/// Reads the status of the router.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetStatus;

impl Operation for GetStatus {
    type Answer = StatusView;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<StatusView, ControlError> {
        let mut guard = router.lock();
        let mut inner = guard.seen();
        let snapshot = inner.snapshot()?;
        Ok(status_view(&mut inner, &snapshot))
    }
}

/// Reads the packet totals of the router.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetSummary;

impl Operation for GetSummary {
    type Answer = SummaryView;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<SummaryView, ControlError> {
        let (snapshot, shares) = router.lock().seen().snapshot_and_shares()?;
        Ok(show::summary(&snapshot, &shares))
    }
}

/// Lists the numbers of dropped packets by drop reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListDrops;

impl Operation for ListDrops {
    type Answer = Vec<DropView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<DropView>, ControlError> {
        let mut guard = router.lock();
        let mut inner = guard.seen();
        let snapshot = inner.snapshot()?;
        let mut views = show::drops(&snapshot, inner.model);
        for view in &mut views {
            view.rate =
                inner.counters.rates.read(&format!("drop {}", view.reason), view.packets, snapshot.at);
        }
        Ok(views)
    }
}

/// Returns the view of the router's status.
fn status_view(inner: &mut Seen<'_>, snapshot: &Snapshot) -> StatusView {
    let mirror = inner.kernel.mirror.as_ref().map(|mirror| {
        let statistics = mirror.statistics();
        MirrorView {
            messages: statistics.messages,
            overruns: statistics.overruns,
            dumps: statistics.dumps,
            divergences_repaired: statistics.divergences_repaired,
        }
    });
    let has_cache = inner.offload.why_no_cache().is_none();
    let offloaded_flows = has_cache
        .then(|| show::offloaded_flows(snapshot.offloaded_flows, &mut inner.counters.rates, snapshot.at));
    StatusView {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        uptime: snapshot.at.since(inner.observation.started).as_secs_f64(),
        mode: inner.settings.mode,
        on_death: inner.supervision.death.view(),
        workers: inner.workers.len(),
        worker_cpu: inner.workers.cpu_times(),
        memory: MemoryView { used: snapshot.memory.0, frames: snapshot.memory.1 },
        routes: inner.routes.table.len(),
        flows: show::flow_table(&snapshot.flows),
        flow_states: show::flow_states(snapshot.flow_states),
        connections: show::connections(snapshot.connections),
        offloaded_flows,
        iterations: IterationsView {
            busy: snapshot.iterations.0,
            idle: snapshot.iterations.1,
            longest_change: snapshot.longest_change.as_micros() as u64,
        },
        sleeps: snapshot.sleeps,
        applying: inner.settings.applying.map(|Progress { made, of }| ApplyingView { made, of }),
        pending: inner.settings.waiting.as_ref().map(Waiting::pending),
        missing_routes: inner.routes.wanted.view(),
        crashes: inner.settings.state.as_deref().map(crashes).filter(|crashes| !crashes.is_empty()),
        plugin_interface: PluginInterfaceView::default(),
        leftover_objects: Some(millrace_plugin::native::leftovers()).filter(|count| *count > 0),
        mirror,
    }
}
