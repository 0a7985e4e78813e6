//! Following: what changes in the kernel, and what the worker says by itself.

mod features;
mod pace;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use millrace_host::{HostChange, HostNeighbour, NeighbourState, local_addresses};
use millrace_pipeline::{
    DeviceCommand, DeviceId, Event, NeighbourChange, NeighbourCommand, NeighbourKnowledge, PluginCommand,
    PortCommand,
};
use millrace_plugin::{Failure, Given};
use millrace_plugin_abi::{LogLevel, Output, Request};
use millrace_telemetry::EventKind;
use millrace_units::{InstanceId, PortId};
use millrace_wire::MacAddr;
use serde_json::json;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::ControlError;
use crate::claim::Claim;
use crate::device::{AttachedDevice, KernelDevice, KernelOptions, mtu_of, vlan_stack};
use crate::host_level::HostSays;
use crate::kernel_queueing::concerns_queueing;
use crate::router::{Inner, Router};
use crate::routes::from_kernel;
use crate::show::KernelShare;
use crate::start::{complete, warn_of_forwarding};
use crate::worker_commands::links;
use crate::worker_handle::ended;
use features::Features;
use pace::{Pace, is_silent, next_batch, worse};

/// Requests of plugins that may wait.
const MOST_REQUESTS: usize = 256;
/// Neighbours in one worker command at most: a longer command delays packets.
const NEIGHBOURS_TOGETHER: usize = 64;
/// Pieces in which workers say what neighbours are in use, at most: enough for all of them, as long as none is used again meanwhile.
pub(crate) const MOST_PIECES: usize = 512;
/// How often the kernel is told which neighbours are in use.
const REFRESH: Duration = Duration::from_secs(1);
/// How often all counters are looked at for what nobody tells.
const LOOK: Duration = Duration::from_secs(1);

impl Router {
    /// Follows the kernel and the worker until [`shutdown`](Self::shutdown) is called. A worker that takes longer to answer than it ever
    /// should is waited for: what the kernel said is told again once it goes on, and who asks for something meanwhile is told.
    ///
    /// # Errors
    /// When a worker's thread has ended.
    pub async fn run(&self) -> Result<(), ControlError> {
        let mut changes = self.lock().changes.take();
        let wake = self.0.control_wake.clone();
        // SAFETY: what is registered holds its own reference to the descriptor, so that stays open until it is dropped.
        let events = unsafe { AsyncFd::register_with_interest(wake.clone(), Interest::READABLE) }
            .map_err(|error| ControlError::system("wait for the data plane", error))?;
        let mut refresh = tokio::time::interval(REFRESH);
        refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Not at once: what the kernel says of the routes of the start comes first.
        let mut look = tokio::time::interval_at(tokio::time::Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // What plugins ask for may take long: meanwhile the kernel and the workers are followed.
        let mut serving = std::pin::pin!(self.serve_requests());
        let mut pace = Pace::default();
        let mut features = Features::open();
        loop {
            let done = tokio::select! {
                // What is heard after the worker was told to stop has nobody to answer it.
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
                _ = look.tick() => self.lock().look(),
                never = &mut serving => match never {},
            };
            let has_ended = done.is_err() && self.lock().workers.has_one_ended();
            pace.judge(done, has_ended)?;
        }
    }

    /// Takes up what changed in the kernel; what a silent worker could not be told of is kept.
    fn follow(&self, batch: Vec<HostChange>, pace: &mut Pace) -> Result<(), ControlError> {
        let followed = self.lock().follow(batch.clone());
        if matches!(followed, Err(ControlError::Silent(_))) {
            pace.undone = Some(batch);
        }
        followed
    }

    /// What is to be done again and again.
    fn refresh(&self, pace: &mut Pace) -> Result<(), ControlError> {
        if self.lock().workers.has_one_ended() {
            return Err(ended());
        }
        if let Some(batch) = pace.undone.take() {
            self.follow(batch, pace)?;
        }
        if pace.is_silent {
            // What workers said when there was no answer is still there.
            self.hear()?;
        }
        let mut inner = self.lock();
        inner.follow_queues();
        inner.refresh_driver_ports()?;
        inner.refresh_neighbours()?;
        inner.link_gates()?;
        drop(inner);
        pace.goes_on();
        Ok(())
    }

    /// Does what the workers ask for; what plugins ask for is noted.
    fn hear(&self) -> Result<(), ControlError> {
        let mut inner = self.lock();
        if inner.workers.has_one_ended() {
            return Err(ended());
        }
        inner.hear()?;
        if !inner.requests.is_empty() {
            self.0.requested.notify_one();
        }
        Ok(())
    }

    /// Ends the router: the kernel gets its packets back first, then what the router holds is sent.
    ///
    /// # Errors
    /// What could not be undone.
    pub async fn shutdown(&self) -> Result<(), ControlError> {
        self.0.stop.notify_one();
        // The claims are kept until the worker has let go of the devices.
        let panics = self.lock().take_panics();
        let (threads, result, _claims) = self.lock().end(!panics.is_empty());
        panics.into_iter().for_each(|panic| self.lock().capture_crash(panic));
        let join = || threads.into_iter().try_for_each(|thread| thread.join().map(drop));
        let joined = tokio::task::spawn_blocking(join);
        match tokio::time::timeout(Duration::from_secs(5), joined).await {
            Ok(Ok(Ok(()))) => {}
            _ => return Err(ControlError::System("a worker did not end within 5 s".into())),
        }
        result
    }
}

/// Writes a line of an instance into the log.
fn say(instance: &str, level: LogLevel, line: &str) {
    match level {
        LogLevel::Error => tracing::error!(instance, "{line}"),
        LogLevel::Warning => tracing::warn!(instance, "{line}"),
        LogLevel::Information => tracing::info!(instance, "{line}"),
        LogLevel::Debug => tracing::debug!(instance, "{line}"),
    }
}

impl Inner {
    /// Looks at all counters for what nobody tells.
    fn look(&mut self) -> Result<(), ControlError> {
        let counters = self.counters()?;
        self.observe(&counters);
        self.compare_wanted();
        Ok(())
    }

