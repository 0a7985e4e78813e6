//! Follows changes in the kernel, and events of the workers.

pub(crate) mod kernel_path;
pub(crate) mod kernel_queueing;
mod refresh;
mod routes;

mod features;
mod neighbours;
mod pace;
#[cfg(test)]
mod tests;

use std::time::Duration;

use millrace_host::HostChange;
use millrace_pipeline::{Event, NeighbourCommand, PluginCommand};
use millrace_plugin::Given;
use millrace_plugin_abi::{LogLevel, Output};
use millrace_telemetry::EventKind;
use serde_json::json;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::ControlError;
use crate::operation::requests::serve_requests;
use crate::plugins::host_level::HostSays;
use crate::ports::claim::Claim;
use crate::ports::device::KernelDevice;
use crate::principals::Principals;
use crate::principals::links::PortState;
use crate::router::instances::move_grown_services;
use crate::router::{Inner, Router};
use crate::routes::configured::wanted_among;
use crate::routes::from_kernel;
use crate::workers::crash_capture::{capture_crash, note_crashes};
use crate::workers::handle::ended;
use crate::workers::memory_guard::MemoryGuard;

use features::Features;
use neighbours::knowledge;
use pace::{Pace, is_silent, next_batch, worse};

/// Number of the kernel's routing table `local`.
const LOCAL: u32 = 255;
/// Maximum number of neighbours in one command to the workers: a longer command delays packets.
const NEIGHBOURS_TOGETHER: usize = 64;
/// Maximum number of workers' events handled without other work of control between them: each may take a request to the
/// kernel.
const EVENTS_TOGETHER: usize = 512;
/// Interval between two reports of used neighbours to the kernel.
const REFRESH: Duration = Duration::from_secs(1);
/// Interval between two checks of all counters. The checks find conditions that no event reports.
const LOOK: Duration = Duration::from_secs(1);
/// Interval between two divisions of the principals' shares over the workers.
const DIVISION: Duration = Duration::from_millis(10);

