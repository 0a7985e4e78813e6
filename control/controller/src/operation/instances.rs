//! Operations on instances of plugins.

use millrace_config::{
    self as config, Change as ConfigChange, Instance, ObjectRuntime, Role, Service, ServiceLevel,
};
use millrace_pipeline::PluginCommand;
use millrace_plugin_abi::{Message, Plugin, Reply, Runtime};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admission::allowances::{Requester, check};
use crate::admission::services::{Decision, Demand, decide, refuse_placed};
use crate::background::detached;
use crate::model::Model;
use crate::model::placements::{Placed, rename_instance, without_instance};
use crate::model::running::{running_bind, running_instance};
use crate::operation::kinds::{Acting, Action, Change, Changing, Query, Reading};
use crate::operation::upgrade::move_to_runtime;
use crate::operation::{Effect, Operation};
use crate::plugins::host_level::PATIENCE;
use crate::plugins::quarantine::releases_by_freeing;
use crate::request::merge_patch::patched;
use crate::router::Inner;
use crate::view::InstanceView;
use crate::workers::ask::Ask;
use crate::workers::tsc;
use crate::{ControlError, show};

/// Noun for a control message in the texts of refusals.
const MESSAGE: &str = "a control message";

/// Lists all instances.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListInstances;

impl Operation for ListInstances {
    type Answer = Vec<InstanceView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<InstanceView>, ControlError> {
        let mut guard = router.lock();
        let mut inner = guard.seen();
        let snapshot = inner.snapshot()?;
        let (counts, companions) = (inner.workers.filter_counts()?, inner.plugins.host_level.report()?);
        let stays_up = |id| inner.offload.stays_up(id, inner.model);
        let mut views =
            show::instances(&snapshot, &counts, inner.model, &stays_up, &companions, tsc::frequency());
        for view in &mut views {
            let key = format!("instance {}", view.name);
            view.packet_rate = inner.counters.rates.read(&key, view.packets, snapshot.at);
        }
        Ok(views)
    }
}

/// Creates an instance of a plugin.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
// Clients made from the OpenAPI description know the type by this name.
#[schemars(rename = "NewInstance")]
pub struct CreateInstance {
    /// Name of the plugin.
    pub plugin: String,
    /// Name of the instance.
    pub name: String,
    /// Settings of the instance; omitted settings have their defaults.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// Declared load of the instance, and its level; omitted without either.
    #[serde(default)]
    pub service: Option<Service>,
}

impl Operation for CreateInstance {
    type Answer = InstanceView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown plugin, a name in use, an invalid setting, or a load for which no level has
    /// room. For a role below
    /// `admin`, returns [`ControlError::Forbidden`] if the plugin is a shared object and another instance of
    /// it is in quarantine. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<InstanceView, ControlError> {
        let (role, by) = (router.caller().least(), router.caller().requester());
        let plan = move |inner: &mut Inner| {
            inner.quarantine().may_create(&self.plugin, role)?;
            let name = self.name.clone();
            Ok((vec![self.plan(&inner.model, &by)?], name))
        };
        router.change(plan, |inner, name| instance_view(inner, &name)).await
    }
}

impl CreateInstance {
    /// Returns the change, if the user may make it.
    ///
    /// # Errors
    /// Returns an error for an unknown plugin, or what an allowance of the user refuses.
    pub(super) fn plan(self, model: &Model, by: &Requester) -> Result<ConfigChange, ControlError> {
        let Self { plugin, name, settings, service } = self;
        model.plugins.plugin_named(&plugin)?;
        let owner = by.owner_of_instances(&model.admission);
        let instance = Instance {
            plugin: plugin.as_str().into(),
            name: name.as_str().into(),
            settings,
            service,
            owner: owner.as_ref().map(|owner| owner.user.clone()),
            owner_role: owner.and_then(|owner| owner.role),
        };
        refuse_placed(model, &instance.name, instance.service)?;
        let change = ConfigChange::AddInstance(instance);
        check(model, by, std::slice::from_ref(&change))?;
        Ok(change)
    }
}

/// Changes settings of an instance while packets pass through the instance. The instance keeps its state if
/// the plugin can save and restore state.
#[derive(Clone, Debug)]
pub struct SetInstance {
    /// Name of the instance.
    pub name: String,
    /// Settings to change; `null` removes a setting.
    pub settings: Map<String, Value>,
}