    /// Ends what the router does to the kernel. After a crash the kernel gets the packets of ports that want that, and all routes stay:
    /// the next start takes them over.
    fn end(
        &mut self,
        crashed: bool,
    ) -> (Vec<std::thread::JoinHandle<()>>, Result<(), ControlError>, Vec<Claim>) {
        self.ending = true;
        let mut result = Ok(());
        let mut note = |outcome: Result<(), ControlError>| {
            if result.is_ok() {
                result = outcome;
            }
        };
        // The kernel sends its own again, and then it forwards.
        self.hosts.clear();
        let devices: Vec<KernelDevice> = self.kernel.drain().map(|(_, device)| device).collect();
        let mut claims = Vec::new();
        for device in devices {
            let (outcome, claim) = if crashed { device.leave() } else { device.detach() };
            note(outcome);
            claims.push(claim);
        }
        if let Some(actions) = self.actions.as_mut().filter(|_| !crashed) {
            for route in std::mem::take(&mut self.installed).into_values() {
                let removed = actions.remove_route(route.prefix, route.metric);
                note(removed.map(|_| ()).map_err(|error| ControlError::system("take back a route", error)));
            }
        }
        if !self.threads.is_empty() {
            note(self.workers.stop());
        }
        self.mirror = None;
        (std::mem::take(&mut self.threads), result, claims)
    }

    /// Takes up what changed in the kernel.
    pub fn follow(&mut self, changes: Vec<HostChange>) -> Result<(), ControlError> {
        let about_ports = changes.iter().any(|change| {
            matches!(
                change,
                HostChange::Link(_)
                    | HostChange::LinkGone(_)
                    | HostChange::Address { .. }
                    | HostChange::Forwarding { .. }
            )
        });
        let about_local = about_ports || changes.iter().any(|change| matches!(change, HostChange::Route { route, .. } if route.as_ref().is_none_or(|route| route.table == 255)));
        // What can't be taken up keeps nothing else from it; for a worker that is silent all of it is done again.
        let mut done = Ok(());
        if about_ports {
            done = worse(done, self.refresh_ports());
        }
        if !is_silent(&done) && concerns_queueing(&changes) {
            done = worse(done, self.follow_queueing());
        }
        if is_silent(&done) {
            return done;
        }
        let wanted = self.wanted_among(&changes);
        done = worse(done, self.apply(changes));
        self.follow_wanted(&wanted, about_ports);
        if about_local && !is_silent(&done) {
            done = worse(done, self.refresh_programs());
        }
        done
    }