impl Router {
    /// Follows the kernel and the workers until [`shutdown`](Self::shutdown) is called. If a worker doesn't
    /// answer, requests fail, and control sends the kernel's changes to this worker again later.
    ///
    /// # Errors
    /// Returns an error if a worker's thread has ended.
    pub async fn run(&self) -> Result<(), ControlError> {
        let mut changes = self.lock().kernel.changes.take();
        let wake = self.0.control_wake.clone();
        // SAFETY: the registered value holds its own reference to the descriptor, so the descriptor stays
        // open until the value is dropped.
        let events = unsafe { AsyncFd::register_with_interest(wake.clone(), Interest::READABLE) }
            .map_err(|error| ControlError::system("wait for the data plane", error))?;
        let mut refresh = tokio::time::interval(REFRESH);
        refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The first check of counters comes after a second. By then the kernel has reported the routes that
        // were installed at the start.
        let mut look = tokio::time::interval_at(tokio::time::Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // A plugin request may take long, so it is served concurrently with this loop.
        let mut serving = std::pin::pin!(serve_requests(self));
        let mut pace = Pace::default();
        let mut features = Features::open();
        let has_several = self.lock().workers.len() > 1;
        let mut division = tokio::time::Instant::now();
        loop {
            let done = tokio::select! {
                // The stop signal is checked first, because the workers answer no more after a stop.
                biased;
                () = self.0.stop.notified() => return Ok(()),
                batch = next_batch(&mut changes), if pace.undone.is_none() => self.follow(batch, &mut pace),
                ready = events.readable() => {
                    if let Ok(mut ready) = ready {
                        ready.clear_ready();
                    }
                    wake.clear();
                    self.hear()
                }
                () = features.news() => self.lock().follow_features(&mut features),
                _ = refresh.tick() => self.refresh(&mut pace),
                _ = look.tick() => self.lock().look(self.0.memory_guard.get().copied()),
                () = tokio::time::sleep_until(division), if has_several => {
                    let divided = {
                        let Inner { principals, model, workers, .. } = &mut *self.lock();
                        principals.shares.divide(model, workers)
                    };
                    let pause = if matches!(divided, Ok(true)) { DIVISION } else { LOOK };
                    division = tokio::time::Instant::now() + pause;
                    divided.map(|_| ())
                }
                never = &mut serving => match never {},
            };
            let has_ended = done.is_err() && self.lock().workers.has_one_ended();
            pace.judge(done, has_ended)?;
        }
    }

    /// Applies changes of the kernel. If a worker doesn't answer, keeps the whole batch for a later attempt.
    fn follow(&self, batch: Vec<HostChange>, pace: &mut Pace) -> Result<(), ControlError> {
        let followed = self.lock().follow(batch.clone());
        if matches!(followed, Err(ControlError::Silent(_))) {
            pace.undone = Some(batch);
        }
        followed
    }

    /// Does the periodic work of each second. It repeats the failed batch of kernel changes, and sends the
    /// routes that a worker may lack. It also updates receive queues, offload capabilities, used neighbours
    /// and gate links.
    fn refresh(&self, pace: &mut Pace) -> Result<(), ControlError> {
        {
            let Inner { model, workers, plugins, observation, .. } = &mut *self.lock();
            if workers.has_one_ended() {
                return Err(ended());
            }
            plugins.late_releases.follow(model, observation);
        }
        if let Some(batch) = pace.undone.take() {
            self.follow(batch, pace)?;
        }
        if pace.is_silent {
            // The ring of a worker that did not answer still holds its events.
            self.hear()?;
        }
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.tell_own(&[])?;
        inner.follow_queues();
        inner.offload.refresh_ports(&mut inner.devices, &inner.model, &mut inner.workers)?;
        inner.neighbours().refresh()?;
        inner.gates().link()?;
        drop(guard);
        pace.goes_on();
        Ok(())
    }

    /// Handles the events of the workers, and wakes the task that serves plugin requests.
    fn hear(&self) -> Result<(), ControlError> {
        let mut inner = self.lock();
        if inner.workers.has_one_ended() {
            return Err(ended());
        }
        let is_all = inner.hear()?;
        if !is_all {
            // The rest follows after other work of control.
            self.0.control_wake.signal();
        }
        if !inner.plugins.requests.is_empty() {
            self.0.requested.notify_one();
        }
        Ok(())
    }

    /// Ends the router. First the kernel takes over forwarding again, then the workers send the packets that
    /// they hold.
    ///
    /// # Errors
    /// Returns the first failure to release a resource.
    pub async fn shutdown(&self) -> Result<(), ControlError> {
        self.0.stop.notify_one();
        // The claims are dropped last, after the workers have released the devices.
        let panics: Vec<_> = self.lock().supervision.panics.try_iter().collect();
        let (threads, result, _claims) = self.lock().end(!panics.is_empty());
        for panic in panics {
            let Inner { model, tables, routes, settings, .. } = &mut *self.lock();
            capture_crash(panic, settings.state.as_deref(), model, tables, &routes.table);
        }
        let join = || threads.into_iter().try_for_each(|thread| thread.join().map(drop));
        let joined = tokio::task::spawn_blocking(join);
        match tokio::time::timeout(Duration::from_secs(5), joined).await {
            Ok(Ok(Ok(()))) => {}
            _ => return Err(ControlError::System("a worker did not stop within 5 s".into())),
        }
        result
    }
}

fn say(instance: &str, level: LogLevel, line: &str) {
    match level {
        LogLevel::Error => tracing::error!(instance, "{line}"),
        LogLevel::Warning => tracing::warn!(instance, "{line}"),
        LogLevel::Information => tracing::info!(instance, "{line}"),
        LogLevel::Debug => tracing::debug!(instance, "{line}"),
    }
}

impl Inner {
    /// Notes an event for the start of forwarding, and for each crash that no earlier start has reported.
    pub fn note_start(&mut self) {
        self.observation.note_start(&self.model, &self.settings.base.draft.origin);
        if let Some(state) = &self.settings.state {
            note_crashes(state, &self.observation.events);
        }
    }

