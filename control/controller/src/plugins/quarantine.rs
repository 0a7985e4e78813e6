//! Quarantine of instances, and their release.

use millrace_config::Role;
use millrace_plugin::Health;
use millrace_plugin_abi::Runtime;
use millrace_repository::Held;
use millrace_units::InstanceId;

use crate::ControlError;
use crate::events::since_1970;
use crate::model::Model;
use crate::observe::Observation;
use crate::view::ReleaseView;
use crate::workers::Workers;

/// Whether a caller with this role releases an instance from quarantine by freeing it. Otherwise, if the instance
/// belongs to a shared object, its entry stays: an instance that is created again under this name does not run.
pub(crate) fn releases_by_freeing(role: Role) -> bool {
    role >= Role::Admin
}

/// Instances in quarantine: at the workers, and as entries on disk.
pub(crate) struct Quarantine<'a> {
    pub(crate) model: &'a mut Model,
    pub(crate) workers: &'a mut Workers,
}

impl Quarantine<'_> {
    /// Returns the names of a plugin's instances that are in quarantine at the workers.
    pub fn of_plugin(&mut self, plugin: &str) -> Result<Vec<String>, ControlError> {
        let reports = self.workers.snapshot()?.instances;
        let is_held =
            |id| reports.iter().any(|(known, report)| *known == id && report.health == Health::Quarantined);
        let own = self.model.plugins.instance_names().filter(|(id, _, of)| *of == plugin && is_held(*id));
        Ok(own.map(|(_, name, _)| name.to_owned()).collect())
    }

    /// Refuses a new instance of a shared object while another instance of this shared object is in
    /// quarantine, because the same code would run under another name. The role `admin` may create the
    /// instance.
    pub fn may_create(&mut self, plugin: &str, role: Role) -> Result<(), ControlError> {
        self.may_begin(plugin, role, "creating another instance")
    }

    /// Refuses new settings for an instance of a shared object while any instance of this shared object is in
    /// quarantine, because new settings start the code again. The role `admin` may change settings.
    pub fn may_replace(&mut self, instance: &str, role: Role) -> Result<(), ControlError> {
        match self.model.plugins.plugin_of(instance).map(|plugin| plugin.name()) {
            Ok(plugin) => self.may_begin(plugin, role, "changing settings"),
            // The operation itself reports an unknown instance.
            Err(_) => Ok(()),
        }
    }

    /// Refuses the operation `what` on an instance in quarantine, if the instance belongs to a shared object
    /// and the role is below `admin`.
    pub fn may_run(&mut self, instance: &str, role: Role, what: &str) -> Result<(), ControlError> {
        let plugins = &self.model.plugins;
        let (Ok(id), Ok(plugin)) = (plugins.instance(instance), plugins.plugin_of(instance)) else {
            return Ok(());
        };
        if role >= Role::Admin || plugin.runtime() != Runtime::Trusted || !self.is_quarantined(id)? {
            return Ok(());
        }
        Err(needs_admin(plugin.name(), instance, what))
    }

    /// For a role below `admin`, refuses to rename an instance that is in quarantine and belongs to a shared
    /// object. For every role, refuses a new name that has a quarantine entry, because the next start would
    /// put the instance into quarantine.
    pub fn may_rename(&mut self, instance: &str, to: &str, role: Role) -> Result<(), ControlError> {
        self.may_run(instance, role, RENAME)?;
        let Ok(plugin) = self.model.plugins.plugin_of(instance) else { return Ok(()) };
        if self.model.repository.quarantine().find(to, plugin.name()).is_none() {
            return Ok(());
        }
        if role < Role::Admin && plugin.runtime() == Runtime::Trusted {
            return Err(needs_admin(plugin.name(), to, RENAME));
        }
        Err(ControlError::conflict(format!(
            "name {to:?}: an instance of plugin {:?} with this name is in quarantine; release it first with `millrace instance \
             release {to}`",
            plugin.name()
        )))
    }

    /// Refuses the operation `what` on a shared object while one of the object's instances is in quarantine,
    /// because the operation starts code of the object. An instance that was freed in quarantine counts too.
    /// The role `admin` may execute the operation.
    fn may_begin(&mut self, plugin: &str, role: Role, what: &str) -> Result<(), ControlError> {
        let is_trusted =
            self.model.plugins.plugin_named(plugin).is_ok_and(|plugin| plugin.runtime() == Runtime::Trusted);
        if role >= Role::Admin || !is_trusted {
            return Ok(());
        }
        let held = self.model.repository.quarantine().of_plugin(plugin).next();
        let held = match held.map(|held| held.instance.clone()) {
            Some(held) => Some(held),
            None => self.of_plugin(plugin)?.into_iter().next(),
        };
        held.map_or(Ok(()), |held| Err(needs_admin(plugin, &held, what)))
    }

    /// Whether an instance is in quarantine, either since its creation or after faults.
    pub fn is_quarantined(&mut self, id: InstanceId) -> Result<bool, ControlError> {
        Ok(self.model.plugins.is_held(id) || self.report(id)?.is_some())
    }

    /// Returns the last fault of an instance that is in quarantine at the workers; `None` if it is not.
    pub(crate) fn report(&mut self, id: InstanceId) -> Result<Option<String>, ControlError> {
        let reports = self.workers.snapshot()?.instances;
        let quarantined =
            reports.into_iter().find(|(known, report)| *known == id && report.health == Health::Quarantined);
        Ok(quarantined.map(|(_, report)| report.last_fault))
    }

    /// Whether an instance belongs to a shared object, and is in quarantine for faults.
    pub fn waits_for_release(&mut self, name: &str) -> Result<bool, ControlError> {
        let id = self.model.plugins.instance(name)?;
        let runtime = self.model.plugins.plugin_of(name)?.runtime();
        Ok(runtime == Runtime::Trusted && self.report(id)?.is_some())
    }

    /// Removes the quarantine entries for a name that no instance has. Returns the error `otherwise` if there
    /// is no entry for the name.
    pub(crate) fn release_absent(
        &mut self,
        observation: &Observation,
        name: &str,
        role: Role,
        otherwise: ControlError,
    ) -> Result<ReleaseView, ControlError> {
        let named = self.model.repository.quarantine().named(name);
        let plugins: Vec<String> = named.map(|held| held.plugin.clone()).collect();
        if plugins.is_empty() {
            return Err(otherwise);
        }
        if role < role_to_release(None) {
            return Err(ControlError::Forbidden(
                Role::Admin,
                format!(
                    "releasing instance {name:?} needs the role admin, because the instance has ended the router and may run without a sandbox"
                ),
            ));
        }
        for plugin in plugins {
            self.forget(name, &plugin)?;
        }
        observation.note_release(false, name);
        Ok(ReleaseView { instance: name.to_owned(), exists: false })
    }

    /// Restores the quarantine entry of an instance whose release failed.
    pub(crate) fn hold_again(&mut self, held: Option<Held>) -> Result<(), ControlError> {
        held.map_or(Ok(()), |held| self.hold(held))
    }

    fn hold(&mut self, held: Held) -> Result<(), ControlError> {
        let kept = self.model.repository.quarantine_mut().put(held);
        kept.map_err(|error| ControlError::system("store the quarantine of the instance", error))
    }

    /// Removes the quarantine entry of an instance of a plugin.
    pub(crate) fn forget(&mut self, name: &str, plugin: &str) -> Result<(), ControlError> {
        let released = self.model.repository.quarantine_mut().release(name, plugin);
        released
            .map(drop)
            .map_err(|error| ControlError::system("release the instance from quarantine", error))
    }

    /// Ensures that an instance that is about to be freed has a quarantine entry, if it is in quarantine and belongs
    /// to a shared object. Returns whether an entry must stay.
    pub fn keep(&mut self, id: InstanceId, name: &str) -> Result<bool, ControlError> {
        let plugin = self.model.plugins.plugin_of(name)?;
        let (runtime, plugin) = (plugin.runtime(), plugin.name());
        if runtime != Runtime::Trusted {
            return Ok(false);
        }
        if self.model.repository.quarantine().find(name, plugin).is_some() {
            return Ok(true);
        }
        let Some(why) = self.report(id)? else { return Ok(true) };
        let since = since_1970().as_secs();
        self.hold(Held { instance: name.to_owned(), plugin: plugin.to_owned(), since, why })?;
        Ok(true)
    }
}

