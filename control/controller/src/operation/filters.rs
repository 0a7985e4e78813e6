//! Operations on filters, gates and bindings.

use std::collections::{BTreeSet, HashSet};

use millrace_classify::{FilterExpression, analyse};
use millrace_config::{self as config, Change as ConfigChange, Filter, Gate, GateTable, Text};
use millrace_plugin::{Action, BindingId};
use millrace_plugin_abi::Position;
use millrace_units::{GateId, InstanceId};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::admission::allowances::{self as permitted, Requester};
use crate::admission::shares::{check_filter, check_running};
use crate::background::blocking;
use crate::configuration::lists::{AddedFilters, Numbered, numbers_of, try_filters};
use crate::filters::check::{Entries, PAIRS, entries, view};
use crate::filters::conflicts::FilterConflicts;
use crate::filters::explain::{Winners, explain_gate, giver_of_principal};
use crate::filters::{new_filter, parse_filter, refuse_unreachable};
use crate::model::Model;
use crate::model::packets::ReadPacket;
use crate::model::running::{gate_table, written_table};
use crate::operation::Operation;
use crate::operation::kinds::{Change, Changing, Query, Reading};
use crate::request::page::{Page, PageQuery};
use crate::request::{NewBinding, NewFilter, OldFilter};
use crate::router::Inner;
use crate::view::{BindingView, GateCheckView, GateExplanationView, GateView};
use crate::workers::ask::Ask;
use crate::workers::death::Need;
use crate::{ControlError, Wrong, show};

/// Lists all bindings, or a page of them, ordered by id: the bindings of instances, and the filters whose
/// action is no instance.
#[derive(Clone, Debug, Default)]
pub struct ListBindings(pub PageQuery);

impl Operation for ListBindings {
    type Answer = Page<BindingView>;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an invalid limit or cursor, or if the data plane does not answer.
    async fn carry_out(self, router: &Reading) -> Result<Page<BindingView>, ControlError> {
        let Self(query) = self;
        let most = query.most()?;
        let mut guard = router.lock();
        let inner = guard.seen();
        if !query.is_asked() {
            let counts = inner.workers.filter_counts()?;
            return Ok(Page::whole(show::bindings(&counts, inner.model)));
        }
        let after: Option<u64> = query.after()?;
        let further = inner.model.plugins.bindings_by_age();
        let mut page: Vec<_> = further
            .filter(|(_, bound)| after.is_none_or(|after| bound.number > after))
            .take(most + 1)
            .collect();
        let more = page.len() > most;
        page.truncate(most);
        let ids: Vec<BindingId> = page.iter().map(|(id, _)| *id).collect();
        let counts = inner.workers.counts_of(&ids)?;
        let rows: Vec<_> =
            page.iter().map(|(id, bound)| show::binding(*id, bound, &counts, inner.model)).collect();
        let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
        Ok(Page { rows, next })
    }
}

/// Binds an instance to the flows that a filter matches. When the operation is done, the binding applies to
/// the next packet.
#[derive(Clone, Debug, Deserialize)]
pub struct Bind(pub NewBinding);

impl Operation for Bind {
    type Answer = BindingView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown instance, gate, port or principal, an invalid filter, an existing
    /// binding, a principal whose reserved share the workers lack, or a wrong weight.
    async fn carry_out(self, router: &Changing) -> Result<BindingView, ControlError> {
        let bind = configured_bind(&self.0)?;
        let by = router.caller().requester();
        let plan = move |inner: &mut Inner| {
            inner.supervision.death.refuse_silent(Need::Bindings)?;
            // These errors come before that of a missing share.
            let instance = inner.model.plugins.instance(&bind.instance)?;
            let gate = inner.model.plugins.gate(&bind.gate)?.id;
            inner.model.payer(&bind.instance, (bind.principal.as_deref(), bind.queue))?;
            check_running(&inner.model, &inner.model.principals, bind.principal.as_deref())?;
            let moved = inner.gates().has_moved(gate);
            let change = self.plan(&inner.model, &by)?;
            Ok((vec![change], (instance, gate, bind, moved)))
        };
        let answer =
            |inner: &mut Inner, (instance, gate, bind, moved): (InstanceId, GateId, config::Bind, bool)| {
                let registry = inner.model.plugins.binding_registry();
                let id = registry.find(&Action::Instance(instance), gate, bind.filter.value(), bind.priority);
                inner.gates().added(id.ok_or_else(not_added)?, moved)
            };
        router.change(plan, answer).await
    }
}