    /// Checks for conditions that no event reports, about once a second. Checks the counters last, because
    /// reading them fails if a worker does not answer.
    fn look(&mut self, guard: Option<MemoryGuard>) -> Result<(), ControlError> {
        self.observation.observe_memory(guard);
        self.observation.events.flush();
        self.configured_routes().compare_next();
        // Bindings end in many ways, and with them what their principals need.
        self.tell_shares()?;
        self.principals.take_processes(&self.model.principals);
        if self.settings.applying.is_none() {
            self.principals.forget_removed();
        }
        let counters = self.seen().light_snapshot()?;
        self.observation.observe(&self.model, &counters);
        self.observation.observe_impacts(&self.model, &counters.instances);
        move_grown_services(self, &counters)?;
        self.principals.sample_processes(counters.at);
        let Principals { shares, promises, core_inputs, overloads, links, .. } = &mut self.principals;
        let promised = shares.promised(&self.model, self.workers.len());
        promises.sample(counters.at, &counters.principals, &promised);
        core_inputs.sample(counters.at, (&counters.ports, self.model.router.core));
        promises.judge(&self.model, &promised, &self.observation.events);
        overloads.judge(&self.model, &counters.principals, &self.observation.events);
        links.sample(&self.model, &mut self.workers)?;
        let state = |port: &str| PortState::of(port, &self.model, &self.devices, &self.kernel);
        links.judge(state, &self.observation.events);
        Ok(())
    }

    /// Ends the router and stops the workers. Normally removes the router's programs and routes from the
    /// kernel. After a crash, the ports' `on-death` settings apply instead, and all routes stay for the next
    /// start.
    fn end(
        &mut self,
        crashed: bool,
    ) -> (Vec<std::thread::JoinHandle<()>>, Result<(), ControlError>, Vec<Claim>) {
        self.settings.ending = true;
        let mut result = Ok(());
        let mut note = |outcome: Result<(), ControlError>| {
            if result.is_ok() {
                result = outcome;
            }
        };
        // Host output ends first. Otherwise the kernel's own packets would still be redirected when the
        // kernel forwards again.
        self.devices.host_outputs.clear();
        let devices: Vec<KernelDevice> = self.devices.kernel.drain().map(|(_, device)| device).collect();
        let mut claims = Vec::new();
        for device in devices {
            let (outcome, claim) = if crashed { device.leave() } else { device.detach() };
            note(outcome);
            claims.push(claim);
        }
        if let Some(actions) = self.kernel.actions.as_mut().filter(|_| !crashed) {
            for route in self.routes.take_installed() {
                let removed = actions.remove_route(route.prefix, route.metric);
                note(removed.map_err(|error| ControlError::system("remove a route from the kernel", error)));
            }
        }
        let threads = std::mem::take(&mut self.supervision.threads);
        if !threads.is_empty() {
            note(self.workers.stop());
        }
        note(self.principals.end());
        self.kernel.mirror = None;
        (threads, result, claims)
    }

    /// Applies changes of the kernel.
    pub fn follow(&mut self, changes: Vec<HostChange>) -> Result<(), ControlError> {
        use HostChange::{Address, Forwarding, Link, LinkGone, Queueing, Route};
        let is_port = |change: &HostChange| {
            matches!(change, Link(_) | LinkGone(_) | Address { .. } | Forwarding { .. })
        };
        let is_local = |change: &HostChange| match change {
            Route { route, .. } => route.as_ref().is_none_or(|route| route.table == LOCAL),
            _ => false,
        };
        let about_ports = changes.iter().any(is_port);
        let about_local = about_ports || changes.iter().any(is_local);
        let about_queueing = changes.iter().any(|change| matches!(change, Queueing(_)));
        // A failed change doesn't prevent the other changes. If a worker doesn't answer, the whole batch is
        // repeated later.
        let mut done = Ok(());
        if about_ports {
            done = worse(done, self.refresh_ports());
        }
        if !is_silent(&done) && about_queueing {
            done = worse(done, self.follow_queueing());
        }
        if is_silent(&done) {
            return done;
        }
        let wanted = wanted_among(&self.model, &changes);
        done = worse(done, self.apply(changes));
        self.configured_routes().follow(&wanted, about_ports);
        if about_local && !is_silent(&done) {
            done = worse(done, self.devices.refresh_programs(&self.model, &self.kernel));
        }
        done
    }