/// Noun for the operation of renaming in the texts of refusals.
const RENAME: &str = "renaming an instance";

/// Returns the error for the operation `what`, which needs the role `admin`: it would run code of a shared
/// object, and the shared object's instance `held` is in quarantine.
fn needs_admin(plugin: &str, held: &str, what: &str) -> ControlError {
    ControlError::Forbidden(
        Role::Admin,
        format!(
            "plugin {plugin:?} is a shared object, which runs without a sandbox, and its instance {held:?} is in quarantine: {what} needs \
             the role admin; an admin can release the instance with `millrace instance release {held}`"
        ),
    )
}

/// Returns the lowest role that may release an instance. A shared object needs `admin`, because its code runs
/// with the privileges of a worker. So does an absent instance (`None`), because its code may be a shared
/// object.
pub(crate) fn role_to_release(runtime: Option<Runtime>) -> Role {
    match runtime {
        Some(Runtime::Trusted) | None => Role::Admin,
        Some(_) => Role::Operator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_release_sandboxed_and_admins_other_instances() {
        assert_eq!(role_to_release(Some(Runtime::Contained)), Role::Operator);
        assert_eq!(role_to_release(Some(Runtime::BuiltIn)), Role::Operator);
        assert_eq!(role_to_release(Some(Runtime::Trusted)), Role::Admin);
        assert_eq!(role_to_release(None), Role::Admin, "it may be a shared object");
    }

    #[test]
    fn only_admins_release_by_freeing() {
        assert_eq!(
            [Role::Viewer, Role::Operator, Role::Admin].map(releases_by_freeing),
            [false, false, true]
        );
    }
}
