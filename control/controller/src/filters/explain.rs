//! Explanation of filters: the filter that each gate chooses for a packet, and the reason.

use std::collections::HashSet;

use millrace_classify::{Candidate, FilterTable, Outcome};
use millrace_plugin::BindingId;

use crate::model::Model;
use crate::show;
use crate::view::CandidateView;

/// Maximum number of filters in a gate's explanation that don't match the packet; people read no longer list.
const MISMATCHES: usize = 32;

/// Whether the action of a binding at a gate of position `route` replaces the route. Instances and `accept`
/// don't.
pub(crate) fn chooses_way(model: &Model, id: BindingId) -> bool {
    model.plugins.binding(id).is_some_and(|bound| bound.action.is_route())
}

/// Returns the reason why the winning filter at a gate of position `route` doesn't determine the packet's
/// route; `None` if it does.
pub(crate) fn beaten(model: &Model, winner: BindingId, primary: bool, route: Option<&str>) -> Option<String> {
    if !chooses_way(model, winner) {
        return None;
    }
    let bound = model.plugins.binding(winner)?;
    let priority = model.options.route_priority;
    if primary {
        return Some("matches, but a filter at an earlier gate has already chosen the route".to_owned());
    }
    let route = route.filter(|_| bound.priority < priority)?;
    Some(format!("matches, but the route to {route} has priority {priority}, which is higher"))
}

/// Returns the filters of a gate in the order in which they win: all that match, the winner, and up to
/// [`MISMATCHES`] others. Also returns the number of omitted filters.
pub(crate) fn explain_gate(
    model: &Model,
    filters: &dyn FilterTable<BindingId>,
    candidate: &Candidate,
    winner: Option<BindingId>,
    beaten: Option<&str>,
) -> (Vec<CandidateView>, usize) {
    let (mut views, mut mismatches) = (Vec::new(), 0);
    let explained = filters.explain(candidate);
    let is_mismatch = |outcome: &Outcome| matches!(outcome, Outcome::Mismatch(_));
    let matched: HashSet<BindingId> =
        explained.iter().filter(|one| !is_mismatch(&one.outcome)).map(|one| one.entry.value).collect();
    let mut seen = HashSet::new();
    for explained in explained {
        let (id, wins) = (explained.entry.value, winner == Some(explained.entry.value));
        let mismatch = is_mismatch(&explained.outcome);
        // Alternatives of a filter share one line: that of the first match, else of the first
        // alternative.
        if mismatch && matched.contains(&id) || !seen.insert(id) {
            continue;
        }
        mismatches += usize::from(mismatch);
        if mismatch && !wins && mismatches > MISMATCHES {
            continue;
        }
        let bound = model.plugins.binding(id);
        let outcome = match beaten {
            Some(beaten) if wins => beaten.to_owned(),
            _ if wins && mismatch => {
                "chosen: this filter refuses packets by their ports, and the ports of this packet can't be read".to_owned()
            }
            _ if mismatch && bound.is_some_and(|bound| bound.compiled.alternatives().len() > 1) => {
                "no alternative matches".to_owned()
            }
            _ => explained.outcome.to_string(),
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