    /// Sends the kernel's changes of routes and neighbours to the workers.
    pub fn apply(&mut self, changes: Vec<HostChange>) -> Result<(), ControlError> {
        let ports = self.devices.by_index();
        let (mut routes, mut neighbours) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                HostChange::Route { prefix, route } if self.model.own_routes.get(&prefix).is_none() => {
                    routes.push((prefix, route.and_then(|route| from_kernel(&route, &ports))));
                }
                HostChange::Neighbour { ifindex, ip, neighbour } => {
                    if let Some(port) = ports.get(&ifindex) {
                        neighbours.extend(knowledge(*port, ip, neighbour.as_ref()));
                    }
                }
                _ => {}
            }
        }
        let routed = self.routes.table.change(routes, &mut self.workers);
        if neighbours.is_empty() || is_silent(&routed) {
            return routed;
        }
        self.observation.note_neighbours(&self.model, &neighbours);
        let mut pieces = neighbours.chunks(NEIGHBOURS_TOGETHER);
        worse(
            routed,
            pieces.try_for_each(|piece| self.workers.tell(|| NeighbourCommand::Set(piece.to_vec()))),
        )
    }

    /// Handles events of the workers, up to [`EVENTS_TOGETHER`]. Returns whether these were all.
    fn hear(&mut self) -> Result<bool, ControlError> {
        let mut left = EVENTS_TOGETHER;
        while left > 0
            && let Some((worker, event)) = self.workers.next_event()
        {
            left -= 1;
            match event {
                Event::Neighbour(change) => {
                    self.observation.note_neighbours(&self.model, &[change]);
                    self.workers.tell_others(worker, change)?;
                }
                Event::Resolve(port, address) => self.neighbours().resolve(port, address)?,
                Event::AddressConflict(port, address, mac) => {
                    let name = self.model.port_name(port);
                    tracing::warn!(port = %name, %address, %mac, "another station uses this router's address");
                    let text = format!(
                        "address conflict at port {name}: {mac} uses {address}, an address of this router"
                    );
                    let details = json!({"port": name, "address": address, "mac": mac.to_string()});
                    self.observation.events.note(
                        EventKind::AddressConflict,
                        &format!("{address} at {name}"),
                        text,
                        details,
                    );
                }
                Event::InstanceSays(instance, level, line) => {
                    say(self.model.plugins.instance_name(instance), level, &line);
                }
                Event::InstanceRequests(instance, request) => {
                    let name = self.model.plugins.instance_name(instance);
                    self.plugins.note_request(name, request);
                }
                Event::InstanceSends(instance, bytes) => self.plugins.host_level.message(instance, bytes),
                Event::InstanceFailed(failure) => {
                    self.observation.note_failure(&self.model, &failure, Some(worker));
                }
                Event::Discards(object) => drop(object),
            }
        }
        self.hear_host_companions()?;
        Ok(left > 0)
    }

    /// Handles the output of host companions. Messages go to the instances at the workers; once a worker
    /// doesn't answer, all further messages are dropped. Requests and failures are always handled.
    fn hear_host_companions(&mut self) -> Result<(), ControlError> {
        let mut done = Ok(());
        for says in self.plugins.host_level.take_said() {
            match says {
                HostSays::Given(Given { instance, output, .. }) => match output {
                    Output::Log(level, line) => {
                        say(self.model.plugins.instance_name(instance), level, &line);
                    }
                    Output::Request(request) => {
                        let name = self.model.plugins.instance_name(instance);
                        self.plugins.note_request(name, request);
                    }
                    Output::Message(bytes) if done.is_ok() => {
                        done = self.workers.tell(|| PluginCommand::Message(instance, bytes.clone()));
                    }
                    // Host companions never have the capability to emit packets.
                    Output::Message(_) | Output::Packet { .. } => {}
                },
                HostSays::Failed(failure) => self.observation.note_failure(&self.model, &failure, None),
            }
        }
        done
    }
}
