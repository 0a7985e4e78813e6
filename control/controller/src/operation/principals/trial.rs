//! Trial of planned changes in the model: all checks of control, without an effect on the workers.

use std::collections::BTreeMap;

use millrace_config::{Bits, Change as ConfigChange, Principal, Role, Service};
use millrace_plugin_abi::Runtime;

use super::{AddAllowance, AddPrincipal, SetAdmission, SetAllowance, SetPrincipal};
use crate::admission::allowances::{self as permitted, Requester};
use crate::admission::services::{self, Decision, Demand};
use crate::admission::shares::left;
use crate::configuration::single::{plan_admission, plan_settings};
use crate::filters::conflicts::FilterConflicts;
use crate::filters::pinned;
use crate::model::Model;
use crate::model::placements::{Owner, PlacedService};
use crate::model::principals::Owners;
use crate::operation::instances::PlannedMove;
use crate::operation::kinds::{Query, Reading};
use crate::operation::upgrade::check_runtime;
use crate::operation::{Bind, CreateInstance, Effect, MoveInstance, Operation, SetSettings};
use crate::principals::after;
use crate::router::Inner;
use crate::view::{ComponentView, LeftView, TrialView};
use crate::workers::death::Need;
use crate::{ControlError, admission};

/// Request that is only tried: it passes admission and the allowances of the caller, and changes nothing.
#[derive(Clone, Debug)]
pub enum Trial {
    /// Adds a principal.
    AddPrincipal(AddPrincipal),
    /// Changes a principal.
    SetPrincipal(SetPrincipal),
    /// Binds an instance.
    Bind(Bind),
    /// Creates an instance. Its code runs only if the plugin is built in or a WebAssembly module.
    CreateInstance(CreateInstance),
    /// Moves an instance. No code moves: if the runtime changes, only the plugin's file is checked.
    MoveInstance(MoveInstance),
    /// Changes how much may be promised.
    SetAdmission(SetAdmission),
    /// Adds an allowance.
    AddAllowance(AddAllowance),
    /// Changes an allowance.
    SetAllowance(SetAllowance),
    /// Changes router-wide settings.
    SetSettings(SetSettings),
}

impl Operation for Trial {
    type Answer = TrialView;
    type Kind = Query;
    const EFFECT: Effect = Effect::DryRun;

    /// # Errors
    /// Returns the error with which the request would be refused, as far as control alone can tell, or an error
    /// while a configuration or a list is being applied.
    async fn carry_out(self, router: &Reading) -> Result<TrialView, ControlError> {
        router.caller().may(self.role())?;
        if let Self::MoveInstance(moved) = &self {
            check_move(moved, router).await?;
        }
        self.view(router)
    }
}

impl Trial {
    /// Returns the role that the request itself needs.
    fn role(&self) -> Role {
        match self {
            Self::AddPrincipal(_) => AddPrincipal::ROLE,
            Self::SetPrincipal(_) => SetPrincipal::ROLE,
            Self::Bind(_) => Bind::ROLE,
            Self::CreateInstance(_) => CreateInstance::ROLE,
            Self::MoveInstance(_) => MoveInstance::ROLE,
            Self::SetAdmission(_) => SetAdmission::ROLE,
            Self::AddAllowance(_) => AddAllowance::ROLE,
            Self::SetAllowance(_) => SetAllowance::ROLE,
            Self::SetSettings(_) => SetSettings::ROLE,
        }
    }

    /// Returns the names of the instance and of the allowance that the request changes.
    fn names(&self) -> (Option<String>, Option<String>) {
        match self {
            Self::MoveInstance(moved) => (Some(moved.name.clone()), None),
            Self::AddAllowance(AddAllowance(new)) => (None, Some(new.name.to_string())),
            Self::SetAllowance(set) => (None, Some(set.name.clone())),
            _ => (None, None),
        }
    }