impl Bind {
    /// Returns the change, if the reserved shares fit and the user may make it.
    ///
    /// # Errors
    /// Returns an error for an invalid filter, a share that the workers lack, or what an allowance refuses.
    pub(super) fn plan(self, model: &Model, by: &Requester) -> Result<ConfigChange, ControlError> {
        let bind = configured_bind(&self.0)?;
        check_running(model, &model.principals, bind.principal.as_deref())?;
        let change = ConfigChange::Bind(bind);
        permitted::check(model, by, std::slice::from_ref(&change))?;
        Ok(change)
    }
}

/// Returns a requested binding in the form of the configuration.
fn configured_bind(new: &NewBinding) -> Result<config::Bind, ControlError> {
    let filter: FilterExpression = parse_filter(&new.filter)?;
    config::Bind::stage_queue(new.queue, new.queue_weight).map_err(ControlError::invalid)?;
    Ok(config::Bind {
        instance: new.instance.as_str().into(),
        gate: new.gate.as_str().into(),
        filter: Text::of(filter),
        priority: new.priority,
        on_fault: new.on_fault,
        principal: new.principal.as_deref().map(Into::into),
        budget: new.budget,
        packet_budget: new.packet_budget,
        queue: new.queue,
        queue_weight: new.queue_weight,
    })
}

/// Returns the error for a new binding or filter that can't be found.
fn not_added() -> ControlError {
    ControlError::System("internal error: the new filter can't be found".into())
}

/// Returns the changes of a removal, with the view of the first removed binding or filter.
fn with_first(
    (changes, views): (Vec<config::Change>, Vec<BindingView>),
) -> Result<(Vec<config::Change>, BindingView), ControlError> {
    let first = views.into_iter().next();
    let missing = || ControlError::System("internal error: the removed filter has no view".into());
    Ok((changes, first.ok_or_else(missing)?))
}

/// Removes all bindings of an instance to a filter at a gate, whatever their priority. When the operation is
/// done, the bindings apply to no further packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unbind {
    /// Name of the instance.
    pub instance: String,
    /// Name of the gate.
    pub gate: String,
    /// Filter of the bindings.
    pub filter: String,
}

impl Operation for Unbind {
    type Answer = BindingView;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// Returns the view of one of the bindings.
    ///
    /// # Errors
    /// Returns an error if there is no such binding.
    async fn carry_out(self, router: &Changing) -> Result<BindingView, ControlError> {
        let Self { instance, gate, filter } = self;
        let filter: FilterExpression = parse_filter(&filter)?;
        let plan = move |inner: &mut Inner| {
            let written = filter.to_string();
            let is_it = |one: &millrace_plugin::BindingDescription| {
                one.instance.as_ref() == Some(&instance) && one.gate == gate && one.filter == written
            };
            let described = inner.model.plugins.bindings().into_iter().filter(is_it);
            let there: Vec<BindingId> = described.map(|described| described.id).collect();
            if there.is_empty() {
                // This call fails, and its error tells which name is unknown.
                inner.model.plugins.deregister_instance(&instance, &gate, &filter, None)?;
            }
            with_first(inner.gates().plan_removal(&there)?)
        };
        router.change(plan, |_, view| Ok(view)).await
    }
}

/// Adds a filter. When the operation is done, the filter applies to the next packet.
#[derive(Clone, Debug)]
pub struct AddFilter(pub NewFilter);

impl Operation for AddFilter {
    type Answer = BindingView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an invalid filter or action, unknown names, an existing filter, or a principal whose
    /// reserved share the workers lack. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<BindingView, ControlError> {
        let filter = new_filter(&self.0)?;
        let by = router.caller().requester();
        let plan = move |inner: &mut Inner| {
            inner.supervision.death.refuse_silent(Need::Filters)?;
            FilterConflicts::with_conditions_of(&inner.model, &filter).add(&inner.model, &filter)?;
            let change = ConfigChange::AddFilter(filter.clone());
            permitted::check(&inner.model, &by, std::slice::from_ref(&change))?;
            check_filter(&inner.model, &filter)?;
            refuse_unreachable(&filter, &inner.model, &inner.kernel, &inner.devices)?;
            let gate = filter.gate.as_deref().or(filter.action.value().default_gate());
            let gate = gate.and_then(|gate| inner.model.plugins.gate(gate).ok()).map(|gate| gate.id);
            let moved = gate.is_some_and(|gate| inner.gates().has_moved(gate));
            Ok((vec![change], (filter, moved)))
        };
        let answer = |inner: &mut Inner, (filter, moved): (config::Filter, bool)| {
            let id = inner.model.find_filter(&filter)?;
            inner.gates().added(id, moved)
        };
        router.change(plan, answer).await
    }
}

