//! Trial of planned changes in the model: all checks of control, without an effect on the workers.

use millrace_config::{Bits, Change as ConfigChange, Principal};

use crate::ControlError;
use crate::admission::shares::left;
use crate::filters::conflicts::FilterConflicts;
use crate::model::Model;
use crate::model::principals::Owners;
use crate::principals::after;
use crate::view::LeftView;

/// Makes changes of principals, bindings and filters in the model, and undoes them. Returns what principals can
/// still reserve after the changes: of the processors, and of the ports where `principal` reserves a rate.
///
/// # Errors
/// Returns the reason why the first of these changes can't be made.
pub(super) fn left_after(
    model: &mut Model,
    principal: &Principal,
    changes: &[ConfigChange],
) -> Result<LeftView, ControlError> {
    let before = (
        model.plugins.clone(),
        model.schedulers.clone(),
        model.principals.clone(),
        model.principal_ids.clone(),
    );
    let tried = changes.iter().try_for_each(|change| make(model, change));
    let rate = |model: &Model, port: &String| Some((port.clone(), Bits(Owners(model).left_at(port)?)));
    let tried = tried.and_then(|()| plan_schedulers(model)).map(|()| LeftView {
        cpu: left(model),
        link: principal.link.keys().filter_map(|port| rate(model, port)).collect(),
    });
    (model.plugins, model.schedulers, model.principals, model.principal_ids) = before;
    tried
}

fn make(model: &mut Model, change: &ConfigChange) -> Result<(), ControlError> {
    match change {
        ConfigChange::AddPrincipal(_)
        | ConfigChange::RemovePrincipal(_)
        | ConfigChange::SetPrincipal { .. } => {
            model.principals = after(&model.principals, change);
            model.schedulers.number_principals(&model.principals)?;
            model.principal_ids.follow(&model.principals);
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