    /// Plans the request. Returns the changes, and the place of an instance that moves.
    fn plan(
        self,
        inner: &Inner,
        by: &Requester,
    ) -> Result<(Vec<ConfigChange>, Option<Decision>), ControlError> {
        let model = &inner.model;
        let changes = match self {
            Self::AddPrincipal(new) => new.plan(model, by)?,
            Self::SetPrincipal(set) => set.plan(model, by)?,
            Self::Bind(new) => {
                inner.supervision.death.refuse_silent(Need::Bindings)?;
                vec![new.plan(model, by)?]
            }
            Self::CreateInstance(new) => vec![new.plan(model, by)?],
            Self::MoveInstance(moved) => {
                let PlannedMove { change, decision, .. } = moved.plan(inner, by)?;
                return Ok((vec![change], Some(decision)));
            }
            Self::SetAdmission(set) => plan_admission(model, &set.changes)?,
            Self::AddAllowance(new) => new.plan(model, by)?,
            Self::SetAllowance(set) => set.plan(model, by)?,
            Self::SetSettings(set) => plan_settings(model, &set.changes)?,
        };
        Ok((changes, None))
    }

    /// Plans the request, and makes its changes in a copy of the model. Returns the view of the copy.
    fn view(self, router: &Reading) -> Result<TrialView, ControlError> {
        let (by, (instance, allowance)) = (router.caller().requester(), self.names());
        let (mut model, no_cache, (changes, decision)) = {
            let inner = router.lock();
            inner.settings.unless_in_between()?;
            let planned = self.plan(&inner, &by)?;
            (inner.model.clone(), inner.offload.why_no_cache(), planned)
        };
        let before = model.placements.services.clone();
        match (decision, &*changes) {
            (Some(decision), [ConfigChange::SetService { instance, to, .. }]) => {
                move_service(&mut model, instance, *to, decision)?;
            }
            (_, changes) => changes.iter().try_for_each(|change| make(&mut model, change, no_cache))?,
        }
        plan_schedulers(&mut model)?;
        let mut allowances = model.admission.allowance.iter();
        let allowance = allowance.and_then(|name| allowances.find(|one| *one.name == *name));
        Ok(TrialView {
            changes: changes.iter().flat_map(ConfigChange::commands).collect(),
            components: admission::view(&model).components,
            levels: levels(&model, &before, instance.as_deref()),
            allowance: allowance.map(|one| permitted::view(&model, one, &by)),
        })
    }
}

/// Checks a move that changes the runtime of an instance: the caller's role, and the plugin's file.
async fn check_move(moved: &MoveInstance, router: &Reading) -> Result<(), ControlError> {
    let by = router.caller().requester();
    let (plugin, runtimes) = {
        let inner = router.lock();
        inner.settings.unless_in_between()?;
        let planned = moved.plan(&inner, &by)?;
        (planned.plugin, planned.runtimes)
    };
    let Some((_, runtime)) = runtimes else { return Ok(()) };
    router.caller().may(Role::Admin)?;
    check_runtime(router, plugin, runtime).await
}

/// Returns the levels of the services that are new or have moved, and of the instance that was to move.
fn levels(model: &Model, before: &[PlacedService], instance: Option<&str>) -> BTreeMap<String, &'static str> {
    let stays = |placed: &PlacedService| {
        before.iter().any(|one| one.instance == placed.instance && one.level == placed.level)
    };
    let placed = model.placements.services.iter();
    let meant = placed.filter(|placed| instance == Some(&*placed.instance) || !stays(placed));
    meant.map(|placed| (placed.instance.clone(), placed.level.name())).collect()
}

/// Makes changes of principals, bindings and filters in the model, and undoes them. Returns what principals can
/// still reserve after the changes: of the processors, and of the ports where `principal` reserves a rate; and each
/// component.
///
/// # Errors
/// Returns the reason why the first of these changes can't be made.
pub(super) fn left_after(
    model: &mut Model,
    principal: &Principal,
    changes: &[ConfigChange],
) -> Result<(LeftView, Vec<ComponentView>), ControlError> {
    let before = (
        model.plugins.clone(),
        model.schedulers.clone(),
        model.principals.clone(),
        model.principal_ids.clone(),
    );
    let no_cache = services::planned_cache(model);
    let tried = changes.iter().try_for_each(|change| make(model, change, no_cache));
    let rate = |model: &Model, port: &String| Some((port.clone(), Bits(Owners(model).left_at(port)?)));
    let tried = tried.and_then(|()| plan_schedulers(model)).map(|()| {
        let link = principal.link.keys().filter_map(|port| rate(model, port)).collect();
        (LeftView { cpu: left(model), link }, admission::view(model).components)
    });
    (model.plugins, model.schedulers, model.principals, model.principal_ids) = before;
    tried
}

