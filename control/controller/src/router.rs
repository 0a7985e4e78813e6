//! Running router: its state, and the requests about the router as a whole.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_pipeline::thread::Wake;
use millrace_pipeline::{GateTables, ObservationCommand, Question, SchedulerCommand, Snapshot};
use millrace_store::AuditLog;
use millrace_units::PortId;
use tokio::sync::Notify;

use crate::access::tokens::Tokens;
use crate::configuration::{Progress, Settings};
use crate::flows::lookup::{self, ReadPacket};
use crate::flows::offload::Offload;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::observe::Observation;
use crate::observe::counters::Counters;
use crate::observe::events::Events;
use crate::plugins::Plugins;
use crate::ports::device_drops_now;
use crate::ports::devices::Devices;
use crate::routes::Routes;
use crate::schedulers::queueing::Queueing;
use crate::show::{self, KernelShare};
use crate::view::{
    ApplyingView, DropView, LookupView, MemoryView, MirrorView, NeighbourView, PluginInterfaceView,
    StatusView, SummaryView, TurnsView,
};
use crate::workers::Workers;
use crate::workers::crash_capture::crashes;
use crate::workers::supervision::Supervision;
use crate::{Capture, CaptureRequest, ControlError};

/// Handle on a running router. Clones refer to the same router.
#[derive(Clone)]
pub struct Router(pub(crate) Arc<Shared>);

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Router")
    }
}

pub(crate) struct Shared {
    pub inner: Mutex<Inner>,
    pub stop: Notify,
    /// Notified when a plugin requests a change.
    pub requested: Notify,
    /// Signal by which the workers wake control.
    pub control_wake: Wake,
    /// Event log.
    pub events: Events,
    /// Audit log.
    pub audit: AuditLog,
    /// API tokens for remote access.
    pub tokens: Tokens,
}

/// State of a running router.
pub(crate) struct Inner {
    /// Configured tables.
    pub model: Model,
    /// Filter tables of all gates.
    pub tables: GateTables,
    pub workers: Workers,
    pub supervision: Supervision,
    pub devices: Devices,
    pub kernel: Kernel,
    pub routes: Routes,
    pub offload: Offload,
    pub plugins: Plugins,
    pub queueing: Queueing,
    pub settings: Settings,
    pub observation: Observation,
    pub counters: Counters,
}

impl Inner {
    /// Returns all counters. Drops include the drops of workers and of XDP programs.
    pub fn snapshot(&mut self) -> Result<Snapshot, ControlError> {
        Ok(self.snapshot_and_shares()?.0)
    }

    /// Returns all counters, and the counters of each port's XDP programs read right after them.
    fn snapshot_and_shares(&mut self) -> Result<(Snapshot, Vec<KernelShare>), ControlError> {
        let mut snapshot = self.workers.snapshot()?;
        let shares = self.add_driver_drops(&mut snapshot);
        Ok((snapshot, shares))
    }

    /// Returns the counters without the long lists: scheduler nodes, EtherTypes and neighbours.
    pub fn counters(&mut self) -> Result<Snapshot, ControlError> {
        let mut snapshot = self.workers.counters()?;
        self.add_driver_drops(&mut snapshot);
        Ok(snapshot)
    }

    /// Returns the counters of a port's XDP programs since the last clearing.
    pub fn share(&self, port: PortId) -> KernelShare {
        self.counters.share(port, &self.devices.share(port, self.offload.sent(port)))
    }

    fn add_driver_drops(&self, snapshot: &mut Snapshot) -> Vec<KernelShare> {
        let share = |plan: &crate::model::PortPlan| {
            let share = self.share(plan.id);
            show::add_driver_drops(snapshot, plan.id, &share);
            share
        };
        self.model.ports.iter().map(share).collect()
    }
}

