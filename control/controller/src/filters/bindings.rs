//! Changes of many bindings and filters at once.

use millrace_config::{Change, Filter, FilterAction};
use millrace_plugin::{Action, BindingId};
use millrace_units::GateId;

use crate::ControlError;
use crate::model::running::running_bind;
use crate::model::{Model, PluginChange};

impl Model {
    pub(crate) fn change_binding(&mut self, change: &Change) -> Result<PluginChange, ControlError> {
        match change {
            Change::Bind(bind) => self.bind_as(bind),
            Change::Unbind(bind) => {
                let (instance, gate) = (&*bind.instance, &*bind.gate);
                let filter = bind.filter.value();
                Ok(self.plugins.deregister_instance(instance, gate, filter, Some(bind.priority))?.1)
            }
            Change::AddFilter(filter) => Ok(self.add_filter(filter)?.1),
            Change::RemoveFilter(filter) => Ok(self.plugins.remove_binding(self.find_filter(filter)?)?),
            other => {
                Err(ControlError::System(format!("internal error: `{other}` is not a change of filters")))
            }
        }
    }

    /// Returns the filter with this action, match, gate and priority.
    pub(crate) fn find_filter(&self, filter: &Filter) -> Result<BindingId, ControlError> {
        let (action, gate) = looked_up(self, filter)?;
        let found =
            self.plugins.binding_registry().find(&action, gate, filter.r#match.value(), filter.priority);
        found.ok_or_else(|| no_such_filter(filter))
    }

    /// Returns the filter with this action, match and gate; the priority doesn't matter. Returns an error if
    /// several filters qualify.
    pub(crate) fn find_only_filter(&self, filter: &Filter) -> Result<BindingId, ControlError> {
        let (action, gate) = looked_up(self, filter)?;
        let found = self.plugins.binding_registry().find_all(&action, gate, filter.r#match.value());
        match found[..] {
            [] => Err(no_such_filter(filter)),
            [(_, only)] => Ok(only),
            [..] => {
                let priorities: Vec<_> = found.iter().map(|(priority, _)| priority.to_string()).collect();
                Err(ControlError::conflict(format!(
                    "filter {:?} with the action \"{}\" exists with the priorities {}: give --priority, or the id of the filter",
                    filter.r#match.value().to_string(),
                    filter.action.value(),
                    priorities.join(", ")
                )))
            }
        }
    }
}

/// Returns the bindings of an instance, the oldest first.
pub(crate) fn bindings_of(model: &Model, instance: &str) -> Result<Vec<BindingId>, ControlError> {
    let id = model.plugins.instance(instance)?;
    let all = model.plugins.bindings_by_age();
    Ok(all.filter(|(_, bound)| bound.action.instance() == Some(id)).map(|(id, _)| id).collect())
}

/// Returns the changes that remove a binding, or a filter that gives a principal, and add it again.
pub(crate) fn bind_again(model: &Model, id: BindingId) -> Vec<Change> {
    let Some(bound) = model.plugins.binding(id) else { return Vec::new() };
    match bound.action {
        Action::Instance(instance) => {
            let bind = running_bind(model, bound, model.plugins.instance_name(instance));
            vec![Change::Unbind(bind.clone()), Change::Bind(bind)]
        }
        Action::Principal(_) => {
            let filter = model.running_filter(bound);
            vec![Change::RemoveFilter(filter.clone()), Change::AddFilter(filter)]
        }
        _ => Vec::new(),
    }
}

/// Returns the action of a configured filter and the gate where it is bound.
fn looked_up(model: &Model, filter: &Filter) -> Result<(Action, GateId), ControlError> {
    let (matches, action) = (filter.r#match.value(), filter.action.value());
    let gate = filter.gate.as_deref().or(action.default_gate()).unwrap_or_default();
    let gate = model.plugins.gate(gate)?.id;
    let gone = match action {
        FilterAction::Queue(name) => model.schedulers.known(name).map(Action::Queue),
        _ => None,
    };
    // A `queue` action may name a leaf that was removed meanwhile.
    Ok((gone.map_or_else(|| model.action(action, matches), Ok)?, gate))
}

fn no_such_filter(filter: &Filter) -> ControlError {
    let (matches, action) = (filter.r#match.value().to_string(), filter.action.value());
    ControlError::not_found(format!("no filter {matches:?} has the action \"{action}\""))
}
