//! Explains filters: the filter that each gate chooses for a packet, and the reason.

use std::collections::HashSet;

use millrace_classify::{Candidate, FilterTable, Outcome};
use millrace_plugin::{Action, BindingId, Standing};
use millrace_plugin_abi::Position;

use crate::model::Model;
use crate::show;
use crate::view::CandidateView;

/// Maximum number of non-matching filters in a gate's explanation; people read no longer list.
const MISMATCHES: usize = 32;
/// Effect of a filter whose principal doesn't apply.
const BEATEN_PRINCIPAL: &str = "a filter at a later gate gives another principal";

/// Returns the filter that gives a path its principal: the last one, among the winning filters in the order of
/// gates.
pub(crate) fn giver_of_principal(
    model: &Model,
    winners: impl Iterator<Item = BindingId>,
) -> Option<BindingId> {
    let gives = |id: &BindingId| {
        let bound = model.plugins.binding(*id);
        bound.is_some_and(|bound| matches!(bound.action, Action::Principal(_)))
    };
    winners.filter(gives).last()
}

/// Winning filter of a gate.
pub(crate) struct Winner {
    /// Binding of the filter.
    id: BindingId,
    /// Reason why the filter names a route but doesn't determine the packet's route.
    beaten: Option<String>,
    /// Further effect of the filter.
    effect: Option<String>,
}

/// State of an explanation as it proceeds from gate to gate: the packet's route, and whether a filter has
/// already chosen another route.
pub(crate) struct Winners<'a> {
    /// Destination prefix of the packet's route; `None` without a route.
    pub route: Option<&'a str>,
    /// Whether a filter at an earlier gate has chosen the route.
    pub chosen: bool,
    /// Filter that gives the packet's path its principal.
    pub principal: Option<BindingId>,
}

impl Winners<'_> {
    /// Records the winning filter of the next gate, which is at `position`, and returns its effect.
    pub fn meet(&mut self, model: &Model, position: Position, id: BindingId) -> Winner {
        let beaten = self.beaten(model, position, id);
        let effect = if beaten.is_none() { self.effect(model, id) } else { None };
        Winner { id, beaten, effect }
    }

    /// Returns the effect of a winning filter on the wait for the processor.
    fn effect(&self, model: &Model, id: BindingId) -> Option<String> {
        let bound = model.plugins.binding(id)?;
        if let Action::Principal(_) = bound.action {
            let is_given = self.principal == Some(id);
            let text =
                if is_given { "it pays for bindings that name no principal" } else { BEATEN_PRINCIPAL };
            return Some(text.to_owned());
        }
        bound.action.instance()?;
        let of_path = self.principal.and_then(|giver| model.plugins.binding(giver)?.call_limits.principal);
        let payer = bound.call_limits.payer(of_path);
        if let Some(payer) = bound.call_limits.charged(payer) {
            return Some(format!("the call runs {}", show::in_line(payer, model)));
        }
        let wait = bound.call_limits.wait(payer, bound.gate)?;
        Some(format!("packets wait {}", show::processor_wait(wait, model)))
    }

    /// Returns the reason why the winning filter names a route but doesn't determine the packet's route.
    /// Returns `None` if the filter determines the route, or names none.
    fn beaten(&mut self, model: &Model, position: Position, winner: BindingId) -> Option<String> {
        let bound = model.plugins.binding(winner)?;
        let priority = model.options.route_priority;
        let route = self.route.map(|_| priority);
        match Standing::of(position, &bound.action, bound.priority, (self.chosen, route)) {
            Standing::RouteChosen => {
                Some("matches, but a filter at an earlier gate has already chosen the route".to_owned())
            }
            Standing::BelowRoute => Some(format!(
                "matches, but the route to {} has priority {priority}, which is higher",
                self.route.unwrap_or("-")
            )),
            Standing::Route => {
                self.chosen = true;
                None
            }
            Standing::Stage | Standing::Inert => None,
        }
    }
}

/// Returns the filters of a gate in the order of precedence: all matching filters, up to [`MISMATCHES`]
/// others, and the winner even if it does not match. Also returns the number of omitted filters.
pub(crate) fn explain_gate(
    model: &Model,
    filters: &dyn FilterTable<BindingId>,
    candidate: &Candidate,
    winner: Option<&Winner>,
) -> (Vec<CandidateView>, usize) {
    let (mut views, mut mismatches) = (Vec::new(), 0);
    let explained = filters.explain(candidate);
    let is_mismatch = |outcome: &Outcome| matches!(outcome, Outcome::Mismatch(_));
    let matched: HashSet<BindingId> =
        explained.iter().filter(|one| !is_mismatch(&one.outcome)).map(|one| one.entry.value).collect();
    let mut seen = HashSet::new();
    for explained in explained {
        let (id, wins) =
            (explained.entry.value, winner.is_some_and(|winner| winner.id == explained.entry.value));
        let mismatch = is_mismatch(&explained.outcome);
        // All alternatives of a filter share one line. It shows the first alternative that matches, or else
        // the first one.
        if mismatch && matched.contains(&id) || !seen.insert(id) {
            continue;
        }
        mismatches += usize::from(mismatch);
        if mismatch && !wins && mismatches > MISMATCHES {
            continue;
        }
        let bound = model.plugins.binding(id);
        let beaten = winner.and_then(|winner| winner.beaten.as_deref());
        let outcome = match beaten {
            Some(beaten) if wins => beaten.to_owned(),
            _ if wins && mismatch => {
                "chosen: this filter may drop packets by their ports, and the ports of this packet can't be read".to_owned()
            }
            _ if mismatch && bound.is_some_and(|bound| bound.compiled.alternatives().len() > 1) => {
                "no alternative matches".to_owned()
            }
            _ => explained.outcome.to_string(),
        };
        let outcome = match winner.filter(|_| wins).and_then(|winner| winner.effect.as_deref()) {
            Some(effect) => format!("{outcome}; {effect}"),
            None => outcome,
        };
        views.push(CandidateView {
            id: bound.map_or(0, |bound| bound.number),
            action: bound.map_or_else(String::new, |bound| show::action(&bound.action, model)),
            filter: bound.map_or_else(String::new, |bound| bound.filter.to_string()),
            priority: explained.entry.priority,
            chosen: wins && beaten.is_none(),
            outcome,
        });
    }
    (views, mismatches.saturating_sub(MISMATCHES))
}
