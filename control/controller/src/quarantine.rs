//! Instances that are in quarantine, and how they are let out.

use millrace_config::Role;
use millrace_plugin::{Health, Inheritance};
use millrace_plugin_abi::Home;
use millrace_telemetry::utc;

use crate::ControlError;
use crate::router::{Inner, Router};
use crate::view::{HeldView, ReleaseView};

impl Router {
    /// The instances that a call of theirs has ended the router for, as the next start will know them.
    ///
    /// # Errors
    /// None so far.
    pub fn quarantine(&self) -> Result<Vec<HeldView>, ControlError> {
        let inner = self.lock();
        let view = |held: &millrace_repository::Held| HeldView {
            instance: held.instance.clone(),
            plugin: held.plugin.clone(),
            since: utc(held.since),
            why: held.why.clone(),
            is_here: inner.model.plugins.instance(&held.instance).is_ok(),
        };
        Ok(inner.model.repository.quarantine().all().iter().map(view).collect())
    }

    /// Lets an instance out of quarantine, whatever it is there for: it begins anew, with its settings. One that isn't there can
    /// be created again.
    ///
    /// # Errors
    /// When there is nobody of that name in quarantine, when the instance refuses to begin, or the disk to forget it;
    /// [`ControlError::NeedsAdmin`] for a role below `admin` where code would run again that nothing contains.
    pub fn release_instance(&self, name: &str, role: Role) -> Result<ReleaseView, ControlError> {
        let mut inner = self.to_change()?;
        inner.may_release(name, role)?;
        let id = match inner.model.plugins.instance(name) {
            Ok(id) => id,
            Err(unknown) => {
                return match inner.forget_quarantine(name)? {
                    true => {
                        inner.note_release(None, name);
                        Ok(ReleaseView { instance: name.to_owned(), is_here: false })
                    }
                    false => Err(unknown.into()),
                };
            }
        };
        let reports = inner.snapshot()?.instances;
        let is_quarantined = |health| health == Health::Quarantined;
        if !reports.iter().any(|(known, report)| *known == id && is_quarantined(report.health)) {
            return Err(ControlError::Conflict(format!("instance {name:?} is not in quarantine")));
        }
        let workers = inner.workers.len();
        let version = inner.model.plugins.plugin_of(name)?.state_version();
        let successors = inner.model.plugins.afresh(name, workers)?;
        let slow = inner.model.plugins.slow_half_of(name)?;
        let maps = successors.maps.clone();
        inner.forget_quarantine(name)?;
        inner.succeed_all(vec![successors], Inheritance::Renounced, (version, version))?;
        inner.model.plugins.note_maps(id, maps);
        inner.model.plugins.note_release(id);
        inner.host_level.put(id, slow, (version, false))?;
        inner.note_release(Some(id), name);
        tracing::info!(instance = name, "is let out of quarantine");
        Ok(ReleaseView { instance: name.to_owned(), is_here: true })
    }
}

impl Inner {
    /// Names the instances of a plugin that are in quarantine.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn quarantined_of(&mut self, plugin: &str) -> Result<Vec<String>, ControlError> {
        let reports = self.snapshot()?.instances;
        let is_held =
            |id| reports.iter().any(|(known, report)| *known == id && report.health == Health::Quarantined);
        let own = self.model.plugins.instance_names().filter(|(id, _, of)| *of == plugin && is_held(*id));
        Ok(own.map(|(_, name, _)| name.to_owned()).collect())
    }

    /// Refuses a release that takes a higher role.
    fn may_release(&self, name: &str, role: Role) -> Result<(), ControlError> {
        let home = self.model.plugins.plugin_of(name).map(|plugin| plugin.home()).ok();
        let is_held = self.model.repository.quarantine().all().iter().any(|held| held.instance == name);
        if role >= role_to_release(home, is_held) {
            return Ok(());
        }
        let what = if home.is_some() { "is one of a shared object" } else { "has ended the router" };
        Err(ControlError::NeedsAdmin(format!(
            "instance {name:?} {what}, which nothing contains: releasing it needs the role admin"
        )))
    }

    /// Has the next start know nothing of an instance's quarantine; whether it did.
    pub fn forget_quarantine(&mut self, name: &str) -> Result<bool, ControlError> {
        let released = self.model.repository.quarantine_mut().release(name);
        released.map_err(|error| ControlError::system("let the instance out of quarantine", error))
    }

    /// Says to who watches the workers how instances are called now.
    pub fn tell_names(&self) {
        let plugins = &self.model.plugins;
        self.names.set(plugins.instance_names());
        let is_trusted =
            |plugin: &str| plugins.plugin_named(plugin).is_ok_and(|plugin| plugin.home() == Home::Trusted);
        let can_crash = plugins.instance_names().filter(|(_, _, plugin)| is_trusted(plugin));
        crate::crash::tell(self.workers.watched(), can_crash);
    }
}

/// The least role that releases an instance. Code of a shared object runs with the privileges of a worker, and that of one which is not
/// here may be such code.
fn role_to_release(home: Option<Home>, is_held: bool) -> Role {
    match home {
        Some(Home::Trusted) => Role::Admin,
        None if is_held => Role::Admin,
        Some(Home::BuiltIn | Home::Contained) | None => Role::Operator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_release_what_is_contained_and_admins_the_rest() {
        for is_held in [false, true] {
            assert_eq!(role_to_release(Some(Home::Contained), is_held), Role::Operator);
            assert_eq!(role_to_release(Some(Home::BuiltIn), is_held), Role::Operator);
            assert_eq!(role_to_release(Some(Home::Trusted), is_held), Role::Admin);
        }
        assert_eq!(role_to_release(None, true), Role::Admin);
        assert_eq!(role_to_release(None, false), Role::Operator, "there is nobody of that name");
    }
}