impl Operation for SetInstance {
    type Answer = InstanceView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown instance or an invalid setting. Returns [`ControlError::Forbidden`] in
    /// the same cases as [`CreateInstance`]. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<InstanceView, ControlError> {
        let Self { name, settings } = self;
        let role = router.caller().least();
        let plan = move |inner: &mut Inner| {
            inner.quarantine().may_replace(&name, role)?;
            let from = running_instance(&inner.model, &name)?;
            let (_, after) = inner.model.plugins.instance_registry().with_settings(&name, &settings, 0)?;
            let to = config::Instance { settings: after, ..from.clone() };
            let starts = inner.quarantine().waits_for_release(&name)?;
            Ok((vec![config::Change::SetInstance { from, to }], (name, starts)))
        };
        let answer = |inner: &mut Inner, (name, starts): (String, bool)| {
            // The change itself starts no code in quarantine.
            if starts {
                inner.set_instance(&name, &Map::new())?;
            }
            instance_view(inner, &name)
        };
        router.change(plan, answer).await
    }
}

/// Moves an instance to another level, or changes its declared load, while packets pass through the instance. A move
/// between worker and host replaces the instance, and hands its state over.
#[derive(Clone, Debug)]
pub struct MoveInstance {
    /// Name of the instance.
    pub name: String,
    /// Keys of the service to change; `null` restores the default of a key.
    pub changes: Map<String, Value>,
}

impl Operation for MoveInstance {
    type Answer = InstanceView;
    type Kind = Action;
    const EFFECT: Effect = Effect::Forwarding;
    const TAKES_MEMORY: bool = true;
    const NO_INVERSE: &'static str = "another move moves the instance back";

    /// # Errors
    /// Returns an error for an unknown instance, for an invalid key, for a level at which the instance can't run, or
    /// if the level has no room, or if an allowance of the owner excludes the level. Nothing has changed then. Returns [`ControlError::Forbidden`] if the instance moves
    /// between worker and host, or its declared load changes, and the caller's role is below `admin`.
    async fn carry_out(self, acting: &Acting) -> Result<InstanceView, ControlError> {
        let (router, by) = (acting.router(), acting.caller().requester());
        // What would be refused moves no code.
        let PlannedMove { plugin, runtimes, .. } = self.plan(&*router.to_change()?, &by)?;
        let Self { name, changes } = self;
        if runtimes.is_some() {
            acting.caller().may(Role::Admin)?;
        }
        let router = router.clone();
        let moving = async move {
            if let Some((_, to)) = runtimes {
                move_to_runtime(&router, plugin, to).await?;
            }
            // Another client may have changed other keys of the service meanwhile.
            let plan =
                move |inner: &mut Inner| Ok((vec![plan_move(&inner.model, &by, &name, &changes)?.0], name));
            let moved = router.change(plan, |inner, name| instance_view(inner, &name)).await;
            match runtimes {
                Some((from, _)) => or_back(moved, plugin, move_to_runtime(&router, plugin, from)).await,
                None => moved,
            }
        };
        // A client that leaves doesn't end a move between its two halves.
        detached("move the instance", moving).await
    }
}

/// Returns the outcome of a move. If the move has failed, first carries out `back`, which returns the plugin to its
/// runtime.
///
/// # Errors
/// The error of the move. If `back` fails, too, both errors.
pub(super) async fn or_back<T>(
    moved: Result<T, ControlError>,
    plugin: &str,
    back: impl Future<Output = Result<(), ControlError>>,
) -> Result<T, ControlError> {
    match moved {
        Ok(moved) => Ok(moved),
        Err(error) => match back.await {
            Ok(()) => Err(error),
            Err(second) => Err(ControlError::System(format!(
                "{error}; plugin {plugin} can't return to its runtime either: {second}"
            ))),
        },
    }
}

/// Planned move of an instance.
pub(super) struct PlannedMove {
    /// Change of the load and level.
    pub change: ConfigChange,
    /// Place of the instance after the move, and the moves that make room for it.
    pub decision: Decision,
    /// Name of the instance's plugin.
    pub plugin: &'static str,
    /// Runtimes of the plugin before and after the move; `None` if the runtime stays.
    pub runtimes: Option<(ObjectRuntime, ObjectRuntime)>,
}

impl MoveInstance {
    /// Plans the move, without moving code.
    ///
    /// # Errors
    /// The errors of the operation, except that the role, the file and the instances of the plugin are not checked.
    pub(super) fn plan(&self, inner: &Inner, by: &Requester) -> Result<PlannedMove, ControlError> {
        let Self { name, changes } = self;
        let plugin = inner.model.plugins.plugin_of(name)?;
        let (change, service) = plan_move(&inner.model, by, name, changes)?;
        let runtimes = other_runtime(&inner.model, name, &*plugin, service)?;
        let runtime = match runtimes {
            None => plugin.runtime(),
            Some((_, ObjectRuntime::InProcess)) => Runtime::Trusted,
            Some((_, ObjectRuntime::Process)) => Runtime::Process,
        };
        let demand = Demand { runtime, ..Demand::of(name, &*plugin, service) };
        let decision = decide(&inner.model, demand, inner.offload.why_no_cache())?;
        Ok(PlannedMove { change, decision, plugin: plugin.name(), runtimes })
    }
}

