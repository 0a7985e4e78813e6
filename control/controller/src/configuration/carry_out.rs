//! Makes changes of the running configuration one after another. If a change fails, undoes the earlier
//! changes.

mod principals;

use millrace_config::{Admission, Change, Neighbour, Port, Scheduler, Service, Together};
use millrace_pipeline::{
    Command, GateTables, NeighbourChange, NeighbourCommand, NeighbourKnowledge, Options,
};
use millrace_plugin::BindingId;
use serde_json::{Map, Value};

use super::removals::check_removals;
use super::{Failed, Transaction, undone};
use crate::background::detached;
use crate::error::Steps;
use crate::filters::bindings::{PlannedBindings, bind_again, bindings_of};
use crate::filters::gates::Gates;
use crate::filters::pinned;
use crate::flows::placement::tell_placements;
use crate::model::placements::{Placed, PlacedService};
use crate::model::principals::Owners;
use crate::model::running::gate_table;
use crate::model::schedulers::changes::Leftovers;
use crate::model::{Model, options, table_kind};
use crate::plugins::enter_plugin;
use crate::plugins::load::report_loaded;
use crate::ports::control_plane::limits_of;
use crate::router::instances::{obey_allowances, set_service, tell_levels};
use crate::router::{Inner, Router};
use crate::routes::configured::Refused;
use crate::settings::Progress;
use crate::workers::Workers;
use crate::{ControlError, NewPlugin};

/// Maximum number of binding changes in one worker command: a longer command delays packets.
const BINDINGS_TOGETHER: usize = 64;
/// Maximum number of route changes between two yields to other tasks.
const ROUTES_TOGETHER: usize = 2048;

/// Result of a sequence of changes that stopped early.
struct Stopped {
    /// Number of changes in force at the start of the sequence. The failed change counts too if a worker did
    /// not answer.
    made: usize,
    /// Index of the failed change, counted from 0.
    step: usize,
    error: ControlError,
}

impl Router {
    /// Makes a planned list of changes: all of them or none. `plan` returns the changes and a value for
    /// `answer`. After the changes, `answer` gets this value and makes the result, before other transactions
    /// may start. Dropping the returned future doesn't stop the work. Waits while another such list is made.
    ///
    /// # Errors
    /// Returns the error of `plan`, the reason why a change failed, or the error of `answer`. Nothing has
    /// changed then. A worker that doesn't answer makes the changes when it resumes, and undoes them at once.
    pub(crate) async fn change<P: Send + 'static, A: Send + 'static>(
        &self,
        plan: impl FnOnce(&mut Inner) -> Result<(Vec<Change>, P), ControlError> + Send + 'static,
        answer: impl FnOnce(&mut Inner, P) -> Result<A, ControlError> + Send + 'static,
    ) -> Result<A, ControlError> {
        let answer = |router: Self, planned| async move { answer(&mut router.lock(), planned) };
        self.change_and_ask(plan, answer).await
    }

    /// Makes a planned list of changes like [`change`](Self::change). `answer` may wait.
    pub(crate) async fn change_and_ask<P, A, F>(
        &self,
        plan: impl FnOnce(&mut Inner) -> Result<(Vec<Change>, P), ControlError> + Send + 'static,
        answer: impl FnOnce(Self, P) -> F + Send + 'static,
    ) -> Result<A, ControlError>
    where
        P: Send + 'static,
        A: Send + 'static,
        F: Future<Output = Result<A, ControlError>> + Send + 'static,
    {
        let router = self.clone();
        let work = async move {
            let _turn = router.0.turn.lock().await;
            let transaction = Transaction::begin_now(&router)?;
            let planned = plan(&mut router.lock());
            let (changes, planned) = planned.map_err(|error| undone(error, &[]))?;
            transaction.make(&changes).await.map_err(Failed::into_error)?;
            match answer(router.clone(), planned).await {
                Ok(answer) => Ok(answer),
                Err(error) => Err(undone(error, &transaction.unmake(&changes).await)),
            }
        };
        detached("make the changes", work).await
    }
}