    /// Tells the worker of routes and neighbours.
    pub fn apply(&mut self, changes: Vec<HostChange>) -> Result<(), ControlError> {
        let ports = self.by_device();
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
        let routed = self.change_routes(routes);
        if neighbours.is_empty() || is_silent(&routed) {
            return routed;
        }
        self.note_neighbours(&neighbours);
        let mut pieces = neighbours.chunks(NEIGHBOURS_TOGETHER);
        worse(
            routed,
            pieces.try_for_each(|piece| self.workers.tell(|| NeighbourCommand::Set(piece.to_vec()))),
        )
    }

    /// Tells the worker of ports whose settings changed; opens devices that came back.
    fn refresh_ports(&mut self) -> Result<(), ControlError> {
        self.replace_devices();
        let before: Vec<_> = self.model.ports.iter().map(|plan| plan.settings.clone()).collect();
        let Some(mirror) = &self.mirror else { return Ok(()) };
        if !complete(&mut self.model, &mirror.state()) {
            return Ok(());
        }
        let changed: Vec<_> = self
            .model
            .ports
            .iter()
            .zip(before)
            .filter(|(plan, before)| plan.settings != *before)
            .map(|(plan, before)| (plan.clone(), before.up))
            .collect();
        for (plan, was_up) in changed {
            if plan.settings.up != was_up {
                self.note_link(&plan.settings.name, plan.settings.up);
            }
            tracing::info!(port = %plan.settings.name, up = plan.settings.up, mtu = plan.settings.mtu, "port changed");
            warn_of_forwarding(&plan.settings);
            if let Some(device) = self.kernel.get_mut(&plan.id) {
                device.take_over(plan.settings.mac)?;
            }
            self.workers.tell(|| PortCommand::Set(plan.id, plan.settings.clone()))?;
        }
        Ok(())
    }

    /// Opens devices anew whose receive queues are others than when they were opened: what comes by a queue without a socket would get
    /// past the router.
    fn follow_queues(&mut self) {
        let Some(mirror) = &self.mirror else { return };
        let state = mirror.state();
        let mut links = self
            .kernel
            .values()
            .filter_map(|own| Some((own, state.links().find(|link| link.ifindex == own.ifindex)?)));
        let is_other = links.any(|(device, link)| device.has_other_queues(&link.name));
        drop(state);
        if is_other {
            self.replace_devices();
        }
    }

    /// Lets go of devices that are gone, or have other queues, and opens those that are there.
    fn replace_devices(&mut self) {
        let Some(mirror) = &self.mirror else { return };
        let links: Vec<_> = self
            .model
            .ports
            .iter()
            .filter(|plan| plan.is_kernel())
            .map(|plan| {
                (
                    plan.clone(),
                    mirror.state().link_by_name(plan.config.device.as_deref().unwrap_or_default()).cloned(),
                )
            })
            .collect();
        for (plan, link) in links {
            let held = self.kernel.get(&plan.id).map(|device| device.ifindex);
            let there = link.as_ref().map(|link| link.ifindex);
            let is_other = self.kernel.get(&plan.id).zip(link.as_ref());
            let is_other = is_other.is_some_and(|(device, link)| device.has_other_queues(&link.name));
            if (held == there && !is_other)
                || (held.is_none() && !link.as_ref().is_some_and(|link| link.admin_up))
            {
                continue;
            }
            if self.kernel.contains_key(&plan.id) {
                let what = if is_other { "let go of: its receive queues are others" } else { "gone" };
                tracing::warn!(port = %plan.settings.name, "device is {what}");
                self.note_device(&plan, EventKind::DeviceGone, what);
                self.share_gone.insert(plan.id, self.share(plan.id));
                // What the driver has sent goes on being counted from where it is.
                let sent = self.share_now(plan.id).sent;
                self.share_offset.insert(plan.id, KernelShare { sent, ..KernelShare::default() });
                self.kernel.remove(&plan.id);
                if !is_other {
                    // The next device of that name counts from nothing on.
                    self.device_drops_before.remove(&plan.id);
                }
                if let Err(error) = self.forget_driver_port(plan.id) {
                    tracing::error!("{error}");
                }
                // The other ports must not take the end of this one's sockets for the end of the router.
                if let Err(error) = self.set_witness().and_then(|()| self.set_host_outputs()) {
                    tracing::error!("{error}");
                }
                let device = plan.settings.device;
                // A worker that does not answer is noticed by the next command that matters.
                let _ = self.workers.ask(|reply| DeviceCommand::Remove(device, reply));
            }
            if let Some(link) = link.filter(|link| link.admin_up) {
                match self.reopen(&plan, &link) {
                    Ok(()) => {
                        tracing::info!(port = %plan.settings.name, "device is back");
                        self.note_device(&plan, EventKind::DeviceBack, "there again");
                    }
                    Err(error) => tracing::error!(port = %plan.settings.name, "{error}"),
                }
            }
        }
    }