impl Router {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // After a panic the state is as consistent as between any two commands, so a poisoned lock is
        // harmless.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for a single change; every single change starts with this function.
    ///
    /// Refuses while a transaction is running, because the change would interfere with it. Refuses while a
    /// revision waits for confirmation, because a rollback would undo the change.
    ///
    /// # Errors
    /// [`ControlError::Conflict`] in these cases.
    pub(crate) fn to_change(&self) -> Result<MutexGuard<'_, Inner>, ControlError> {
        let inner = self.lock();
        inner.settings.settled()?;
        Ok(inner)
    }

    /// Waits until every worker has carried out all earlier commands. Shows that control and all workers are
    /// alive.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn answers(&self) -> Result<(), ControlError> {
        self.lock().workers.barrier()
    }

    /// Returns the API tokens for remote access.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// Returns the event log.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// Returns the status of the daemon.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn status(&self) -> Result<StatusView, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.snapshot()?;
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
        let driver_flows = has_cache
            .then(|| show::driver_flows(snapshot.driver_flows, &mut inner.counters.rates, snapshot.at));
        Ok(StatusView {
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
        })
    }

    /// Returns the packet totals.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn summary(&self) -> Result<SummaryView, ControlError> {
        let mut inner = self.lock();
        let (snapshot, shares) = inner.snapshot_and_shares()?;
        Ok(show::summary(&snapshot, &shares))
    }

    /// Returns the dropped packets by reason.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn drops(&self) -> Result<Vec<DropView>, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.snapshot()?;
        let mut views = show::drops(&snapshot, &inner.model);
        for view in &mut views {
            view.rate =
                inner.counters.rates.read(&format!("drop {}", view.reason), view.packets, snapshot.at);
        }
        Ok(views)
    }

    /// Returns the neighbours of all ports.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn neighbours(&self) -> Result<Vec<NeighbourView>, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.snapshot()?;
        let mut views: Vec<NeighbourView> = snapshot
            .neighbours
            .iter()
            .map(|(port, address, mac)| NeighbourView {
                port: inner.model.port_name(*port).to_owned(),
                address: address.to_string(),
                mac: mac.map(|mac| mac.to_string()),
                state: if mac.is_some() { "known".into() } else { "incomplete".into() },
            })
            .collect();
        let ports = inner.devices.by_index();
        if let Some(mirror) = &inner.kernel.mirror {
            let state = mirror.state();
            views.extend(state.neighbours().filter_map(|neighbour| {
                let port = ports.get(&neighbour.ifindex)?;
                Some(NeighbourView {
                    port: inner.model.port_name(*port).to_owned(),
                    address: neighbour.ip.to_string(),
                    mac: neighbour.mac.map(|mac| millrace_wire::MacAddr(mac).to_string()),
                    state: format!("{:?}", neighbour.state).to_lowercase(),
                })
            }));
        }
        views.sort_by(|a, b| (&a.port, &a.address).cmp(&(&b.port, &b.address)));
        Ok(views)
    }

    /// Explains how the router would treat a packet. `packet` is a filter without wildcards for the
    /// addresses.
    ///
    /// # Errors
    /// An invalid description of the packet.
    pub fn lookup(&self, packet: &str) -> Result<LookupView, ControlError> {
        let packet = ReadPacket::read(packet)?;
        let mut inner = self.lock();
        let question: Question = packet.question(&inner.model)?;
        let explanation = inner
            .workers
            .owner_of_flow(&question.key)
            .ask(|reply| ObservationCommand::Explain(question, reply))?;
        let leaf = match explanation.queue {
            Some((port, queue)) => {
                inner.workers.ask(|reply| SchedulerCommand::FindLeaf(port, queue, reply))?
            }
            None => Vec::new(),
        };
        let leaf = leaf.into_iter().flatten().next();
        Ok(lookup::view(explanation, leaf, &inner.model, &inner.routes.table))
    }

    /// Sets all counters to zero.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn clear_counters(&self) -> Result<(), ControlError> {
        let mut inner = self.lock();
        inner.workers.clear_counters()?;
        let offsets: HashMap<PortId, KernelShare> = inner
            .model
            .ports
            .iter()
            .map(|plan| (plan.id, inner.devices.share(plan.id, inner.offload.sent(plan.id))))
            .collect();
        let drops = device_drops_now(&inner.model);
        inner.counters.clear(offsets, drops);
        inner.snapshot().map(|_| ())
    }

    /// Starts a capture.
    ///
    /// # Errors
    /// No such port, an invalid filter.
    pub fn capture(&self, request: &CaptureRequest) -> Result<Capture, ControlError> {
        let filter = self.select(request.filter.as_deref())?;
        let mut inner = self.lock();
        let number = inner.observation.next_capture();
        let workers = inner.workers.len();
        let (capture, sinks) = Capture::new(request, filter.as_ref(), number, &inner.model, workers)?;
        let start = |sink| ObservationCommand::StartCapture(Box::new(sink));
        inner.workers.tell_each(sinks.into_iter().map(start).collect())?;
        Ok(capture)
    }
}