impl Transaction {
    /// Makes all of these changes, or none.
    pub(super) async fn make(&self, changes: &[Change]) -> Result<(), Failed> {
        // Before the first change: a binding that ends and comes back lets packets pass its instance by meanwhile.
        let checked = check_removals(&self.0.lock().model, changes);
        let stopped = match checked {
            Ok(()) => self.make_until_refused(changes, Refused::IsError).await,
            Err((step, error)) => Err(Stopped { made: 0, step, error }),
        };
        let Err(Stopped { made, step, error }) = stopped else {
            return Ok(());
        };
        Err(Failed { step, made, error, remains: self.unmake(&changes[..made]).await })
    }

    /// Undoes changes, the last first. Returns the changes that could not be undone.
    pub(super) async fn unmake(&self, changes: &[Change]) -> Vec<String> {
        let mut remains =
            self.make_what_can_be(changes.iter().rev().cloned().map(Change::inverse).collect()).await;
        remains.extend(move_services_back(&mut self.0.lock(), &self.1));
        remains
    }

    /// Makes all changes of a rollback that can be made, and returns the failed ones. If the kernel refuses a
    /// route, the route stays configured, and control offers it to the kernel again later. A change that a
    /// worker doesn't answer has not failed: the worker makes it when it resumes.
    pub(super) async fn make_what_can_be(&self, mut back: Vec<Change>) -> Vec<String> {
        let mut remains = Vec::new();
        loop {
            let stopped = self.make_until_refused(&back, Refused::IsWanted).await;
            let Err(Stopped { made, step, error }) = stopped else {
                return remains;
            };
            let problem = format!("{}: {error}", back[step]);
            if self.0.lock().settings.ending {
                // When the router ends, it removes its kernel state anyway.
                return vec![problem];
            }
            if made > step && matches!(error, ControlError::Silent(_)) {
                tracing::warn!("a change is undone later: {problem}");
            } else {
                tracing::error!("a change could not be undone: {problem}");
                remains.push(problem);
            }
            back.drain(..=step);
            if back.is_empty() {
                return remains;
            }
        }
    }

