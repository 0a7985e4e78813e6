//! Bindings and filters, many at once.

use millrace_classify::CompiledExpression;
use millrace_config::{Bind, Change, Filter, FilterAction};
use millrace_plugin::{Action, BindingId, PluginChange};
use millrace_units::GateId;

use crate::ControlError;
use crate::model::{Model, call_limits};
use crate::router::Inner;

impl Inner {
    /// Changes bindings and filters, all of them before the next packet, up to the first that can't be. Returns how many were
    /// changed, and why no more.
    pub fn change_bindings(&mut self, changes: &[Change]) -> (usize, Result<(), ControlError>) {
        let mut commands = Vec::with_capacity(changes.len());
        let mut outcome = Ok(());
        for change in changes {
            match self.model.change_binding(change) {
                Ok(command) => commands.push(command),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let made = commands.len();
        let told = self.tell_plugins(commands).and_then(|()| self.barrier());
        (made, told.and(outcome))
    }
}

impl Model {
    fn change_binding(&mut self, change: &Change) -> Result<PluginChange<CompiledExpression>, ControlError> {
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
            Change::RemoveFilter(filter) => self.remove_filter(filter),
            other => Err(ControlError::System(format!("{other} changes no binding"))),
        }
    }

    /// Binds an instance as the configuration says.
    ///
    /// # Errors
    /// As of [`bind`](Self::bind).
    pub fn bind_as(&mut self, bind: &Bind) -> Result<PluginChange<CompiledExpression>, ControlError> {
        let (filter, call_limits) =
            (bind.filter.value(), call_limits(bind.on_fault, bind.budget, bind.packet_budget));
        Ok(self.bind(&bind.instance, &bind.gate, filter.clone(), bind.priority, call_limits)?.1)
    }

    fn remove_filter(&mut self, filter: &Filter) -> Result<PluginChange<CompiledExpression>, ControlError> {
        let binding = self.find_filter(filter)?;
        Ok(self.plugins.remove_binding(binding)?)
    }

    /// Plans a filter.
    pub(crate) fn add_configured_filter(
        &mut self,
        filter: &Filter,
    ) -> Result<(BindingId, PluginChange<CompiledExpression>), ControlError> {
        let (matches, action) = (filter.r#match.value(), filter.action.value());
        self.add_filter(matches, action, filter.gate.as_deref(), filter.priority)
    }

    /// The filter with that action, for those packets, at that gate, of that priority.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find_filter(&self, filter: &Filter) -> Result<BindingId, ControlError> {
        let (action, gate) = self.looked_up(filter)?;
        let found = self.plugins.find_binding(&action, gate, filter.r#match.value(), filter.priority);
        found.ok_or_else(|| no_such_filter(filter))
    }

    /// The one filter with that action, for those packets, at that gate, whatever its priority.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub(crate) fn find_only_filter(&self, filter: &Filter) -> Result<BindingId, ControlError> {
        let (action, gate) = self.looked_up(filter)?;
        let found = self.plugins.find_bindings(&action, gate, filter.r#match.value());
        match found[..] {
            [] => Err(no_such_filter(filter)),
            [(_, only)] => Ok(only),
            [..] => {
                let priorities: Vec<_> = found.iter().map(|(priority, _)| priority.to_string()).collect();
                Err(ControlError::Conflict(format!(
                    "filter {:?} with the action \"{}\" is there with the priorities {}: say --priority, or the id",
                    filter.r#match.value().to_string(),
                    filter.action.value(),
                    priorities.join(", ")
                )))
            }
        }
    }

    /// The action and the gate of a filter of the configuration.
    fn looked_up(&self, filter: &Filter) -> Result<(Action, GateId), ControlError> {
        let (matches, action) = (filter.r#match.value(), filter.action.value());
        let gate = filter.gate.as_deref().or(action.default_gate()).unwrap_or_default();
        let gate = self.plugins.gate(gate)?.id;
        let gone = match action {
            FilterAction::Queue(name) => self.schedulers.known(name).map(Action::Queue),
            _ => None,
        };
        // The leaf that it names may have been removed before.
        Ok((gone.map_or_else(|| self.action(action, matches), Ok)?, gate))
    }

    /// The id of a filter that is there, as people know it.
    pub(super) fn number_of(&self, filter: &Filter) -> Option<u64> {
        self.plugins.binding(self.find_filter(filter).ok()?).map(|bound| bound.number)
    }
}

fn no_such_filter(filter: &Filter) -> ControlError {
    let (matches, action) = (filter.r#match.value().to_string(), filter.action.value());
    ControlError::NotFound(format!("no filter {matches:?} has the action \"{action}\""))
}
