//! Status of the daemon, packet totals, and drops by reason.

use millrace_pipeline::Snapshot;

use crate::configuration::Progress;
use crate::router::Inner;
use crate::show;
use crate::view::{ApplyingView, MemoryView, MirrorView, PluginInterfaceView, StatusView, TurnsView};
use crate::workers::crash_capture::crashes;

/// Returns the view of the daemon's status.
pub(crate) fn status_view(inner: &mut Inner, snapshot: &Snapshot) -> StatusView {
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
    let driver_flows =
        has_cache.then(|| show::driver_flows(snapshot.driver_flows, &mut inner.counters.rates, snapshot.at));
    StatusView {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        uptime: snapshot.at.since(inner.observation.started()).as_secs_f64(),
        mode: inner.settings.mode(),
        on_death: inner.supervision.death.view(),
        workers: inner.workers.len(),
        worker_cpu: inner.workers.cpu_times(),
        memory: MemoryView { used: snapshot.memory.0, frames: snapshot.memory.1 },
        routes: inner.routes.table.len(),
        flows: show::flow_table(&snapshot.flows),
        flow_states: show::flow_states(snapshot.flow_states),
        driver_flows,
        turns: TurnsView {
            busy: snapshot.turns.0,
            empty: snapshot.turns.1,
            longest_change: snapshot.longest_change.as_micros() as u64,
        },
        sleeps: snapshot.sleeps,
        applying: inner.settings.progress().map(|Progress { made, of }| ApplyingView { made, of }),
        pending: inner.settings.pending(),
        missing_routes: inner.routes.missing(),
        crashes: inner.settings.state.as_deref().map(crashes).filter(|crashes| !crashes.is_empty()),
        plugin_interface: PluginInterfaceView::default(),
        leftover_objects: Some(millrace_plugin::native::leftovers()).filter(|count| *count > 0),
        mirror,
    }
}
