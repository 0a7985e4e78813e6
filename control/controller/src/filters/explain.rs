//! Explanation of filters: the filter that each gate chooses for a packet, and the reason.

use super::MISMATCHES;
use crate::model::Model;
use crate::show::{self};
use crate::view::CandidateView;
use millrace_classify::{Candidate, FilterTable, Outcome};
use millrace_plugin::BindingId;
use std::collections::HashSet;

impl Model {
    /// Returns the filters of a gate in the order in which they win: all that match, the winner, and up to
    /// [`MISMATCHES`] others. Also returns the number of omitted filters.
    pub(super) fn explain_gate(
        &self,
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
            let bound = self.plugins.binding(id);
            let outcome = match beaten {
                Some(beaten) if wins => beaten.to_owned(),
                _ if wins && mismatch => {
                    "chosen: it would refuse the packet by its ports, which can't be read".to_owned()
                }
                _ if mismatch && bound.is_some_and(|bound| bound.compiled.alternatives().len() > 1) => {
                    "no alternative matches".to_owned()
                }
                _ => explained.outcome.to_string(),
            };
            views.push(CandidateView {
                id: bound.map_or(0, |bound| bound.number),
                action: bound.map_or_else(String::new, |bound| show::action(&bound.action, self)),
                filter: bound.map_or_else(String::new, |bound| bound.filter.to_string()),
                priority: explained.entry.priority,
                chosen: wins && beaten.is_none(),
                outcome,
            });
        }
        (views, mismatches.saturating_sub(MISMATCHES))
    }
}
