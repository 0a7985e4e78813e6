//! Creates, configures and frees instances.

use std::collections::BTreeMap;

use millrace_config::{Instance as NewInstance, Service};
use millrace_pipeline::Snapshot;
use millrace_plugin::Inheritance;
use millrace_plugin_abi::Instance;
use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::Inner;
use crate::ControlError;
use crate::admission::services::loads::{Reason, Work, note_move};
use crate::admission::services::{self, Demand};
use crate::error::Steps;
use crate::flows::placement::tell_placements;
use crate::model::Model;
use crate::model::placements::Owner;
use crate::plugins::upgrade::{Late, handed_on, succeed_all};
use crate::workers::ask::Ask;
use crate::workers::commands::connections_at_worker;

impl Inner {
    /// Creates an instance at control and at the workers, at the level of its service if it has one.
    pub fn create_instance(&mut self, new: &NewInstance) -> Result<(), ControlError> {
        let (plugin, name, settings): (&str, &str, _) = (&new.plugin, &new.name, &new.settings);
        let companion = host_companion_to_be(&self.model, plugin, name, settings)?;
        let placements = self.model.placements.clone();
        let decide = |service| {
            let plugin = self.model.plugins.plugin_named(plugin)?;
            let owner = Owner::of(new);
            let demand = Demand::of(name, &*plugin, service).owned_by(owner.as_ref());
            services::decide(&self.model, demand, self.offload.why_no_cache())
        };
        let decided = new.service.map(decide).transpose()?;
        let changes = self.model.create_instance(plugin, name, settings.clone())?;
        let id = self.model.plugins.instance(name)?;
        self.model.placements.own(new);
        self.plugins.host_level.put(id, companion, (0, true))?;
        self.supervision.tell_names(&self.model.plugins, &self.workers);
        let moved = decided.is_some_and(|decision| decision.carry_out(&mut self.model.placements));
        let mut steps = Steps::default();
        let told = self.gates().tell_and_wait(changes);
        if let Err(error) = steps.note(told) {
            if !error.is_failure() {
                self.model.placements = placements;
                self.model.plugins.free_instance(name)?;
                self.plugins.host_level.remove(id);
                self.supervision.tell_names(&self.model.plugins, &self.workers);
            }
            return Err(error);
        }
        steps.note(self.offload.load_variant(id, &self.model, &mut self.workers))?;
        if moved {
            steps.note(tell_placements(&self.model, &mut self.offload, &mut self.workers))?;
        }
        if new.service.is_some() {
            self.model.principal_ids.add_services(&self.model.placements.services);
            steps.note(self.tell_shares())?;
        }
        steps.end()
    }

    /// Changes settings of an instance, at control and at the workers; `null` removes a setting.
    pub fn set_instance(&mut self, name: &str, settings: &Map<String, Value>) -> Result<(), ControlError> {
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
        let connections = connections_at_worker(&self.model.fixed.connections, self.workers.len());
        let (treatment, versions) = ((Inheritance::Tried, Late::CarryOut), (version, version));
        let succeeded = succeed_all(&mut self.workers, vec![successors], treatment, versions, connections);
        // A worker that does not answer still switches to the new instance when it resumes. So the model gets
        // the new settings. The transaction sets the old ones again.
        if succeeded.as_ref().err().is_none_or(ControlError::is_failure) {
            self.model.plugins.instance_registry_mut().note_settings(id, settings);
            self.model.plugins.instance_registry_mut().note_maps(id, maps);
        }
        succeeded?;
        if companion.is_some() {
            self.plugins.host_level.put(id, companion, handed_on(&*plugin, &*plugin))?;
        }
        Ok(())
    }

    /// Frees an instance at control and at the workers, with its bindings. An instance that is in quarantine and
    /// belongs to a shared object keeps its entry, or gets one; another instance loses its entry.
    pub fn free_instance(&mut self, name: &str) -> Result<(), ControlError> {
        let id = self.model.plugins.instance(name)?;
        let plugin = self.model.plugins.plugin_of(name)?.name();
        let is_kept = self.quarantine().keep(id, name)?;
        let changes = self.model.plugins.free_instance(name)?;
        self.plugins.host_level.remove(id);
        self.plugins.late_releases.forget(id);
        self.model.placements.remove_instance(name);
        self.supervision.tell_names(&self.model.plugins, &self.workers);
        let mut steps = Steps::default();
        let told = self.gates().tell_and_wait(changes);
        steps.note(told)?;
        if self.model.principal_ids.keep_services(&self.model.placements.services) {
            steps.note(self.tell_shares())?;
        }
        steps.note(self.offload.unload_variant(id, &mut self.workers))?;
        steps.end()?;
        match is_kept {
            true => Ok(()),
            false => self.quarantine().forget(name, plugin),
        }
    }
}

/// Moves services whose load has grown beyond what was admitted, while packets pass. Does nothing while a
/// transaction runs.
///
/// # Errors
/// A worker does not answer.
pub(crate) fn move_grown_services(inner: &mut Inner, counters: &Snapshot) -> Result<(), ControlError> {
    if inner.settings.applying.is_some() || !inner.loads.is_due(&inner.model, counters.at) {
        return Ok(());
    }
    let counts = inner.workers.filter_counts()?;
    let Inner { model, offload, observation, loads, .. } = inner;
    let mut packets = BTreeMap::new();
    for (id, bound) in model.plugins.bindings_by_age() {
        let Some(instance) = bound.action.instance() else { continue };
        *packets.entry(instance).or_default() += counts.of(id).packets;
    }
    let work = |id: InstanceId| {
        let report = counters.instances.iter().find(|(known, _)| *known == id).map(|(_, report)| report);
        Work::of(packets.get(&id).copied().unwrap_or_default(), report)
    };
    let moves = loads.moves(model, work, counters.at, offload.why_no_cache());
    if moves.is_empty() {
        return Ok(());
    }
    for placed in moves {
        note_move(&placed, Reason::Load, &observation.events);
        model.placements.put(placed);
    }
    tell_levels(inner)
}

/// Moves services and other instances off the levels that allowances of their owners exclude, while packets pass.
///
/// # Errors
/// A worker does not answer.
pub(crate) fn obey_allowances(inner: &mut Inner) -> Result<(), ControlError> {
    let Inner { model, offload, observation, .. } = inner;
    for placed in services::obey_allowances(model, offload.why_no_cache()) {
        note_move(&placed, Reason::Allowance, &observation.events);
    }
    tell_levels(inner)
}

/// Gives the workers the levels of instances, and the shares of services there.
///
/// # Errors
/// A worker does not answer.
pub(crate) fn tell_levels(inner: &mut Inner) -> Result<(), ControlError> {
    let mut steps = Steps::default();
    steps.note(tell_placements(&inner.model, &mut inner.offload, &mut inner.workers))?;
    steps.note(inner.tell_shares())?;
    steps.end()
}

/// Sets the declared load and level of an instance, and moves the instance to its level while packets pass.
///
/// # Errors
/// The errors of [`services::decide`]. Nothing has changed then.
pub(crate) fn set_service(
    inner: &mut Inner,
    name: &str,
    service: Option<Service>,
) -> Result<(), ControlError> {
    let Inner { model, offload, workers, .. } = inner;
    model.plugins.instance(name)?;
    let before = model.placements.clone();
    if services::place(model, name, service, offload.why_no_cache())?
        && let Err(error) = tell_placements(model, offload, workers)
    {
        // A worker that does not answer still gets the placements when it resumes. So the model has them. The
        // transaction sets the old ones again.
        if !error.is_failure() {
            model.placements = before;
        }
        return Err(error);
    }
    Ok(())
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