    fn reopen(
        &mut self,
        plan: &crate::model::PortPlan,
        link: &millrace_host::HostLink,
    ) -> Result<(), ControlError> {
        let on_death = self.death.of_port(plan.id).unwrap_or(millrace_config::OnDeath::Kernel);
        let options = KernelOptions {
            on_death,
            segment_mtu: mtu_of(link),
            no_cache: self.flow_cache.as_ref().err().copied(),
            control_plane: self.model.options.control_plane,
        };
        let (mut device, capabilities) = AttachedDevice::attach(
            plan,
            link,
            Claim::take(link.ifindex, &link.name)?,
            options,
            self.flow_cache.as_ref().ok(),
        )?
        .open(&mut self.workers)?;
        device.take_over(MacAddr(link.mac.unwrap_or_default()))?;
        self.capabilities.insert(plan.settings.device, capabilities);
        self.kernel.insert(plan.id, device);
        self.note_queueing(true);
        self.refresh_driver_ports()?;
        self.set_host_path()?;
        self.set_witness()?;
        self.set_host_outputs()?;
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let everything = mirror.state().snapshot();
        self.apply(everything)
    }

    /// Tells the level-0 programs what is the kernel's own, and which VLANs are ours.
    pub fn refresh_programs(&mut self) -> Result<(), ControlError> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let addresses = local_addresses(&mirror.state());
        for (port, device) in &mut self.kernel {
            let vlans: Vec<_> = self
                .model
                .ports
                .iter()
                .filter(|plan| plan.settings.device == device.device && plan.id != *port)
                .filter_map(|plan| vlan_stack(plan.settings.tags))
                .collect();
            let set = device
                .programs
                .set_local_addresses(&addresses)
                .and_then(|()| device.programs.set_vlans(&vlans));
            set.map_err(ControlError::refused)?;
        }
        Ok(())
    }

    /// Does what the worker asks for.
    fn hear(&mut self) -> Result<(), ControlError> {
        while let Some((worker, event)) = self.workers.next_event() {
            match event {
                Event::Neighbour(change) => {
                    self.note_neighbours(&[change]);
                    self.workers.tell_others(worker, change)?;
                }
                Event::Resolve(port, address) => self.resolve(port, address)?,
                Event::AddressConflict(port, address, mac) => {
                    let name = self.model.port_name(port);
                    tracing::warn!(port = %name, %address, %mac, "another station uses this router's address");
                    let text = format!("{mac} uses {address}, which is this router's at port {name}");
                    let details = json!({"port": name, "address": address, "mac": mac.to_string()});
                    self.events.note(
                        EventKind::AddressConflict,
                        &format!("{address} at {name}"),
                        text,
                        details,
                    );
                }
                Event::InstanceSays(instance, level, line) => {
                    say(self.model.plugins.instance_name(instance), level, &line);
                }
                Event::InstanceRequests(instance, request) => self.note_request(instance, request),
                Event::InstanceSends(instance, bytes) => self.host_level.message(instance, bytes),
                Event::InstanceFailed(failure) => {
                    self.note_failure(&failure, Some(worker));
                    let Failure { instance, fault, health } = failure;
                    let name = self.model.plugins.instance_name(instance);
                    let health = health.name();
                    tracing::warn!(instance = name, kind = fault.kind, health, "failed: {}", fault.text);
                }
            }
        }
        self.hear_host_companions()
    }

    /// Does what host companions of plugins ask for, and takes their messages to the fast ones.
    fn hear_host_companions(&mut self) -> Result<(), ControlError> {
        for says in self.host_level.take_said() {
            match says {
                HostSays::Given(Given { instance, output }) => match output {
                    Output::Log(level, line) => {
                        say(self.model.plugins.instance_name(instance), level, &line);
                    }
                    Output::Request(request) => self.note_request(instance, request),
                    Output::Message(bytes) => {
                        self.workers.tell(|| PluginCommand::Message(instance, bytes.clone()))?;
                    }
                    // A host companion is not given the capability.
                    Output::Packet { .. } => {}
                },
                HostSays::Failed(failure) => {
                    self.note_failure(&failure, None);
                    let Failure { instance, fault, health } = failure;
                    let name = self.model.plugins.instance_name(instance);
                    let health = health.name();
                    tracing::warn!(
                        instance = name,
                        kind = fault.kind,
                        health,
                        "its host companion failed: {}",
                        fault.text
                    );
                }
            }
        }
        Ok(())
    }