    /// Makes changes in order, and stops at the first failure.
    async fn make_until_refused(&self, changes: &[Change], refused: Refused) -> Result<(), Stopped> {
        let mut at = 0;
        if !changes.is_empty() {
            self.0.lock().settings.applying = Some(Progress { made: 0, of: changes.len() });
        }
        while at < changes.len() {
            if let Err(error) = self.0.lock().settings.unless_ending() {
                return Err(Stopped { made: at, step: at, error });
            }
            let group = group(&changes[at..]);
            let (made, outcome) = match group[0].together() {
                Together::Bindings => self.0.lock().change_bindings(group),
                Together::Routes => self.0.change_routes(group, refused).await,
                Together::Alone => self.make_alone(&group[0]).await,
            };
            if let Err(error) = outcome {
                return Err(Stopped { made: at + made, step: at + made.min(group.len() - 1), error });
            }
            at += made;
            self.0.lock().settings.applying = Some(Progress { made: at, of: changes.len() });
            // A single change lets no other task in between.
            if at < changes.len() {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Makes a single change. Returns 1 if the change is in force, else 0. If a worker did not answer, the
    /// change counts as in force, so that the caller undoes it.
    async fn make_alone(&self, change: &Change) -> (usize, Result<(), ControlError>) {
        match self.make_one(change).await {
            Ok(()) => (1, Ok(())),
            Err(error) => {
                let inner = self.0.lock();
                let stands = error.is_failure() && stands(&inner.model, &inner.tables, change);
                (usize::from(stands), Err(error))
            }
        }
    }

    async fn make_one(&self, change: &Change) -> Result<(), ControlError> {
        match change {
            Change::AddPlugin(plugin) => {
                let new = NewPlugin::configured(plugin);
                let loaded = self.0.read_plugin(&new, None).await;
                let entered = loaded.and_then(|loaded| enter_plugin(&mut self.0.lock().model, loaded, &new));
                report_loaded(self.0.events(), &new, &entered);
                entered.map(drop)
            }
            other => self.0.lock().make_one(other),
        }
    }
}

/// Returns the changes at the start of the list that are made together: bindings, routes, or a single other
/// change.
fn group(changes: &[Change]) -> &[Change] {
    let (kind, most) = match changes[0].together() {
        Together::Bindings => (Together::Bindings, BINDINGS_TOGETHER),
        Together::Routes => (Together::Routes, ROUTES_TOGETHER),
        Together::Alone => return &changes[..1],
    };
    let alike = changes.iter().take_while(|change| change.together() == kind).count();
    let mut end = alike.min(most);
    // A change and its replacement stay in one group.
    while end < alike && changes[end - 1].is_followed_by(&changes[end]) {
        end += 1;
    }
    &changes[..end]
}

/// Whether the model contains a change that failed. It does if the model was changed before the failure.
fn stands(model: &Model, tables: &GateTables, change: &Change) -> bool {
    let plugins = &model.plugins;
    let port = |name: &str| model.ports.iter().map(|plan| &plan.config).find(|port| *port.name == *name);
    let live = |port: &Port| (port.reverse_path, port.input_weight, port.output_weight, port.address.clone());
    match change {
        Change::Router { to, .. } => model.router == **to,
        Change::ControlPlane { to, .. } => model.control_plane == **to,
        Change::Admission { to, .. } => model.admission == *to,
        Change::SetPort { to, .. } => port(&to.name).is_some_and(|port| live(port) == live(to)),
        Change::AddNeighbour(neighbour) => model.neighbours.contains(neighbour),
        Change::RemoveNeighbour(neighbour) => !model.neighbours.contains(neighbour),
        Change::AddPrincipal(to) => model.principals.contains(to),
        Change::SetPrincipal { to, .. } => model.principals.contains(to),
        Change::RemovePrincipal(principal) | Change::ReleasePrincipal(principal) => {
            !model.principals.contains(principal)
        }
        Change::AddInstance(instance) => plugins.instance(&instance.name).is_ok(),
        Change::RemoveInstance(instance) => plugins.instance(&instance.name).is_err(),
        Change::SetScheduler { port: name, to, .. } => {
            let none = Scheduler::default();
            let id = model.port(name).map(|plan| plan.id);
            let now = id.ok().and_then(|id| model.schedulers.configured(id)).unwrap_or_default();
            now == *to.as_deref().unwrap_or(&none)
        }
        Change::Place { to, .. } => {
            model.placements.pinned.iter().eq(&to.iter().map(Placed::of).collect::<Vec<_>>())
        }
        Change::SetInstance { to, .. } => {
            let id = plugins.instance(&to.name).ok();
            id.and_then(|id| plugins.instance_registry().settings_of(id))
                .is_some_and(|settings| *settings == to.settings)
        }
        Change::SetService { instance, to, .. } => {
            model.placements.service(instance).map(|placed| &placed.service) == to.as_ref()
        }
        Change::AddGate(gate) => plugins.gate(&gate.name).is_ok(),
        Change::RemoveGate(gate) => plugins.gate(&gate.name).is_err(),
        Change::SetGate { gate, to, .. } => {
            plugins.gate(gate).is_ok_and(|gate| gate_table(gate.id, tables) == *to)
        }
        // Loading a plugin concerns control alone.
        Change::AddPlugin(_) | Change::RemovePlugin(_) => false,
        // These changes are made in groups; `change_bindings` and `change_routes` return how many they made.
        Change::Bind(_)
        | Change::Unbind(_)
        | Change::AddFilter(_)
        | Change::RemoveFilter(_)
        | Change::AddRoute(_)
        | Change::RemoveRoute(_)
        | Change::SetRoute { .. } => false,
    }
}

/// Sets the router-wide settings in the model, and the worker options derived from them.
fn set_router(settings: &millrace_config::Router, model: &mut Model) {
    model.router = settings.clone();
    let control_plane = model.options.control_plane;
    model.options = Options { control_plane, ..options(settings, model.options.instances) };
}

/// Sets what may be promised. Services obey changed allowances.
fn set_admission(inner: &mut Inner, to: &Admission) -> Result<(), ControlError> {
    let before = std::mem::replace(&mut inner.model.admission, to.clone());
    match before.allowance == to.allowance {
        true => Ok(()),
        false => obey_allowances(inner),
    }
}

/// Moves services back that a transaction has moved to make room. Returns the problem if a worker did not
/// carry it out.
fn move_services_back(inner: &mut Inner, before: &[PlacedService]) -> Option<String> {
    if !inner.model.placements.move_back(before) {
        return None;
    }
    match tell_levels(inner) {
        // A worker that does not answer makes the change when it resumes.
        Ok(()) | Err(ControlError::Silent(_)) => None,
        Err(error) => Some(format!("the levels of moved instances: {error}")),
    }
}

/// Sends the model's options to the workers, and waits until the options are in force.
fn tell_options(model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
    workers.tell(|| Command::Options(model.options.clone()))?;
    workers.barrier()
}

/// Sends a change of a neighbour to the workers, and waits until the workers have carried it out.
fn tell_neighbour(change: NeighbourChange, workers: &mut Workers) -> Result<(), ControlError> {
    workers.tell(|| NeighbourCommand::Set(vec![change]))?;
    workers.barrier()
}

/// Sets the declared load, level and worker of an instance. For another worker, or when the service gets or loses its
/// principal, binds the instance again.
fn move_service(inner: &mut Inner, instance: &str, to: Option<Service>) -> Result<(), ControlError> {
    let is_moved = pinned::check_move(&inner.model, instance, to)?;
    let principal = Owners(&inner.model).of_service(instance);
    let mut steps = Steps::default();
    steps.note(set_service(inner, instance, to))?;
    inner.model.principal_ids.add_services(&inner.model.placements.services);
    steps.note(inner.tell_shares())?;
    let again: Vec<BindingId> = match is_moved {
        true => bindings_of(&inner.model, instance)?,
        false if principal != Owners(&inner.model).of_service(instance) => {
            Owners(&inner.model).wrongly_paid()
        }
        false => Vec::new(),
    };
    let again: Vec<Change> = again.into_iter().flat_map(|id| bind_again(&inner.model, id)).collect();
    for group in again.chunks(BINDINGS_TOGETHER) {
        steps.note(inner.change_bindings(group).1)?;
    }
    // Packets that wait for the principal of a service have another payer by now.
    if inner.model.principal_ids.keep_services(&inner.model.placements.services) {
        steps.note(inner.tell_shares())?;
    }
    steps.end()
}

impl Inner {
    /// Makes a change other than a group of bindings or routes.
    fn make_one(&mut self, change: &Change) -> Result<(), ControlError> {
        match change {
            Change::Router { to, .. } => {
                set_router(to, &mut self.model);
                let mut steps = Steps::default();
                steps.note(self.tell_shares())?;
                steps.note(tell_options(&self.model, &mut self.workers))?;
                steps.end()
            }
            Change::ControlPlane { to, .. } => {
                self.model.control_plane = (**to).clone();
                self.model.options.control_plane = limits_of(to);
                self.devices.police(&self.model.options.control_plane)?;
                tell_options(&self.model, &mut self.workers)
            }
            Change::Admission { to, .. } => set_admission(self, to),
            Change::SetPort { to, .. } => self.set_port(to),
            Change::SetScheduler { port, from, to, heir } => {
                let none = Scheduler::default();
                let (from, to) = (from.as_deref().unwrap_or(&none), to.as_deref().unwrap_or(&none));
                self.change_scheduler(port, Leftovers::to(heir.of(from, to)), Some(to))
            }
            Change::Place { to, .. } => {
                self.model.placements.pinned = to.iter().map(Placed::of).collect();
                tell_placements(&self.model, &mut self.offload, &mut self.workers)
            }
            Change::AddPrincipal(_)
            | Change::RemovePrincipal(_)
            | Change::ReleasePrincipal(_)
            | Change::SetPrincipal { .. } => self.change_principals(change),
            Change::AddNeighbour(neighbour) => self.add_neighbour(neighbour),
            Change::RemoveNeighbour(neighbour) => self.remove_neighbour(neighbour),
            Change::RemovePlugin(plugin) => {
                let file = plugin.file.display().to_string();
                self.plugins.unload(&file, &mut self.model, &self.observation.events).map(drop)
            }
            Change::AddGate(gate) => {
                let position = gate.position.as_ref().map_or("", |position| position.written());
                let mut steps = Steps::default();
                steps.note(self.gates().create(&gate.name, position))?;
                steps.note(self.gates().set_table(&gate.name, table_kind(gate.table)))?;
                steps.end()
            }
            Change::RemoveGate(gate) => self.gates().remove(&gate.name),
            Change::SetGate { gate, to, .. } => self.gates().set_table(gate, table_kind(*to)),
            Change::AddInstance(new) => self.create_instance(new),
            Change::SetService { instance, to, .. } => move_service(self, instance, *to),
            Change::RemoveInstance(instance) => {
                // Undo and rollback run no code that is in quarantine.
                self.free_instance(&instance.name)
            }
            Change::SetInstance { from, to } => self.configure_instance(&to.name, &from.settings_to(to)),
            other => Err(ControlError::System(format!("internal error: no handler for `{other}`"))),
        }
    }

    /// Makes changes of bindings and filters, after the workers have the shares of the principals that pay
    /// for them. Returns the number of changes made, and the reason for a failure.
    fn change_bindings(&mut self, group: &[Change]) -> (usize, Result<(), ControlError>) {
        let Self { model, tables, workers, principals, .. } = self;
        let PlannedBindings { made, changes, outcome } = PlannedBindings::of(model, group);
        let shares = principals.shares.follow(model, workers);
        // The model has the changes in any case.
        let told = shares.and(Gates { model, tables, workers }.tell_and_wait(changes));
        self.principals.place_plugins(&self.model, self.plugins.loader.process_groups());
        (made, told.and(outcome))
    }

    /// Gives the workers the shares of all principals, and puts plugin processes into their groups.
    pub(crate) fn tell_shares(&mut self) -> Result<(), ControlError> {
        self.principals.place_plugins(&self.model, self.plugins.loader.process_groups());
        self.principals.tell(&self.model, &mut self.workers)
    }

    fn add_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), ControlError> {
        let known = self.model.known_for_good(neighbour)?;
        self.model.neighbours.push(neighbour.clone());
        tell_neighbour(known, &mut self.workers)
    }

    fn remove_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), ControlError> {
        let known = self.model.known_for_good(neighbour)?;
        let forgotten = NeighbourChange { state: NeighbourKnowledge::Forgotten, ..known };
        self.model.neighbours.retain(|one| one != neighbour);
        tell_neighbour(forgotten, &mut self.workers)
    }

    /// Gives an instance its settings from a configuration. Exception: if the instance belongs to a shared
    /// object and is in quarantine for faults, it gets the settings when it is released. A rollback may
    /// happen automatically, so a change of configuration must start no code in quarantine.
    ///
    /// # Errors
    /// The errors of [`set_instance`](Self::set_instance).
    fn configure_instance(&mut self, name: &str, settings: &Map<String, Value>) -> Result<(), ControlError> {
        if !self.quarantine().waits_for_release(name)? {
            return self.set_instance(name, settings);
        }
        let id = self.model.plugins.instance(name)?;
        let (_, settings) = self.model.plugins.instance_registry().with_settings(name, settings, 0)?;
        self.model.plugins.instance_registry_mut().note_settings(id, settings);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
