//! Removes scheduler nodes. Filters that name a queue of a removed node are moved or removed, so that no
//! filter names a missing queue.

use std::collections::HashSet;
use std::iter;

use millrace_config::{Change, Filter, FilterAction, Heir, Scheduler, Text};
use millrace_plugin::{Action, BindingId};
use millrace_units::{by_number, count};

use crate::ControlError;
use crate::model::Model;
use crate::model::principals::Owners;
use crate::model::schedulers::without;
use crate::request::NodeRemoval;
use crate::show;
use crate::view::BindingView;
use crate::workers::Workers;

/// Maximum number of filters listed in an error.
const NAMED: usize = 5;

/// Returns the changes that move the filters to queue `to`, or remove the filters if `to` is `None`. If two
/// filters become equal, the filter with the higher priority stays.
fn without_queue(model: &Model, filters: &[BindingId], to: Option<&str>) -> Vec<Change> {
    let mut filters: Vec<_> = filters.iter().filter_map(|id| model.plugins.binding(*id)).collect();
    filters.sort_by_key(|bound| std::cmp::Reverse(bound.priority));
    let mut there = HashSet::new();
    let mut changes = Vec::new();
    for bound in filters {
        let filter = model.running_filter(bound);
        changes.push(Change::RemoveFilter(filter.clone()));
        if let Some(to) = to {
            let number = model.schedulers.known(to).unwrap_or_default();
            let there_already =
                model.plugins.binding_registry().find_all(&Action::Queue(number), bound.gate, &bound.filter);
            let other = there_already.first().and_then(|(_, id)| model.plugins.binding(*id));
            let wins = other.is_none_or(|other| other.priority < bound.priority);
            if wins && there.insert((bound.gate, &bound.filter)) {
                changes.extend(other.map(|other| Change::RemoveFilter(model.running_filter(other))));
                let action = Text::of(FilterAction::Queue(to.to_owned()));
                changes.push(Change::AddFilter(Filter { action, ..filter }));
            }
        }
    }
    changes
}

/// Returns the filters that would lose their queue if a node of a port's scheduler were removed. Their queue
/// is at or below the node, and no other port has a queue of this name.
fn filters_below(model: &Model, port: &str, node: &str) -> Result<Vec<BindingId>, ControlError> {
    let alone = model.schedulers.leaves_alone(model.port(port)?.id, node);
    let names = |action: &Action| matches!(action, Action::Queue(queue) if alone.contains(model.schedulers.name(*queue)));
    let filters = model.plugins.bindings_by_age().filter(|(_, bound)| names(&bound.action));
    Ok(filters.map(|(id, _)| id).collect())
}

/// Returns the changes that remove a node, and that move or remove the filters whose queue is removed. Also
/// returns the views of these filters.
pub(crate) fn plan_removal(
    model: &Model,
    workers: &mut Workers,
    port: &str,
    node: &str,
    removal: &NodeRemoval,
) -> Result<(Vec<Change>, Vec<BindingView>), ControlError> {
    let id = model.port(port)?.id;
    let to = removal.to.as_deref();
    let from = model.schedulers.configured(id).unwrap_or_default();
    let after = without(&from, port, node, to)?;
    Owners(model).check_links_at(port, &after)?;
    let filters = filters_below(model, port, node)?;
    let views = show::binding_views(&filters, &workers.counts_of(&filters)?, model);
    if !filters.is_empty() && to.is_none() && !removal.with_filters {
        return Err(named(port, node, &views));
    }
    let own = |scheduler: Scheduler| (!scheduler.node.is_empty()).then(|| Box::new(scheduler));
    let heir = removal.to.clone().map_or(Heir::Nobody, Heir::Leaf);
    let tree = Change::SetScheduler { port: port.to_owned(), from: own(from), to: own(after), heir };
    // The tree changes first, then the filters. In between, new packets for the old queue go to leaf `to`,
    // behind the packets that have moved there. So the packets stay in order.
    let filters = without_queue(model, &filters, to.filter(|_| !removal.with_filters));
    Ok((iter::once(tree).chain(filters).collect(), views))
}

/// Returns the error for a node that can't be removed, because filters name a queue at or below the node.
fn named(port: &str, node: &str, filters: &[BindingView]) -> ControlError {
    let first: Vec<String> = filters
        .iter()
        .take(NAMED)
        .map(|one| format!("{} {:?} ({})", one.id, one.filter, one.action))
        .collect();
    let more = match filters.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (count, name) = (count(filters.len(), "filter"), by_number(filters.len(), "names", "name"));
    ControlError::conflict(format!(
        "{count} {name} a queue at or below node {node:?} that no other port has: {}{more}; move the packets to another leaf \
         (`scheduler remove {port} {node} --to LEAF`), or remove the filters together with the node (`--with-filters`)",
        first.join(", ")
    ))
}
