//! Trial of planned changes in the model: all checks of control, without an effect on the workers.

use millrace_config::{Bits, Change as ConfigChange, Principal};
use millrace_plugin_abi::Runtime;

use super::{AddPrincipal, SetPrincipal};
use crate::admission::services::{self, Demand};
use crate::admission::shares::left;
use crate::filters::conflicts::FilterConflicts;
use crate::model::Model;
use crate::model::placements::Owner;
use crate::model::principals::Owners;
use crate::operation::kinds::{Query, Reading};
use crate::operation::{Bind, CreateInstance, Effect, Operation};
use crate::principals::after;
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
}

impl Operation for Trial {
    type Answer = TrialView;
    type Kind = Query;
    const EFFECT: Effect = Effect::DryRun;

    /// # Errors
    /// Returns the error with which the request would be refused, as far as control alone can tell, or an error
    /// while a configuration or a list is being applied.
    async fn carry_out(self, router: &Reading) -> Result<TrialView, ControlError> {
        let by = router.caller().requester();
        let (mut model, changes) = {
            let inner = router.lock();
            inner.settings.unless_in_between()?;
            let changes = match self {
                Self::AddPrincipal(new) => new.plan(&inner.model, &by)?,
                Self::SetPrincipal(set) => set.plan(&inner.model, &by)?,
                Self::Bind(new) => {
                    inner.supervision.death.refuse_silent(Need::Bindings)?;
                    vec![new.plan(&inner.model, &by)?]
                }
                Self::CreateInstance(new) => vec![new.plan(&inner.model, &by)?],
            };
            (inner.model.clone(), changes)
        };
        changes.iter().try_for_each(|change| make(&mut model, change))?;
        plan_schedulers(&mut model)?;
        Ok(TrialView {
            changes: changes.iter().flat_map(ConfigChange::commands).collect(),
            components: admission::view(&model).components,
        })
    }
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
    let tried = changes.iter().try_for_each(|change| make(model, change));
    let rate = |model: &Model, port: &String| Some((port.clone(), Bits(Owners(model).left_at(port)?)));
    let tried = tried.and_then(|()| plan_schedulers(model)).map(|()| {
        let link = principal.link.keys().filter_map(|port| rate(model, port)).collect();
        (LeftView { cpu: left(model), link }, admission::view(model).components)
    });
    (model.plugins, model.schedulers, model.principals, model.principal_ids) = before;
    tried
}

fn make(model: &mut Model, change: &ConfigChange) -> Result<(), ControlError> {
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
                let decided = services::decide(model, demand, services::planned_cache(model))?;
                decided.carry_out(&mut model.placements);
            }
            let runtime = plugin.runtime();
            if runtime != Runtime::Trusted && !runtime.has_processes() {
                model.create_instance(&new.plugin, &new.name, new.settings.clone())?;
            }
        }
        change => {
            if let ConfigChange::AddFilter(filter) = change {
                FilterConflicts::with_conditions_of(model, filter).add(model, filter)?;
            }
            model.change_binding(change)?;
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