/// Makes a change in the model. `no_cache` is the reason why no flow is offloaded.
fn make(
    model: &mut Model,
    change: &ConfigChange,
    no_cache: Option<&'static str>,
) -> Result<(), ControlError> {
    match change {
        ConfigChange::AddPrincipal(_)
        | ConfigChange::RemovePrincipal(_)
        | ConfigChange::ReleasePrincipal(_)
        | ConfigChange::SetPrincipal { .. } => {
            model.principals = after(&model.principals, change);
            model.schedulers.number_principals(&model.principals)?;
            model.principal_ids.follow(&model.principals);
        }
        ConfigChange::AddInstance(new) => {
            let plugin = model.plugins.plugin_named(&new.plugin)?;
            if let Some(service) = new.service {
                let owner = Owner::of(new);
                let demand = Demand::of(&new.name, &*plugin, service).owned_by(owner.as_ref());
                let decided = services::decide(model, demand, no_cache)?;
                decided.carry_out(&mut model.placements);
            }
            let runtime = plugin.runtime();
            if runtime != Runtime::Trusted && !runtime.has_processes() {
                model.create_instance(&new.plugin, &new.name, new.settings.clone())?;
            }
        }
        ConfigChange::Admission { to, .. } => {
            let before = std::mem::replace(&mut model.admission, to.clone());
            if before.allowance != to.allowance {
                services::obey_allowances(model, no_cache);
            }
        }
        ConfigChange::Router { to, .. } => model.router = (**to).clone(),
        change => {
            if let ConfigChange::AddFilter(filter) = change {
                FilterConflicts::with_conditions_of(model, filter).add(model, filter)?;
            }
            model.change_binding(change)?;
        }
    }
    Ok(())
}

/// Gives an instance its load and level in the model.
///
/// # Errors
/// The worker of the service excludes a binding of the instance.
fn move_service(
    model: &mut Model,
    instance: &str,
    to: Option<Service>,
    decision: Decision,
) -> Result<(), ControlError> {
    pinned::check_move(model, instance, to)?;
    match to {
        None => model.placements.remove_service(instance),
        Some(_) => {
            decision.carry_out(&mut model.placements);
        }
    }
    Ok(())
}

/// Plans the queues of principals at all ports.
fn plan_schedulers(model: &mut Model) -> Result<(), ControlError> {
    let ports: Vec<_> = model.ports.iter().map(|plan| (plan.id, plan.config.name.to_string())).collect();
    for (id, port) in ports {
        let Some(configured) = model.schedulers.configured(id) else { continue };
        let whole = Owners(model).with_links(&port, &configured);
        if model.schedulers.of(id) != Some(&whole) {
            model.schedulers.plan(id, &port, &whole)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    #[test]
    fn changed_allowance_moves_services_in_the_model_and_names_their_levels() {
        let config = |allowance: &str| {
            let text = format!(
                "[[port]]\nname = \"lan\"\ndevice = \"lan0\"\n[[instance]]\nplugin = \"statistics\"\nname = \"a\"\n\
                 owner = \"alice\"\nowner-role = \"admin\"\n[instance.service]\nrate = 1000000\npacket = 100\n{allowance}"
            );
            Config::parse(&text, "f").unwrap()
        };
        let mut model = Model::planned(&config("")).unwrap();
        let before = model.placements.services.clone();
        let of = |level: &'static str| BTreeMap::from([("a".to_owned(), level)]);
        assert_eq!(levels(&model, &before, None), BTreeMap::new());
        assert_eq!(levels(&model, &before, Some("a")), of("offload"));
        let keys = "[[admission.allowance]]\nname = \"students\"\nuser = [\"alice\"]\nlevel = [\"worker\"]\n";
        let (from, to) = (model.admission.clone(), config(keys).admission);
        make(&mut model, &ConfigChange::Admission { from, to }, None).unwrap();
        assert_eq!(levels(&model, &before, None), of("worker"));
    }
}
