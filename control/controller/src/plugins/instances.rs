//! Instances of plugins: creating, configuring and freeing them, and sending them control messages.

use millrace_config::Role;
use millrace_pipeline::PluginCommand;
use millrace_plugin::Inheritance;
use millrace_plugin_abi::{Instance, Message, Reply};
use serde_json::{Map, Value};

use crate::ControlError;
use crate::model::Model;
use crate::plugins::host_level::PATIENCE;
use crate::plugins::quarantine::Freed;
use crate::plugins::upgrade::{handed_on, succeed_all};
use crate::router::{Inner, Router};
use crate::show;
use crate::view::InstanceView;

/// Noun for a control message in refusals.
const MESSAGE: &str = "a control message";

impl Router {
    /// Returns all instances.
    ///
    /// # Errors
    /// Returns an error if the data plane does not answer.
    pub fn instances(&self) -> Result<Vec<InstanceView>, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.snapshot()?;
        let (counts, slow) = (inner.workers.filter_counts()?, inner.plugins.host_level.report()?);
        let mut views = show::instances(&snapshot, &counts, (&inner.model, &inner.offload), &slow);
        for view in &mut views {
            let key = format!("instance {}", view.name);
            view.packet_rate = inner.counters.rates.read(&key, view.packets, snapshot.at);
        }
        Ok(views)
    }

    /// Creates an instance of a plugin.
    ///
    /// # Errors
    /// Returns an error for an unknown plugin, a name in use, or an invalid setting. Returns
    /// [`ControlError::NeedsAdmin`] for a role below `admin`, if the plugin is a shared object with an
    /// instance in quarantine. Nothing has changed then.
    pub fn create_instance(
        &self,
        plugin: &str,
        name: &str,
        settings: &Map<String, Value>,
        role: Role,
    ) -> Result<InstanceView, ControlError> {
        let mut inner = self.to_change()?;
        inner.quarantine().may_create(plugin, role)?;
        inner.create_instance(plugin, name, settings)
    }

    /// Changes settings of an instance while packets pass through it. The instance keeps its state if its
    /// plugin can save and restore state.
    ///
    /// # Errors
    /// Returns an error for an unknown instance or an invalid setting, and [`ControlError::NeedsAdmin`] as
    /// for [`create_instance`](Self::create_instance). Nothing has changed then.
    pub fn set_instance(
        &self,
        name: &str,
        settings: &Map<String, Value>,
        role: Role,
    ) -> Result<InstanceView, ControlError> {
        let mut inner = self.to_change()?;
        inner.quarantine().may_replace(name, role)?;
        inner.set_instance(name, settings)
    }

    /// Renames an instance.
    ///
    /// # Errors
    /// Returns an error for an unknown instance, and for an invalid name or one in use. Returns
    /// [`ControlError::NeedsAdmin`] for a role below `admin`, if the instance of a shared object or the new
    /// name is in quarantine.
    pub fn rename_instance(&self, name: &str, to: &str, role: Role) -> Result<InstanceView, ControlError> {
        let mut guard = self.to_change()?;
        let inner = &mut *guard;
        inner.quarantine().may_rename(name, to, role)?;
        inner.model.plugins.rename_instance(name, to)?;
        let plugin = inner.model.plugins.plugin_of(to)?.name();
        if let Err(error) = inner.model.repository.quarantine_mut().rename(name, plugin, to) {
            inner.model.plugins.rename_instance(to, name)?;
            return Err(ControlError::system("remember the new name of what is in quarantine", error));
        }
        inner.model.rename_placed_instance(name, to);
        inner.supervision.tell_names(&inner.model.plugins, &inner.workers);
        inner.plugins.find_instance(to, &inner.model, &inner.offload, &mut inner.workers)
    }

    /// Removes the bindings of an instance and frees it. An admin also releases it from quarantine. For other
    /// roles, an instance of a shared object stays in quarantine.
    ///
    /// # Errors
    /// Returns an error for an unknown instance.
    pub fn free_instance(&self, name: &str, role: Role) -> Result<InstanceView, ControlError> {
        self.to_change()?.free_instance(name, Freed::by(role))
    }

    /// Sends an instance a control message and returns its reply.
    ///
    /// # Errors
    /// Returns an error for an unknown instance or message, or if the instance refuses. Returns
    /// [`ControlError::NeedsAdmin`] for a role below `admin` and an instance of a shared object in
    /// quarantine.
    pub fn control(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
        role: Role,
    ) -> Result<Value, ControlError> {
        let message = Message { name: message.to_owned(), arguments: arguments.clone() };
        let mut inner = self.lock();
        inner.quarantine().may_run(instance, role, MESSAGE)?;
        let id = inner.model.plugins.address(instance, &message)?;
        let replies = inner.workers.ask(|reply| PluginCommand::Control(id, message.clone(), reply))?;
        let absent = || ControlError::System(format!("instance {instance:?} is not on the data plane"));
        let replies: Vec<Reply> = replies.into_iter().collect::<Option<_>>().ok_or_else(absent)?;
        let replies: Vec<Value> = replies
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| ControlError::Invalid(error.to_string()))?;
        Ok(inner.model.plugins.merge_replies(id, &message, replies))
    }

    /// Sends the host companion of an instance a control message and returns its reply. The call may take one
    /// second; the reply takes longer while other companions run.
    ///
    /// # Errors
    /// Returns an error for an unknown instance or message, or without a host companion. Also fails if the
    /// companion refuses, or doesn't answer within five seconds. Returns [`ControlError::NeedsAdmin`] as for
    /// [`control`](Self::control).
    pub async fn control_host_companion(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
        role: Role,
    ) -> Result<Value, ControlError> {
        let message = Message { name: message.to_owned(), arguments: arguments.clone() };
        let reply = {
            let mut inner = self.lock();
            inner.quarantine().may_run(instance, role, MESSAGE)?;
            let id = inner.model.plugins.address_host_companion(instance, &message)?;
            inner.plugins.host_level.control(id, message)?
        };
        let reply = tokio::time::timeout(PATIENCE, reply).await;
        let silent =
            || ControlError::System(format!("the host companion of instance {instance:?} does not answer"));
        let reply = reply.ok().and_then(Result::ok).flatten().ok_or_else(silent)?;
        reply.map_err(|error| ControlError::Invalid(error.to_string()))
    }
}

