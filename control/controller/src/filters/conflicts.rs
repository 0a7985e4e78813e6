//! Conflicting filters: two with the same match, gate and priority but different actions. The newer one never
//! wins.

use std::collections::HashMap;

use millrace_classify::FilterExpression;
use millrace_plugin::Action;
use millrace_units::GateId;

use crate::model::Model;
use crate::{ControlError, show};

/// For each gate, match and priority: action and number of the filter that wins. A filter that is only being
/// checked has no number yet (`None`).
#[derive(Debug, Default)]
pub(crate) struct FilterConflicts(HashMap<(GateId, FilterExpression, i32), (Option<u64>, Action)>);

impl FilterConflicts {
    /// Collects the actions of all filters.
    pub fn of(model: &Model) -> Self {
        Self::filtered(model, |_| true)
    }

    /// Collects the actions of the filters that have the same match as `filter`.
    pub fn with_conditions_of(model: &Model, filter: &millrace_config::Filter) -> Self {
        Self::filtered(model, |other| other == filter.r#match.value())
    }

    fn filtered(model: &Model, is_meant: impl Fn(&FilterExpression) -> bool) -> Self {
        let bound = model.plugins.bindings_by_age().map(|(_, bound)| bound);
        let mut known = Self::default();
        for bound in bound.filter(|bound| is_meant(&bound.filter)) {
            // The oldest filter wins.
            let key = (bound.gate, bound.filter.clone(), bound.priority);
            known.0.entry(key).or_insert_with(|| (Some(bound.number), bound.action.clone()));
        }
        known
    }

    /// Adds a filter, unless another filter with the same match, gate and priority has another action.
    pub fn add(&mut self, model: &Model, filter: &millrace_config::Filter) -> Result<(), ControlError> {
        let (conditions, action) = (filter.r#match.value(), filter.action.value());
        let Some(gate) = filter.gate.as_deref().or(action.default_gate()) else { return Ok(()) };
        let meant = model.action(action, conditions)?;
        let key = (model.plugins.gate(gate)?.id, conditions.clone(), filter.priority);
        let (number, there) = self.0.entry(key).or_insert_with(|| (None, meant.clone()));
        if *there == meant {
            return Ok(());
        }
        let who = number.map_or("an earlier filter".to_owned(), |number| format!("filter {number}"));
        Err(ControlError::conflict(format!(
            "{who} with the action {} has the same match {:?}, gate {gate:?} and priority {}, and would win: remove that filter, or choose another \
             priority",
            show::action(there, model),
            conditions.to_string(),
            filter.priority
        )))
    }
}