/// Removes filters and bindings by their ids: all of them, or none. Each worker drops up to 64 of them together,
/// between two batches.
#[derive(Clone, Debug)]
pub struct RemoveFilters {
    /// Ids of the filters and bindings.
    pub ids: Vec<u64>,
}

impl Operation for RemoveFilters {
    type Answer = Vec<BindingView>;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error if one of the ids doesn't exist. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<Vec<BindingView>, ControlError> {
        let numbers = BTreeSet::from_iter(self.ids);
        let plan = move |inner: &mut Inner| {
            let plugins = &inner.model.plugins;
            let numbered = |number: u64| {
                plugins.binding_registry().numbered(number).ok_or_else(|| {
                    ControlError::not_found(format!("no filter has the id {number}: `filter list` shows all"))
                })
            };
            let ids = numbers.into_iter().map(numbered).collect::<Result<Vec<_>, _>>()?;
            inner.gates().plan_removal(&ids)
        };
        router.change(plan, |_, views| Ok(views)).await
    }
}

/// Removes a filter, identified by match, action, gate and optional priority.
#[derive(Clone, Debug)]
pub struct RemoveFilter(pub OldFilter);

impl Operation for RemoveFilter {
    type Answer = BindingView;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for an invalid filter or action, or an unknown filter. Also refuses if the priority
    /// is missing and several filters qualify. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<BindingView, ControlError> {
        let OldFilter { filter, action, gate, priority } = self.0;
        let written =
            new_filter(&NewFilter { filter, action, gate, priority: priority.unwrap_or_default() })?;
        let plan = move |inner: &mut Inner| {
            let id = match priority {
                Some(_) => inner.model.find_filter(&written)?,
                None => inner.model.find_only_filter(&written)?,
            };
            with_first(inner.gates().plan_removal(&[id])?)
        };
        router.change(plan, |_, view| Ok(view)).await
    }
}

/// Explains which filter each gate chooses for a packet, and why the other filters don't apply. Omits gates
/// without filters.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainFilters {
    /// Description of the packet, in the form of a filter without wildcards for the addresses.
    pub packet: String,
}

impl Operation for ExplainFilters {
    type Answer = Vec<GateExplanationView>;
    type Kind = Query;

    /// # Errors
    /// Returns an error if the packet is invalid.
    async fn carry_out(self, router: &Reading) -> Result<Vec<GateExplanationView>, ControlError> {
        let packet = ReadPacket::read(&self.packet)?;
        let mut inner = router.lock();
        let candidate = packet.candidate(&inner.model)?;
        let route = inner.seen().route_views().to_address(candidate.key.destination()).map(|route| route.to);
        let mut found = Vec::new();
        for gate in inner.model.plugins.gates() {
            let known = inner.model.plugins.gate(&gate.name)?;
            let Some(table) = inner.tables.table(known.id).filter(|_| !gate.bindings.is_empty()) else {
                continue;
            };
            found.push((gate, known.position, table, table.lookup(&candidate)));
        }
        let mut winners = Winners {
            route: route.as_deref(),
            chosen: false,
            principal: giver_of_principal(&inner.model, found.iter().filter_map(|(.., winner)| *winner)),
        };
        let mut gates = Vec::new();
        for (gate, position, table, winner) in found {
            let won = winner.map(|winner| winners.meet(&inner.model, position, winner));
            let (candidates, left_out) =
                explain_gate(&inner.model, table.filters(), &candidate, won.as_ref());
            gates.push(GateExplanationView {
                gate: gate.name,
                position: gate.position,
                candidates,
                left_out,
            });
        }
        Ok(gates)
    }
}

/// Checks the filters of each gate: finds filters that never win, and pairs of filters whose winner is
/// unclear.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckFilters;

impl Operation for CheckFilters {
    type Answer = Vec<GateCheckView>;
    type Kind = Query;

