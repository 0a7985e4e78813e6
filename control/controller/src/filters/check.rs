//! Checks the filters of all gates: finds filters that never win, and pairs of filters whose winner is
//! unclear.

use std::collections::{HashMap, HashSet};

use millrace_classify::{Analysis, Entry, FilterId, analyse};
use millrace_pipeline::GateTables;
use millrace_plugin::BindingId;
use millrace_plugin_abi::Position;
use millrace_units::GateId;

use crate::ControlError;
use crate::model::Model;
use crate::show;
use crate::view::{AmbiguousView, GateCheckView, NamedFilterView, ShadowedView};

/// Maximum number of ambiguous pairs in the result; further pairs are only counted.
pub(crate) const PAIRS: usize = 100;
/// Maximum number of filters of a gate for which a check is made. A check of this many filters takes ten
/// seconds.
const MOST: usize = 1 << 15;

/// Maximum number of filters at a gate for which control warns after a change about filters that never win.
/// Comparing more filters takes too long.
pub(crate) const MOST_COMPARED: usize = 4096;

pub(crate) type Entries = Vec<Entry<BindingId>>;

pub(crate) type Shadows = Vec<(BindingId, Vec<BindingId>)>;

/// Returns the views of the shadowed bindings whose numbers `is_meant` selects, the oldest first.
pub fn named_shadows(model: &Model, mut found: Shadows, is_meant: impl Fn(u64) -> bool) -> Vec<ShadowedView> {
    let number = |id: &BindingId| model.plugins.binding(*id).map(|bound| bound.number);
    found.retain(|(id, _)| number(id).is_some_and(&is_meant));
    found.sort_by_key(|(id, _)| number(id));
    let view = |(id, by): &(BindingId, Vec<BindingId>)| {
        let by = by.iter().filter_map(|id| named(*id, model)).collect();
        Some(ShadowedView { filter: named(*id, model)?, by })
    };
    found.iter().filter_map(view).collect()
}

/// Returns the filters of each gate that has a binding whose number `is_meant` selects. Omits gates with more
/// than [`MOST_COMPARED`] filters.
pub fn compared(model: &Model, is_meant: impl Fn(u64) -> bool) -> Vec<Entries> {
    let mut gates: HashMap<GateId, (bool, Entries)> = HashMap::new();
    let by_age = model.plugins.bindings_by_age();
    let all = by_age
        .flat_map(|(id, bound)| bound.compiled.alternatives().iter().map(move |filter| (id, bound, filter)));
    for (age, (value, bound, filter)) in (0..).zip(all) {
        let (has_meant, entries) = gates.entry(bound.gate).or_default();
        *has_meant |= is_meant(bound.number);
        entries.push(Entry { id: FilterId(age), filter: *filter, priority: bound.priority, value });
    }
    let few = |(has_meant, entries): &(bool, Entries)| *has_meant && entries.len() <= MOST_COMPARED;
    gates.into_values().filter(few).map(|(_, entries)| entries).collect()
}

/// Returns the filters and bindings that never win, each with the filters that shadow it.
pub fn never_winning(model: &Model) -> Vec<ShadowedView> {
    let found = compared(model, |_| true).iter().flat_map(shadows).collect();
    named_shadows(model, found, |_| true)
}

pub(crate) fn shadows(entries: &Entries) -> Shadows {
    shadowed_bindings(entries, &analyse(entries, 0, |entry| entry.value))
}

/// Returns the filters of each gate that has any.
pub(crate) fn entries(model: &Model, tables: &GateTables) -> Result<Vec<(String, Entries)>, ControlError> {
    let mut gates = Vec::new();
    for gate in model.plugins.gates() {
        let id = model.plugins.gate(&gate.name)?.id;
        let Some(table) = tables.table(id) else { continue };
        let filters = table.filters().len();
        if filters > MOST {
            return Err(ControlError::invalid(format!(
                "gate {:?} has {}: more than {MOST} take too long to compare with each other",
                gate.name,
                millrace_units::count(filters, "filter")
            )));
        }
        if filters > 0 {
            gates.push((gate.name, table.filters().entries().copied().collect()));
        }
    }
    Ok(gates)
}

