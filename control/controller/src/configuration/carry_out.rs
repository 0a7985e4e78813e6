//! Makes changes of the running configuration one after the other, and undoes them if one fails.

use millrace_config::{Change, Port, Scheduler, Together};
use millrace_pipeline::{Command, NeighbourChange, NeighbourCommand, NeighbourKnowledge, Options};

use super::Failed;
use super::Progress;
use super::running::gate_table;
use crate::flows::placement::Placed;
use crate::model::{options, table_kind};
use crate::plugins::quarantine::Freed;
use crate::router::{Inner, Router};
use crate::routes::configured::Refused;
use crate::{ControlError, NewPlugin};

/// Maximum number of binding changes in one worker command: a longer command delays packets.
const BINDINGS_TOGETHER: usize = 64;
/// Maximum number of route changes between two yields to other tasks.
const ROUTES_TOGETHER: usize = 2048;

/// Result of a sequence of changes that stopped early.
struct Stopped {
    /// Number of leading changes in force. If the data plane did not answer, the failed change is among them.
    made: usize,
    /// Index of the failed change.
    step: usize,
    error: ControlError,
}

impl Router {
    /// Plans changes, and makes all of them or none. Returns the planner's result. Dropping the returned
    /// future doesn't stop the work.
    ///
    /// # Errors
    /// Returns the errors of the plan, and the reason why a change failed.
    pub(crate) async fn change<R: Send + 'static>(
        &self,
        plan: impl FnOnce(&mut Inner) -> Result<(Vec<Change>, R), ControlError> + Send + 'static,
    ) -> Result<R, ControlError> {
        let router = self.clone();
        let work = tokio::spawn(async move {
            let _turn = router.begin_apply()?;
            let (changes, said) = plan(&mut router.lock())?;
            router.make(&changes).await.map_err(Failed::into_error)?;
            Ok(said)
        });
        work.await.map_err(|error| ControlError::system("make the changes", error))?
    }

    /// Makes all of these changes, or none.
    pub(super) async fn make(&self, changes: &[Change]) -> Result<(), Failed> {
        let stopped = self.make_until_refused(changes, Refused::IsError).await;
        let Err(Stopped { made, step, error }) = stopped else {
            return Ok(());
        };
        Err(Failed { step, stands: made > step, error, remains: self.unmake(&changes[..made]).await })
    }

    /// Undoes changes, the last first. Returns the changes that could not be undone.
    pub(super) async fn unmake(&self, changes: &[Change]) -> Vec<String> {
        self.make_what_can_be(changes.iter().rev().cloned().map(Change::inverse).collect()).await
    }

    /// Makes as many as possible of the changes of a rollback. A route that the kernel refuses stays wanted.
    /// Returns the failed changes.
    pub(super) async fn make_what_can_be(&self, mut back: Vec<Change>) -> Vec<String> {
        let mut remains = Vec::new();
        loop {
            let stopped = self.make_until_refused(&back, Refused::IsWanted).await;
            let Err(Stopped { step, error, .. }) = stopped else {
                return remains;
            };
            let problem = format!("{}: {error}", back[step]);
            if self.lock().settings.ending {
                // The end of the router removes its kernel state anyway.
                return vec![problem];
            }
            tracing::error!("what was changed could not be changed back: {problem}");
            remains.push(problem);
            back.drain(..=step);
            if back.is_empty() {
                return remains;
            }
        }
    }

    /// Makes changes up to the first that fails.
    async fn make_until_refused(&self, changes: &[Change], refused: Refused) -> Result<(), Stopped> {
        let mut at = 0;
        if !changes.is_empty() {
            self.lock().settings.applying = Some(Progress { made: 0, of: changes.len() });
        }
        while at < changes.len() {
            if let Err(error) = self.lock().settings.unless_ending() {
                return Err(Stopped { made: at, step: at, error });
            }
            let group = group(&changes[at..]);
            let (made, outcome) = match group[0].together() {
                Together::Bindings => self.lock().change_bindings(group),
                Together::Routes => self.change_routes(group, refused).await,
                Together::Alone => self.make_alone(&group[0]).await,
            };
            if let Err(error) = outcome {
                return Err(Stopped { made: at + made, step: at + made.min(group.len() - 1), error });
            }
            at += made;
            self.lock().settings.applying = Some(Progress { made: at, of: changes.len() });
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Makes a change. Returns 1 if the change is in force, else 0. A change that the data plane did not
    /// answer counts as in force, and has to be undone.
    async fn make_alone(&self, change: &Change) -> (usize, Result<(), ControlError>) {
        match self.make_one(change).await {
            Ok(()) => (1, Ok(())),
            Err(error) => (usize::from(error.is_failure() && self.lock().stands(change)), Err(error)),
        }
    }

    async fn make_one(&self, change: &Change) -> Result<(), ControlError> {
        match change {
            Change::AddPlugin(plugin) => {
                let path = plugin.file.display().to_string();
                let new = NewPlugin { path, allow_downgrade: plugin.allow_downgrade };
                let loaded = self.read_plugin(&new, None).await;
                let entered = loaded.and_then(|loaded| self.lock().enter_plugin(loaded, &new));
                self.say_loaded(&new, &entered);
                entered.map(drop)
            }
            other => self.lock().make_one(other),
        }
    }
}

/// Returns the leading changes that are made in one group.
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

impl Inner {
    /// Whether a failed change stands in the model anyway, because the failure came after the model changed.
    fn stands(&self, change: &Change) -> bool {
        let plugins = &self.model.plugins;
        let port =
            |name: &str| self.model.ports.iter().map(|plan| &plan.config).find(|port| *port.name == *name);
        let live = |port: &Port| (port.reverse_path, port.input_weight, port.address.clone());
        match change {
            Change::Router { to, .. } => self.model.router == **to,
            Change::ControlPlane { to, .. } => self.model.control_plane == **to,
            Change::SetPort { to, .. } => port(&to.name).is_some_and(|port| live(port) == live(to)),
            Change::AddNeighbour(neighbour) => self.model.neighbours.contains(neighbour),
            Change::RemoveNeighbour(neighbour) => !self.model.neighbours.contains(neighbour),
            Change::AddInstance(instance) => plugins.instance(&instance.name).is_ok(),
            Change::RemoveInstance(instance) => plugins.instance(&instance.name).is_err(),
            Change::SetScheduler { port: name, to, .. } => {
                let none = Scheduler::default();
                let id = self.model.port(name).map(|plan| plan.id);
                let now = id.ok().and_then(|id| self.model.schedulers.of(id)).unwrap_or(&none);
                now == to.as_deref().unwrap_or(&none)
            }
            Change::Place { to, .. } => {
                self.model.placements.iter().eq(&to.iter().map(Placed::of).collect::<Vec<_>>())
            }
            Change::SetInstance { to, .. } => {
                let id = plugins.instance(&to.name).ok();
                id.and_then(|id| plugins.settings_of(id)).is_some_and(|settings| *settings == to.settings)
            }
            Change::AddGate(gate) => plugins.gate(&gate.name).is_ok(),
            Change::RemoveGate(gate) => plugins.gate(&gate.name).is_err(),
            Change::SetGate { gate, to, .. } => {
                plugins.gate(gate).is_ok_and(|gate| gate_table(gate.id, &self.tables) == *to)
            }
            // Plugins concern control alone.
            Change::AddPlugin(_) | Change::RemovePlugin(_) => false,
            // The functions for groups count these changes.
            Change::Bind(_)
            | Change::Unbind(_)
            | Change::AddFilter(_)
            | Change::RemoveFilter(_)
            | Change::AddRoute(_)
            | Change::RemoveRoute(_)
            | Change::SetRoute { .. } => false,
        }
    }

    fn make_one(&mut self, change: &Change) -> Result<(), ControlError> {
        match change {
            Change::Router { to, .. } => {
                self.model.router = (**to).clone();
                self.model.options = Options {
                    control_plane: self.model.options.control_plane,
                    ..options(to, self.model.options.instances)
                };
                self.workers.tell(|| Command::Options(self.model.options.clone()))?;
                self.barrier()
            }
            Change::ControlPlane { to, .. } => {
                self.model.control_plane = (**to).clone();
                self.police_control_plane()
            }
            Change::SetPort { to, .. } => self.set_port(to),
            Change::SetScheduler { port, from, to, heir } => {
                let none = Scheduler::default();
                let (from, to) = (from.as_deref().unwrap_or(&none), to.as_deref().unwrap_or(&none));
                let heir = heir.of(from, to);
                let change = |scheduler: &mut Scheduler| {
                    *scheduler = to.clone();
                    Ok(())
                };
                self.change_scheduler(port, heir, change).map(drop)
            }
            Change::Place { to, .. } => {
                self.model.placements = to.iter().map(Placed::of).collect();
                self.tell_placements()
            }
            Change::AddNeighbour(neighbour) => {
                let known = self.model.known_for_good(neighbour)?;
                self.model.neighbours.push(neighbour.clone());
                self.workers.tell(|| NeighbourCommand::Set(vec![known]))?;
                self.barrier()
            }
            Change::RemoveNeighbour(neighbour) => {
                let known = self.model.known_for_good(neighbour)?;
                let forgotten = NeighbourChange { state: NeighbourKnowledge::Forgotten, ..known };
                self.model.neighbours.retain(|one| one != neighbour);
                self.workers.tell(|| NeighbourCommand::Set(vec![forgotten]))?;
                self.barrier()
            }
            Change::RemovePlugin(plugin) => self.unload_plugin(&plugin.file.display().to_string()).map(drop),
            Change::AddGate(gate) => {
                let position = gate.position.as_ref().map_or("", |position| position.written());
                self.create_gate(&gate.name, position).map(drop)
            }
            Change::RemoveGate(gate) => self.remove_gate(&gate.name).map(drop),
            Change::SetGate { gate, to, .. } => self.set_gate_table(gate, table_kind(*to).name()).map(drop),
            Change::AddInstance(new) => self.create_instance(&new.plugin, &new.name, &new.settings).map(drop),
            Change::RemoveInstance(instance) => {
                // Undo and rollback run no code that is in quarantine.
                self.free_instance(&instance.name, Freed::Held).map(drop)
            }
            Change::SetInstance { from, to } => self.configure_instance(&to.name, &from.settings_to(to)),
            other => Err(ControlError::System(format!("{other} is made elsewhere"))),
        }
    }
}

#[cfg(test)]
mod tests;