    /// Compares filters on a blocking thread.
    ///
    /// # Errors
    /// Returns an error if a gate has more than 32,768 filters.
    async fn carry_out(self, router: &Reading) -> Result<Vec<GateCheckView>, ControlError> {
        let gates = {
            let inner = router.lock();
            entries(&inner.model, &inner.tables)?
        };
        let analyse_all = move || {
            let analysed = |(gate, entries): (String, Entries)| {
                let analysis = analyse(&entries, PAIRS, |entry| entry.value);
                (gate, entries, analysis)
            };
            Ok(gates.into_iter().map(analysed).collect::<Vec<_>>())
        };
        let analysed = blocking("compare filters", analyse_all).await?;
        let inner = router.lock();
        Ok(analysed
            .into_iter()
            .map(|(gate, entries, found)| view(gate, &entries, found, &inner.model))
            .collect())
    }
}

/// Lists the gates with their bindings.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListGates;

impl Operation for ListGates {
    type Answer = Vec<GateView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<GateView>, ControlError> {
        let mut guard = router.lock();
        let inner = guard.seen();
        let counts = inner.workers.filter_counts()?;
        Ok(show::gates(&counts, inner.model, inner.tables))
    }
}

/// Creates a gate, which becomes the last gate at its position.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateGate {
    /// Name of the gate.
    pub name: String,
    /// Position in the packet's path.
    pub position: String,
}

impl Operation for CreateGate {
    type Answer = GateView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown position or a name in use.
    async fn carry_out(self, router: &Changing) -> Result<GateView, ControlError> {
        let Self { name, position } = self;
        let position: Position = position.parse().map_err(ControlError::invalid)?;
        let (position, table) = (Some(Text::of(position)), GateTable::default());
        let gate = Gate { name: name.as_str().into(), position, table };
        let plan = move |_: &mut Inner| Ok((vec![config::Change::AddGate(gate)], ()));
        router.change(plan, move |inner, ()| inner.gates().find(&name)).await
    }
}

/// Sets the kind of a gate's filter table. The filters move into the new table while the router forwards. All
/// kinds return the same matches.
#[derive(Clone, Debug)]
pub struct SetGateTable {
    /// Name of the gate.
    pub name: String,
    /// Kind of the table.
    pub table: String,
}

impl Operation for SetGateTable {
    type Answer = GateView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown gate or kind of table.
    async fn carry_out(self, router: &Changing) -> Result<GateView, ControlError> {
        let Self { name, table } = self;
        let kind = table.parse().map_err(ControlError::invalid)?;
        let plan = move |inner: &mut Inner| {
            let from = gate_table(inner.model.plugins.gate(&name)?.id, &inner.tables);
            Ok((vec![config::Change::SetGate { gate: name.clone(), from, to: written_table(kind) }], name))
        };
        router.change(plan, |inner, name| inner.gates().find(&name)).await
    }
}

/// Removes a gate without bindings.
#[derive(Clone, Debug)]
pub struct RemoveGate {
    /// Name of the gate.
    pub name: String,
}

impl Operation for RemoveGate {
    type Answer = GateView;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error if the gate is unknown or in use.
    async fn carry_out(self, router: &Changing) -> Result<GateView, ControlError> {
        let plan = move |inner: &mut Inner| {
            let view = inner.gates().find(&self.name)?;
            let gate = inner.model.plugins.gate(&self.name)?;
            let gate = Gate {
                name: gate.name.as_str().into(),
                position: Some(Text::of(gate.position)),
                table: gate_table(gate.id, &inner.tables),
            };
            Ok((vec![config::Change::RemoveGate(gate)], view))
        };
        router.change(plan, |_, view| Ok(view)).await
    }
}

/// Adds filters: all of them, or none.
#[derive(Clone, Debug)]
pub struct AddFilters(pub Vec<NewFilter>);

impl Operation for AddFilters {
    type Answer = AddedFilters;
    type Kind = Change;

    /// Returns the ids of the filters, and the added filters that never win.
    ///
    /// # Errors
    /// Returns [`ControlError::List`] with the faulty entries, for the reasons of
    /// [`AddFilter`](crate::operation::AddFilter).
    async fn carry_out(self, router: &Changing) -> Result<AddedFilters, ControlError> {
        let numbers = |inner: &Inner, changes: &[config::Change]| numbers_of(&inner.model, changes);
        let by = router.caller().requester();
        let try_all = move |inner: &mut Inner, filters: Numbered<Filter>, wrong: &mut Wrong| {
            try_filters(inner, &by, filters, wrong)
        };
        let ids = router.make_list(self.0, |new| new_filter(&new), try_all, numbers).await?;
        let meant: HashSet<u64> = ids.iter().copied().collect();
        let shadowed = router.never_winning(|number| meant.contains(&number)).await;
        Ok(AddedFilters { ids, shadowed })
    }
}