pub(crate) fn view(gate: String, entries: &Entries, found: Analysis, model: &Model) -> GateCheckView {
    let by_id: HashMap<FilterId, &Entry<BindingId>> = entries.iter().map(|entry| (entry.id, entry)).collect();
    let name = |id: &FilterId| by_id.get(id).and_then(|entry| named(entry.value, model));
    let at_route = model.plugins.gate(&gate).is_ok_and(|gate| gate.position == Position::Route);
    let below = |entry: &&Entry<BindingId>| at_route && is_below_routes(entry, model);
    let shadowed = shadowed_bindings(entries, &found).into_iter().filter_map(|(binding, by)| {
        let by = by.into_iter().filter_map(|by| named(by, model)).collect();
        Some(ShadowedView { filter: named(binding, model)?, by })
    });
    let binding = |id: &FilterId| by_id.get(id).map(|entry| entry.value);
    let ambiguous = found.ambiguous.iter().filter_map(|pair| {
        Some(AmbiguousView {
            winner: name(&pair.winner)?,
            loser: name(&pair.loser)?,
            decided_by: pair.decided_by.map_or_else(|| "age".to_owned(), |field| field.to_string()),
        })
    });
    GateCheckView {
        filters: entries.iter().map(|entry| entry.value).collect::<HashSet<_>>().len(),
        shadowed: shadowed.collect(),
        undecided: distinct(found.undecided.iter().filter_map(binding), model),
        ambiguous: ambiguous.collect(),
        ambiguous_pairs: found.ambiguous_pairs,
        below_routes: distinct(entries.iter().filter(below).map(|entry| entry.value), model),
        gate,
    }
}

/// Returns the bindings whose alternatives are all shadowed, each with the bindings that shadow it.
fn shadowed_bindings(entries: &Entries, found: &Analysis) -> Vec<(BindingId, Vec<BindingId>)> {
    let binding_of: HashMap<FilterId, BindingId> =
        entries.iter().map(|entry| (entry.id, entry.value)).collect();
    let mut left: HashMap<BindingId, usize> = HashMap::new();
    entries.iter().for_each(|entry| *left.entry(entry.value).or_default() += 1);
    let mut before: Vec<(BindingId, Vec<BindingId>)> = Vec::new();
    for shadowed in &found.shadowed {
        let Some(binding) = binding_of.get(&shadowed.filter).copied() else { continue };
        left.entry(binding).and_modify(|left| *left -= 1);
        let at = before.iter().position(|(known, _)| *known == binding).unwrap_or_else(|| {
            before.push((binding, Vec::new()));
            before.len() - 1
        });
        for by in shadowed.by.iter().filter_map(|id| binding_of.get(id).copied()) {
            if by != binding && !before[at].1.contains(&by) {
                before[at].1.push(by);
            }
        }
    }
    before.retain(|(binding, _)| left.get(binding) == Some(&0));
    before
}

/// Returns the view of each binding once.
fn distinct(bindings: impl Iterator<Item = BindingId>, model: &Model) -> Vec<NamedFilterView> {
    let mut seen = HashSet::new();
    bindings.filter(|binding| seen.insert(*binding)).filter_map(|binding| named(binding, model)).collect()
}

/// Whether an entry at a gate of position `route` has a lower priority than routes. Always false for the
/// binding of an instance.
fn is_below_routes(entry: &Entry<BindingId>, model: &Model) -> bool {
    let bound = model.plugins.binding(entry.value);
    entry.priority < model.options.route_priority
        && bound.is_some_and(|bound| bound.action.instance().is_none())
}

/// Returns the view of a filter; `None` if it was removed in the meantime.
pub(crate) fn named(id: BindingId, model: &Model) -> Option<NamedFilterView> {
    let bound = model.plugins.binding(id)?;
    let (filter, action) = (bound.filter.to_string(), show::action(&bound.action, model));
    Some(NamedFilterView { id: bound.number, filter, action, priority: bound.priority })
}
