//! Changes of many bindings and filters at once.

use millrace_config::{Change, Filter, FilterAction};
use millrace_plugin::{Action, BindingId};
use millrace_units::GateId;

use crate::ControlError;
use crate::model::running::running_bind;
use crate::model::{Model, PluginChange};

/// Changes of bindings and filters that the model has, for the workers.
pub(crate) struct PlannedBindings {
    /// Number of changes made.
    pub made: usize,
    /// Changes for the workers.
    pub changes: Vec<PluginChange>,
    /// Reason why the next change failed.
    pub outcome: Result<(), ControlError>,
}

impl PlannedBindings {
    /// Makes changes of bindings and filters in the model, in order, and stops at the first change that fails. A binding
    /// that a change removes and the next one adds again changes in place at the workers: its packets stay.
    pub fn of(model: &mut Model, changes: &[Change]) -> Self {
        let mut planned = Self { made: 0, changes: Vec::new(), outcome: Ok(()) };
        let mut before = None;
        for change in changes {
            let next = match model.change_binding(change) {
                Ok(next) => next,
                Err(error) => {
                    planned.outcome = Err(error);
                    break;
                }
            };
            let is_again = before.is_some_and(|before: &Change| before.is_renewed_by(change));
            let removal = planned.changes.pop_if(|removal| is_again && next.renews(removal));
            planned.changes.push(if removal.is_some() { next.in_place() } else { next });
            planned.made += 1;
            before = Some(change);
        }
        planned
    }
}

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

/// Returns the changes that remove a binding, or a filter that gives a principal, and add it again. Made together, they
/// change it in place.
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

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    /// Returns a router with these bindings and filters, and its configuration.
    fn planned(bound: &str) -> (Model, Config) {
        let base = "[[principal]]\nname = \"a\"\n[[principal]]\nname = \"b\"\n\
                    [[instance]]\nplugin = \"null\"\nname = \"n\"\n[[instance]]\nplugin = \"null\"\nname = \"m\"\n";
        let config = Config::parse(&format!("{base}{bound}"), "f").unwrap();
        (Model::planned(&config).unwrap(), config)
    }

    /// Returns a binding as configured.
    fn bind(instance: &str, gate: &str, further: &str) -> String {
        format!("[[bind]]\ninstance = \"{instance}\"\ngate = \"{gate}\"\nfilter = \"proto udp\"\n{further}")
    }

    /// Returns the first words of the changes for the workers that replace a binding by another one.
    fn replaced(from: &str, to: &str) -> Vec<String> {
        let ((mut model, before), (_, after)) = (planned(from), planned(to));
        let changes = [Change::Unbind(before.bind[0].clone()), Change::Bind(after.bind[0].clone())];
        let PlannedBindings { made, changes, outcome } = PlannedBindings::of(&mut model, &changes);
        outcome.unwrap();
        assert_eq!((made, model.plugins.binding_registry().paid_by(after_payer(&model))), (2, 1));
        let words = changes.iter().map(|change| format!("{change:?}"));
        words.map(|words| words.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    /// Returns the principal that pays for the only binding.
    fn after_payer(model: &Model) -> millrace_units::PrincipalId {
        let [(_, payer)] = model.plugins.binding_registry().paid_instances().collect::<Vec<_>>()[..] else {
            panic!("one binding")
        };
        payer
    }

    #[test]
    fn same_instance_gate_and_filter_change_in_place() {
        let from = bind("n", "monitor", "principal = \"a\"\n");
        let in_place = [
            "principal = \"b\"\n",
            "principal = \"a\"\npriority = 7\n",
            "principal = \"a\"\non-fault = \"bypass\"\n",
            "principal = \"a\"\nqueue = true\n",
        ];
        for further in in_place {
            assert_eq!(replaced(&from, &bind("n", "monitor", further)), ["change"], "{further}");
        }
        for (instance, gate) in [("m", "monitor"), ("n", "firewall")] {
            let to = bind(instance, gate, "principal = \"a\"\n");
            assert_eq!(replaced(&from, &to), ["unbind", "bind"], "{to}");
        }
    }

    #[test]
    fn bindings_and_filters_that_are_made_again_change_in_place() {
        let filter = "[[filter]]\nmatch = \"proto tcp\"\naction = \"principal a\"\n";
        let (mut model, _) = planned(&format!("{}{filter}", bind("n", "monitor", "")));
        let ids: Vec<BindingId> = model.plugins.bindings_by_age().map(|(id, _)| id).collect();
        let again: Vec<Change> = ids.iter().flat_map(|id| bind_again(&model, *id)).collect();
        let PlannedBindings { made, changes, outcome } = PlannedBindings::of(&mut model, &again);
        outcome.unwrap();
        let in_place = |change: &PluginChange| match change {
            PluginChange::Rebind { binding, .. } => Some(*binding),
            _ => None,
        };
        assert_eq!((made, changes.iter().filter_map(in_place).collect::<Vec<_>>()), (4, ids));
        assert_eq!(changes.len(), 2);
    }

    #[test]
    fn change_that_fails_leaves_the_removal_before_it() {
        let (mut model, config) = planned(&bind("n", "monitor", ""));
        let mut other = config.bind[0].clone();
        other.principal = Some("nobody".into());
        let planned =
            PlannedBindings::of(&mut model, &[Change::Unbind(config.bind[0].clone()), Change::Bind(other)]);
        assert!(planned.outcome.is_err());
        assert_eq!((planned.made, planned.changes.len()), (1, 1));
        assert!(matches!(planned.changes[0], PluginChange::Unbind { .. }));
    }
}
