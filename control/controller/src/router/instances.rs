//! Creates, configures and frees instances.

use millrace_config::{Instance as NewInstance, Service};
use millrace_plugin::Inheritance;
use millrace_plugin_abi::Instance;
use serde_json::{Map, Value};

use super::Inner;
use crate::ControlError;
use crate::admission::services::{self, Demand};
use crate::flows::placement::tell_placements;
use crate::model::Model;
use crate::model::placements::forget_instance;
use crate::plugins::quarantine::Freed;
use crate::plugins::upgrade::{handed_on, succeed_all};
use crate::view::InstanceView;

impl Inner {
    /// Creates an instance, at the level of its service if it has one.
    pub fn create_instance(&mut self, new: &NewInstance) -> Result<InstanceView, ControlError> {
        let (plugin, name, settings): (&str, &str, _) = (&new.plugin, &new.name, &new.settings);
        let companion = host_companion_to_be(&self.model, plugin, name, settings)?;
        let placements = self.model.placements.clone();
        let decide = |service| {
            let plugin = self.model.plugins.plugin_named(plugin)?;
            let demand = Demand { instance: name, plugin: &*plugin, service };
            services::decide(&self.model, demand, self.offload.why_no_cache())
        };
        let decided = new.service.map(decide).transpose()?;
        let changes = self.model.create_instance(plugin, name, settings.clone())?;
        let id = self.model.plugins.instance(name)?;
        self.plugins.host_level.put(id, companion, (0, true))?;
        self.supervision.tell_names(&self.model.plugins, &self.workers);
        let moved = decided.is_some_and(|decision| decision.carry_out(&mut self.model.placements));
        if let Err(error) = self.gates().tell(changes) {
            // A worker that doesn't answer still creates the instance when it resumes, so the instance stays
            // in the model.
            if !error.is_failure() {
                self.model.placements = placements;
                self.model.plugins.free_instance(name)?;
                self.plugins.host_level.remove(id);
                self.supervision.tell_names(&self.model.plugins, &self.workers);
            }
            return Err(error);
        }
        self.offload.load_variant(id, &self.model, &mut self.workers)?;
        if moved {
            tell_placements(&self.model, &mut self.offload, &mut self.workers)?;
        }
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
        let (successors, settings) =
            plugins.instance_registry().with_settings(name, settings, self.workers.len())?;
        let (id, maps) = (successors.id, successors.maps.clone());
        let companion = match plugins.is_held(id) {
            true => None,
            false => plugins.instance_registry().host_companion(&*plugin, &settings)?,
        };
        let succeeded =
            succeed_all(&mut self.workers, vec![successors], Inheritance::Tried, (version, version));
        // A worker that does not answer still switches to the new instance when it resumes. So the model gets
        // the new settings.
        if succeeded.as_ref().err().is_none_or(ControlError::is_failure) {
            self.model.plugins.instance_registry_mut().note_settings(id, settings);
            self.model.plugins.instance_registry_mut().note_maps(id, maps);
        }
        succeeded?;
        if companion.is_some() {
            self.plugins.host_level.put(id, companion, handed_on(&*plugin, &*plugin))?;
        }
        self.plugins.find_instance(name, &self.model, &self.offload, &mut self.workers)
    }

    pub fn free_instance(&mut self, name: &str, freed: Freed) -> Result<InstanceView, ControlError> {
        let id = self.model.plugins.instance(name)?;
        let view = self.plugins.find_instance(name, &self.model, &self.offload, &mut self.workers)?;
        self.quarantine().free(id, name, freed)?;
        let changes = self.model.plugins.free_instance(name)?;
        self.plugins.host_level.remove(id);
        self.gates().tell(changes)?;
        self.offload.unload_variant(id, &mut self.workers)?;
        self.model.placements.remove_service(name);
        // While a configuration is being applied, its own changes set the placements, so they are left alone
        // here.
        if self.settings.unless_applying().is_ok() {
            forget_instance(&mut self.model.placements, name);
        }
        self.supervision.tell_names(&self.model.plugins, &self.workers);
        Ok(view)
    }
}

/// Sets the declared load and level of an instance, and moves the instance to its level while packets pass.
///
/// # Errors
/// The errors of [`services::decide`]. Nothing has changed then.
pub(crate) fn set_service(
    inner: &mut Inner,
    name: &str,
    service: Option<Service>,
) -> Result<InstanceView, ControlError> {
    let Inner { model, offload, workers, plugins, .. } = inner;
    model.plugins.instance(name)?;
    let before = model.placements.clone();
    if services::place(model, name, service, offload.why_no_cache())?
        && let Err(error) = tell_placements(model, offload, workers)
    {
        model.placements = before;
        return Err(error);
    }
    plugins.find_instance(name, model, offload, workers)
}

/// Creates the host companion for a new instance. Returns `None` if the instance starts in quarantine, or its
/// plugin has no companion.
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
    Ok(model.plugins.instance_registry().host_companion(&*known, settings)?)
}
