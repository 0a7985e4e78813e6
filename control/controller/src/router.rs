//! Running router: its state, the accessors of its parts, and changes that concern several parts.

mod audit;
pub(crate) mod instances;
mod parts;
mod plugins;
mod schedulers;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use millrace_config::OnDeath;
use millrace_pipeline::thread::Wake;
use millrace_pipeline::{GateTables, Snapshot};
use millrace_store::AuditLog;
use millrace_units::PortId;
use tokio::sync::Notify;

use crate::ControlError;
use crate::access::tokens::Tokens;
use crate::admission::services::loads::Loads;
use crate::events::Events;
use crate::flows::offload::Offload;
use crate::kernel::Kernel;
use crate::model::{Model, PortPlan};
use crate::observe::Observation;
use crate::observe::counters::Counters;
use crate::plugins::Plugins;
use crate::ports::device::KernelOptions;
use crate::ports::devices::Devices;
use crate::principals::Principals;
use crate::routes::Routes;
use crate::routes::views::RouteViews;
use crate::schedulers::queueing::Queueing;
use crate::settings::Settings;
use crate::show::{self, KernelShare};
use crate::workers::Workers;
use crate::workers::memory_guard::{MemoryGuard, room_for};
use crate::workers::supervision::Supervision;

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
    /// Held by the operation that changes the router. The next ones wait in order.
    pub turn: tokio::sync::Mutex<()>,
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
    /// Check for free memory. It needs no lock of the state.
    pub memory_guard: OnceLock<MemoryGuard>,
}

/// State of a running router, protected by a lock.
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
    pub principals: Principals,
    /// Measured loads of services.
    pub loads: Loads,
}

impl Inner {
    /// Returns the part of the state that queries can access.
    pub fn seen(&mut self) -> Seen<'_> {
        Seen {
            model: &self.model,
            tables: &self.tables,
            supervision: &self.supervision,
            devices: &self.devices,
            kernel: &self.kernel,
            routes: &self.routes,
            offload: &self.offload,
            plugins: &self.plugins,
            settings: &self.settings,
            observation: &self.observation,
            workers: &mut self.workers,
            queueing: &mut self.queueing,
            counters: &mut self.counters,
            principals: &self.principals,
        }
    }

    /// Returns the options for opening the kernel device of a port.
    pub fn kernel_options(&self, port: PortId, segment_mtu: u16) -> KernelOptions {
        KernelOptions {
            on_death: self.supervision.death.of_port(port).unwrap_or(OnDeath::Kernel),
            segment_mtu,
            no_cache: self.offload.why_no_cache(),
            control_plane: self.model.options.control_plane,
        }
    }
}

/// Part of a running router's state that queries can access. Workers are mutable because queries ask them
/// questions. Counters are mutable because rates are measured from one query to the next.
pub(crate) struct Seen<'a> {
    pub model: &'a Model,
    pub tables: &'a GateTables,
    pub supervision: &'a Supervision,
    pub devices: &'a Devices,
    pub kernel: &'a Kernel,
    pub routes: &'a Routes,
    pub offload: &'a Offload,
    pub plugins: &'a Plugins,
    pub settings: &'a Settings,
    pub observation: &'a Observation,
    pub workers: &'a mut Workers,
    pub queueing: &'a mut Queueing,
    pub counters: &'a mut Counters,
    pub principals: &'a Principals,
}

impl Seen<'_> {
    /// Returns all counters. Drops include the drops of workers and of XDP programs.
    pub fn snapshot(&mut self) -> Result<Snapshot, ControlError> {
        Ok(self.snapshot_and_shares()?.0)
    }

    /// Returns all counters, and the counters of each port's XDP programs, which are read right afterwards.
    pub fn snapshot_and_shares(&mut self) -> Result<(Snapshot, Vec<KernelShare>), ControlError> {
        let mut snapshot = self.workers.snapshot()?;
        let shares = self.add_offload_drops(&mut snapshot);
        Ok((snapshot, shares))
    }

    /// Returns the counters without the long lists: scheduler nodes, EtherTypes and neighbours.
    pub fn light_snapshot(&mut self) -> Result<Snapshot, ControlError> {
        let mut snapshot = self.workers.counters()?;
        self.add_offload_drops(&mut snapshot);
        Ok(snapshot)
    }

    /// Returns the counters of a port's XDP programs since the last clearing.
    pub fn share(&self, port: PortId) -> KernelShare {
        self.counters.share(port, &self.devices.share(port, self.offload.sent(port)))
    }

    fn add_offload_drops(&self, snapshot: &mut Snapshot) -> Vec<KernelShare> {
        let share = |plan: &PortPlan| {
            let share = self.share(plan.id);
            show::add_offload_drops(snapshot, plan.id, &share);
            share
        };
        self.model.ports.iter().map(share).collect()
    }

    /// Returns the views of routes.
    pub fn route_views(&self) -> RouteViews<'_> {
        let Self { model, routes, kernel, devices, .. } = self;
        RouteViews { model, routes, kernel, devices }
    }
}

impl Router {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // No panic leaves a command half carried out in the state, so a poisoned lock is harmless.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for a single change. Every single change starts with this function.
    ///
    /// # Errors
    /// Returns an error while a transaction is running, because the change would interfere with it. Also
    /// returns an error while a revision waits for confirmation, because a rollback would undo the change.
    pub(crate) fn to_change(&self) -> Result<MutexGuard<'_, Inner>, ControlError> {
        let inner = self.lock();
        inner.settings.settled()?;
        Ok(inner)
    }

    /// Waits until every worker has carried out all earlier commands. Success shows that control and all
    /// workers are alive.
    pub fn answers(&self) -> Result<(), ControlError> {
        self.lock().workers.barrier()
    }

    /// Starts the checks of free memory: once a second, and before each request that takes memory.
    pub fn guard_memory(&self, guard: MemoryGuard) {
        // A second guard is ignored.
        let _ = self.0.memory_guard.set(guard);
    }

    /// Checks that memory suffices for a request whose body has this many bytes.
    pub fn room_for(&self, body: usize) -> Result<(), ControlError> {
        room_for(self.0.memory_guard.get().copied(), body)
    }

    /// Returns the API tokens for remote access.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// Returns the event log.
    pub fn events(&self) -> &Events {
        &self.0.events
    }
}
