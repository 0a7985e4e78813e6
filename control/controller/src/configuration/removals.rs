//! Removals of instances: an instance is removed before the instances that its settings name.

use std::cmp::Reverse;
use std::collections::HashSet;

use millrace_config::{Change, Instance};
use millrace_plugin::instances_named;

use crate::ControlError;
use crate::model::Model;

/// Sorts the removals in the difference of the running configuration and another one. The difference recreates an
/// instance that gets another plugin before it removes others, since bindings may pass from these to new instances.
/// The removed instances whose settings name the recreated one leave before it, with their bindings.
pub(super) fn users_first(model: &Model, mut changes: Vec<Change>) -> Vec<Change> {
    let Some((first, leaving)) = users_of_recreated(model, &changes) else { return changes };
    let places = model.plugins.instance_registry().creation_order().places();
    let is_early = |change: &Change| match change {
        Change::Unbind(bind) => leaving.contains(&*bind.instance),
        Change::RemoveInstance(instance) => leaving.contains(&*instance.name),
        _ => false,
    };
    let mut rest = changes.split_off(first);
    let mut early: Vec<Change> = rest.extract_if(.., |change| is_early(change)).collect();
    early.sort_by_key(|change| match change {
        Change::RemoveInstance(instance) => (1, Reverse(places.get(&*instance.name))),
        _ => (0, Reverse(None)),
    });
    changes.extend(early);
    changes.extend(rest);
    changes
}

/// Returns the position of the first removal of a recreated instance, and the names of all recreated instances and of
/// the removed instances that name one of them, also through others. Returns `None` if no removed instance does.
fn users_of_recreated(model: &Model, changes: &[Change]) -> Option<(usize, HashSet<String>)> {
    let created = changes.iter().filter_map(|change| match change {
        Change::AddInstance(instance) => Some(&*instance.name),
        _ => None,
    });
    let created: HashSet<&str> = created.collect();
    let is_recreated = |instance: &Instance| created.contains(&*instance.name);
    let first = changes.iter().position(|change| removal(change).is_some_and(is_recreated))?;
    let (recreated, gone): (Vec<&Instance>, Vec<&Instance>) =
        changes.iter().filter_map(removal).partition(|instance| is_recreated(instance));
    let mut leaving: HashSet<String> = recreated.iter().map(|instance| instance.name.to_string()).collect();
    // The removals come in the reverse order of creation.
    for instance in gone.into_iter().rev() {
        let Ok(plugin) = model.plugins.plugin_named(&instance.plugin) else { continue };
        if instances_named(&*plugin, &instance.settings).iter().any(|named| leaving.contains(named)) {
            leaving.insert(instance.name.to_string());
        }
    }
    (leaving.len() > recreated.len()).then_some((first, leaving))
}

/// Returns the instance that a change removes, if it removes one.
fn removal(change: &Change) -> Option<&Instance> {
    match change {
        Change::RemoveInstance(instance) => Some(instance),
        _ => None,
    }
}

/// Checks that no other instance refers to an instance to be removed. Instances that are removed or get other settings
/// before it don't count.
///
/// # Errors
/// Returns the index of the removal of an instance in use, and its error.
pub(super) fn check_removals(model: &Model, changes: &[Change]) -> Result<(), (usize, ControlError)> {
    let mut leaving = Vec::new();
    for (step, change) in changes.iter().enumerate() {
        match change {
            Change::RemoveInstance(instance) => {
                if model.plugins.instance(&instance.name).is_ok()
                    && let Err(error) =
                        model.plugins.instance_registry().check_unused(&instance.name, &leaving)
                {
                    return Err((step, error.into()));
                }
                leaving.push(&*instance.name);
            }
            Change::SetInstance { from, .. } => leaving.push(&*from.name),
            _ => {}
        }
    }
    Ok(())
}