/// Returns the change of the load and level of an instance, if the user may make it, and the new service.
fn plan_move(
    model: &Model,
    by: &Requester,
    name: &str,
    changes: &Map<String, Value>,
) -> Result<(ConfigChange, Service), ControlError> {
    let from = model.placements.service(name).map(|placed| placed.service);
    let service: Service = patched(&from.unwrap_or_default(), changes)?;
    let to = Some(service).filter(|service| *service != Service::default());
    refuse_placed(model, name, to)?;
    let change = ConfigChange::SetService { instance: name.into(), from, to };
    check(model, by, std::slice::from_ref(&change))?;
    Ok((change, service))
}

/// Returns the runtimes of an instance's plugin before and after a move; `None` if the runtime stays.
///
/// # Errors
/// The plugin has other instances, which would move, too.
fn other_runtime(
    model: &Model,
    instance: &str,
    plugin: &dyn Plugin,
    service: Service,
) -> Result<Option<(ObjectRuntime, ObjectRuntime)>, ControlError> {
    let runtimes = match (plugin.runtime(), service.pin()) {
        (Runtime::Process, Some(ServiceLevel::Worker)) => (ObjectRuntime::Process, ObjectRuntime::InProcess),
        (Runtime::Trusted, Some(ServiceLevel::Host)) => (ObjectRuntime::InProcess, ObjectRuntime::Process),
        _ => return Ok(None),
    };
    let names = model.plugins.instance_names().filter(|(.., kind)| *kind == plugin.name());
    let others: Vec<&str> = names.map(|(_, name, _)| name).filter(|name| *name != instance).collect();
    match others.as_slice() {
        [] => Ok(Some(runtimes)),
        others => Err(ControlError::conflict(format!(
            "instance {instance:?} shares its runtime with other instances of plugin {}: {}; free them first",
            plugin.name(),
            others.join(", ")
        ))),
    }
}

/// Renames an instance.
#[derive(Clone, Debug)]
pub struct RenameInstance {
    /// Name of the instance.
    pub name: String,
    /// New name of the instance.
    pub to: String,
}

impl Operation for RenameInstance {
    type Answer = InstanceView;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for an unknown instance, an invalid name, or a name in use. For a role below `admin`,
    /// returns [`ControlError::Forbidden`] in two cases: the new name has a quarantine entry, or the instance
    /// is in quarantine and belongs to a shared object.
    async fn carry_out(self, router: &Changing) -> Result<InstanceView, ControlError> {
        let role = router.caller().least();
        let plan = move |inner: &mut Inner| Ok((Vec::new(), rename(inner, &self.name, &self.to, role)?));
        router.change(plan, |_, view| Ok(view)).await
    }
}

/// Returns the view of an instance.
fn instance_view(inner: &mut Inner, name: &str) -> Result<InstanceView, ControlError> {
    inner.model.plugins.instance(name)?;
    inner.plugins.find_instance(name, &inner.model, &inner.offload, &mut inner.workers)
}

/// Renames an instance. This concerns control alone: workers know no names.
fn rename(inner: &mut Inner, name: &str, to: &str, role: Role) -> Result<InstanceView, ControlError> {
    inner.quarantine().may_rename(name, to, role)?;
    // The view comes first: it is all that workers could fail to answer.
    let view = instance_view(inner, name)?;
    inner.model.plugins.instance_registry_mut().rename(name, to)?;
    let plugin = inner.model.plugins.plugin_of(to)?.name();
    if let Err(error) = inner.model.repository.quarantine_mut().rename(name, plugin, to) {
        inner.model.plugins.instance_registry_mut().rename(to, name)?;
        let what = format!("store the new name {to:?} of the quarantined instance {name:?}");
        return Err(ControlError::system(&what, error));
    }
    rename_instance(&mut inner.model.placements, name, to);
    inner.model.principal_ids.rename_service(name, to);
    inner.supervision.tell_names(&inner.model.plugins, &inner.workers);
    Ok(InstanceView { name: to.to_owned(), ..view })
}

/// Removes the bindings of an instance and frees the instance. If the caller is an admin, also releases the
/// instance from quarantine. For other roles, an instance of a shared object keeps its quarantine entry.
#[derive(Clone, Debug)]
pub struct FreeInstance {
    /// Name of the instance.
    pub name: String,
}

