//! Changes of many bindings and filters at once.

use millrace_classify::CompiledExpression;
use millrace_config::{Change, Filter, FilterAction};
use millrace_plugin::{Action, BindingId, PluginChange};
use millrace_units::GateId;

use crate::ControlError;
use crate::model::Model;

impl Model {
    pub(crate) fn change_binding(
        &mut self,
        change: &Change,
    ) -> Result<PluginChange<CompiledExpression>, ControlError> {
        match change {
            Change::Bind(bind) => self.bind_as(bind),
            Change::Unbind(bind) => {
                let (instance, gate) = (&*bind.instance, &*bind.gate);
                Ok(self
                    .plugins
                    .deregister_instance(instance, gate, bind.filter.value(), Some(bind.priority))?
                    .1)
            }
            Change::AddFilter(filter) => Ok(self.add_configured_filter(filter)?.1),
            Change::RemoveFilter(filter) => remove_filter(self, filter),
            other => {
                Err(ControlError::System(format!("internal error: `{other}` is not a change of filters")))
            }
        }
    }

    /// Adds a configured filter to the model.
    pub(crate) fn add_configured_filter(
        &mut self,
        filter: &Filter,
    ) -> Result<(BindingId, PluginChange<CompiledExpression>), ControlError> {
        let (matches, action) = (filter.r#match.value(), filter.action.value());
        self.add_filter(matches, action, filter.gate.as_deref(), filter.priority)
    }

    /// Returns the filter with this action, match, gate and priority.
    ///
    /// # Errors
    /// Returns an error if no such filter exists.
    pub(crate) fn find_filter(&self, filter: &Filter) -> Result<BindingId, ControlError> {
        let (action, gate) = looked_up(self, filter)?;
        let found =
            self.plugins.binding_registry().find(&action, gate, filter.r#match.value(), filter.priority);
        found.ok_or_else(|| no_such_filter(filter))
    }

    /// Returns the only filter with this action, match and gate, of any priority.
    ///
    /// # Errors
    /// Returns an error if no such filter exists, or several.
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

    /// Returns the public id of a filter.
    pub(crate) fn number_of(&self, filter: &Filter) -> Option<u64> {
        self.plugins.binding(self.find_filter(filter).ok()?).map(|bound| bound.number)
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
    // The leaf that a `queue` action names may already be removed.
    Ok((gone.map_or_else(|| model.action(action, matches), Ok)?, gate))
}

fn remove_filter(
    model: &mut Model,
    filter: &Filter,
) -> Result<PluginChange<CompiledExpression>, ControlError> {
    let binding = model.find_filter(filter)?;
    Ok(model.plugins.remove_binding(binding)?)
}

fn no_such_filter(filter: &Filter) -> ControlError {
    let (matches, action) = (filter.r#match.value().to_string(), filter.action.value());
    ControlError::not_found(format!("no filter {matches:?} has the action \"{action}\""))
}