impl Inner {
    pub fn create_instance(
        &mut self,
        plugin: &str,
        name: &str,
        settings: &Map<String, Value>,
    ) -> Result<InstanceView, ControlError> {
        let slow = host_companion_to_be(&self.model, plugin, name, settings)?;
        let changes = self.model.create_instance(plugin, name, settings.clone())?;
        let id = self.model.plugins.instance(name)?;
        self.plugins.host_level.put(id, slow, (0, true))?;
        self.supervision.tell_names(&self.model.plugins, &self.workers);
        self.gates().tell(changes)?;
        self.offload.begin_form(id, &self.model, &mut self.workers)?;
        self.plugins.find_instance(name, &self.model, &self.offload, &mut self.workers)
    }

    pub fn set_instance(
        &mut self,
        name: &str,
        settings: &Map<String, Value>,
    ) -> Result<InstanceView, ControlError> {
        let plugins = &mut self.model.plugins;
        let plugin = plugins.plugin_of(name)?;
        let version = plugin.state_version();
        let (successors, settings) = plugins.with_settings(name, settings, self.workers.len())?;
        let (id, maps) = (successors.id, successors.maps.clone());
        let slow = match plugins.is_held(id) {
            true => None,
            false => plugins.host_companion(&*plugin, &settings)?,
        };
        let succeeded =
            succeed_all(&mut self.workers, vec![successors], Inheritance::Tried, (version, version));
        // A worker that does not answer still switches to the new instance once it continues.
        if succeeded.as_ref().err().is_none_or(ControlError::is_failure) {
            self.model.plugins.note_settings(id, settings);
            self.model.plugins.note_maps(id, maps);
        }
        succeeded?;
        if slow.is_some() {
            self.plugins.host_level.put(id, slow, handed_on(&*plugin, &*plugin))?;
        }
        self.plugins.find_instance(name, &self.model, &self.offload, &mut self.workers)
    }

    pub fn free_instance(&mut self, name: &str, freed: Freed) -> Result<InstanceView, ControlError> {
        let id = self.model.plugins.instance(name)?;
        let view = self.plugins.find_instance(name, &self.model, &self.offload, &mut self.workers)?;
        self.quarantine().free(id, name, freed)?;
        let changes = self.model.plugins.free_instance(name)?;
        self.plugins.host_level.remove(id)?;
        self.gates().tell(changes)?;
        self.offload.end_form(id, &mut self.workers)?;
        // A configuration that is being applied sets the placements itself.
        if self.settings.unless_applying().is_ok() {
            self.model.forget_placed_instance(name);
        }
        self.supervision.tell_names(&self.model.plugins, &self.workers);
        Ok(view)
    }
}

/// Creates the host companion for an instance to be created; `None` if the instance starts in quarantine or
/// its plugin has no companion.
fn host_companion_to_be(
    model: &Model,
    plugin: &str,
    name: &str,
    settings: &Map<String, Value>,
) -> Result<Option<Box<dyn Instance>>, ControlError> {
    if model.repository.quarantine().find(name, plugin).is_some() {
        return Ok(None);
    }
    let known = model.plugins.plugin_named(plugin)?;
    Ok(model.plugins.host_companion(&*known, settings)?)
}