impl Operation for FreeInstance {
    type Answer = InstanceView;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for an unknown instance. For a role below `admin`, returns [`ControlError::Forbidden`] if
    /// the instance has a declared load.
    async fn carry_out(self, router: &Changing) -> Result<InstanceView, ControlError> {
        let releases = releases_by_freeing(router.caller().least());
        let by = router.caller().requester();
        let plan = move |inner: &mut Inner| {
            let view = instance_view(inner, &self.name)?;
            let instance = running_instance(&inner.model, &self.name)?;
            let plugin = inner.model.plugins.plugin_of(&self.name)?.name();
            let id = inner.model.plugins.instance(&self.name)?;
            check(&inner.model, &by, &[config::Change::RemoveInstance(instance.clone())])?;
            let own = inner.model.plugins.bindings_by_age();
            let own = own.filter(|(_, bound)| bound.action.instance() == Some(id)).map(|(_, bound)| bound);
            let unbind = |bound| config::Change::Unbind(running_bind(&inner.model, bound, &self.name));
            let mut changes: Vec<_> = own.map(unbind).collect();
            let written = |placed: &[Placed]| placed.iter().map(Placed::written).collect::<Vec<_>>();
            let from = written(&inner.model.placements.pinned);
            let to = written(&without_instance(&inner.model.placements.pinned, &self.name));
            if from != to {
                changes.push(config::Change::Place { from, to });
            }
            changes.push(config::Change::RemoveInstance(instance));
            Ok((changes, (self.name, plugin, view)))
        };
        let answer = move |inner: &mut Inner, (name, plugin, view): (String, &str, InstanceView)| {
            if releases {
                inner.quarantine().forget(&name, plugin)?;
            }
            Ok(view)
        };
        router.change(plan, answer).await
    }
}

/// Sends an instance a control message and gets its reply.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlInstance {
    /// Name of the instance.
    pub instance: String,
    /// Name of the message.
    pub message: String,
    /// Arguments of the message.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

impl Operation for ControlInstance {
    type Answer = Value;
    type Kind = Action;
    const EFFECT: Effect = Effect::Forwarding;
    const NO_INVERSE: &'static str = "the instance's state is its plugin's";

    /// # Errors
    /// Returns an error for an unknown instance or message, or if the instance refuses the message. For a
    /// role below `admin`, returns [`ControlError::Forbidden`] if the instance is in quarantine and belongs
    /// to a shared object.
    async fn carry_out(self, acting: &Acting) -> Result<Value, ControlError> {
        let Self { instance, message: name, arguments } = self;
        let message = Message { name, arguments };
        let mut inner = acting.router().lock();
        inner.quarantine().may_run(&instance, acting.caller().least(), MESSAGE)?;
        let id = inner.model.plugins.instance_registry().address(&instance, &message)?;
        let replies = inner.workers.ask(|reply| PluginCommand::Control(id, message.clone(), reply))?;
        let absent = || ControlError::System(format!("instance {instance:?} is not running on all workers"));
        let replies: Vec<Vec<Reply>> = replies.into_iter().collect::<Option<_>>().ok_or_else(absent)?;
        let replies: Vec<Value> = replies
            .into_iter()
            .flatten()
            .collect::<Result<_, _>>()
            .map_err(|error| ControlError::invalid(error.to_string()))?;
        Ok(inner.model.plugins.instance_registry().merge_replies(id, &message, replies))
    }
}

/// Sends the host companion of an instance a control message and gets its reply. The companion's call may
/// take one second. The reply comes later if other companions run at the same time.
#[derive(Clone, Debug)]
pub struct ControlHostCompanion {
    /// Name of the instance.
    pub instance: String,
    /// Name of the message.
    pub message: String,
    /// Arguments of the message.
    pub arguments: Map<String, Value>,
}

impl Operation for ControlHostCompanion {
    type Answer = Value;
    type Kind = Action;
    const EFFECT: Effect = Effect::Forwarding;
    const NO_INVERSE: &'static str = "the companion's state is its plugin's";

    /// # Errors
    /// Returns an error for an unknown instance or message, or an instance without a host companion. Also
    /// fails if the companion refuses the message, or doesn't answer within five seconds. Returns
    /// [`ControlError::Forbidden`] in the same cases as [`ControlInstance`].
    async fn carry_out(self, acting: &Acting) -> Result<Value, ControlError> {
        let Self { instance, message: name, arguments } = self;
        let message = Message { name, arguments };
        let reply = {
            let mut inner = acting.router().lock();
            inner.quarantine().may_run(&instance, acting.caller().least(), MESSAGE)?;
            let id = inner.model.plugins.instance_registry().address_host_companion(&instance, &message)?;
            inner.plugins.host_level.control(id, message)?
        };
        let reply = tokio::time::timeout(PATIENCE, reply).await;
        let silent =
            || ControlError::System(format!("the host companion of instance {instance:?} does not answer"));
        let reply = reply.ok().and_then(Result::ok).flatten().ok_or_else(silent)?;
        reply.map_err(|error| ControlError::invalid(error.to_string()))
    }
}