    fn note_request(&mut self, instance: InstanceId, request: Request) {
        if self.requests.len() < MOST_REQUESTS {
            let instance = self.model.plugins.instance_name(instance).to_owned();
            self.requests.push_back((instance, request));
        }
    }

    fn resolve(&mut self, port: PortId, address: std::net::IpAddr) -> Result<(), ControlError> {
        if let Some(device) = self.own_device(port) {
            let change = NeighbourChange { port, address, state: NeighbourKnowledge::Wanted };
            return self.workers.owner(device).tell(NeighbourCommand::Set(vec![change]));
        }
        let (Some(device), Some(mirror)) = (self.kernel.get(&port), &self.mirror) else { return Ok(()) };
        let ifindex = device.ifindex;
        let known = mirror.state().neighbour(ifindex, address).copied();
        if let Some(change) = knowledge(port, address, known.as_ref())
            && matches!(change.state, NeighbourKnowledge::Known(_))
        {
            return self.workers.tell(|| NeighbourCommand::Set(vec![change]));
        }
        if let Some(actions) = &mut self.actions
            && let Err(error) = actions.resolve(ifindex, address)
        {
            tracing::debug!(%address, "the kernel does not resolve: {error}");
            let state = NeighbourKnowledge::Failed;
            let failed = NeighbourChange { port, address, state };
            return self.workers.tell(|| NeighbourCommand::Set(vec![failed]));
        }
        Ok(())
    }

    /// The device of a port that has no kernel to find out about neighbours.
    fn own_device(&self, port: PortId) -> Option<DeviceId> {
        let plan = self.model.ports.iter().find(|plan| plan.id == port)?;
        (!plan.is_kernel()).then_some(plan.settings.device)
    }

    /// Links the tables of gates anew where filters have changed.
    fn link_gates(&mut self) -> Result<(), ControlError> {
        for command in links(&self.model.plugins, &mut self.tables) {
            self.workers.tell(command)?;
        }
        Ok(())
    }

    /// The neighbours that are in use, piece by piece, so that no worker is long away for them.
    fn used_neighbours(&mut self) -> Result<HashSet<(PortId, IpAddr)>, ControlError> {
        let mut used = HashSet::new();
        for _ in 0..MOST_PIECES {
            let pieces = self.workers.ask(NeighbourCommand::TakeUsed)?;
            let more = pieces.iter().any(|piece| piece.more);
            used.extend(pieces.into_iter().flat_map(|piece| piece.used));
            if !more {
                break;
            }
        }
        Ok(used)
    }

    /// Tells the kernel which neighbours are in use: it sees no traffic to them, and would forget them.
    fn refresh_neighbours(&mut self) -> Result<(), ControlError> {
        let used = self.used_neighbours()?;
        for (port, address) in &used {
            if let Some(device) = self.own_device(*port) {
                let state = NeighbourKnowledge::Used;
                let change = NeighbourChange { port: *port, address: *address, state };
                self.workers.owner(device).tell(NeighbourCommand::Set(vec![change]))?;
            }
        }
        let (Some(mirror), Some(actions)) = (&self.mirror, &mut self.actions) else { return Ok(()) };
        for (port, address) in used {
            let Some(device) = self.kernel.get(&port) else { continue };
            let stale = mirror
                .state()
                .neighbour(device.ifindex, address)
                .is_none_or(|neighbour| neighbour.state == NeighbourState::Stale);
            if stale {
                // The next round asks again.
                let _ = actions.refresh(device.ifindex, address);
            }
        }
        Ok(())
    }
}

/// What the worker is told of a neighbour; nothing while the kernel is still asking.
fn knowledge(
    port: PortId,
    address: std::net::IpAddr,
    neighbour: Option<&HostNeighbour>,
) -> Option<NeighbourChange> {
    let state = match neighbour {
        None => NeighbourKnowledge::Forgotten,
        Some(HostNeighbour { state: NeighbourState::Failed, .. }) => NeighbourKnowledge::Failed,
        Some(HostNeighbour { state, mac: Some(mac), .. }) if state.valid() => {
            NeighbourKnowledge::Known(MacAddr(*mac))
        }
        Some(_) => return None,
    };
    Some(NeighbourChange { port, address, state })
}
