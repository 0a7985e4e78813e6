//! Creates gates, changes their filter tables, and removes gates.

use millrace_classify::shadowed_by;
use millrace_config::Change;
use millrace_pipeline::{FilterCommand, GateTable, GateTables, TableKind};
use millrace_plugin::BindingId;
use millrace_plugin_abi::Position;
use millrace_units::GateId;

use super::{UNREACHED, is_for_groups};
use crate::ControlError;
use crate::filters::check::{MOST_COMPARED, named};
use crate::model::running::running_bind;
use crate::model::{Bound, Model, PluginChange};
use crate::show::{self, Counts};
use crate::view::{BindingView, GateView, NamedFilterView};
use crate::workers::Workers;
use crate::workers::ask::Ask;
use crate::workers::commands::{links, plugin_commands};

/// Gates with their filter tables, at control and at the workers.
pub(crate) struct Gates<'a> {
    pub model: &'a mut Model,
    pub tables: &'a mut GateTables,
    pub workers: &'a mut Workers,
}

impl Gates<'_> {
    /// Sends changes of instances, gates and bindings to the workers. Doesn't wait until they are in force.
    pub fn tell(&mut self, changes: Vec<PluginChange>) -> Result<(), ControlError> {
        let workers = self.workers.len();
        let commands = plugin_commands(self.model, self.tables, changes, workers)?;
        self.workers.tell_each(commands)
    }

    /// Rebuilds the links between the DAGs of neighbouring gates, after the filters of these gates have
    /// changed.
    pub fn link(&mut self) -> Result<(), ControlError> {
        for command in links(&self.model.plugins, self.tables) {
            self.workers.tell(command)?;
        }
        Ok(())
    }

    /// Creates a gate at control and at the workers.
    pub fn create(&mut self, name: &str, position: &str) -> Result<(), ControlError> {
        let position: Position = position.parse().map_err(ControlError::invalid)?;
        let (_, change) = self.model.plugins.create_gate(name, position, None)?;
        self.tell_and_wait(vec![change])
    }

    /// Sets the kind of a gate's filter table, at control and at the workers.
    pub fn set_table(&mut self, name: &str, kind: TableKind) -> Result<(), ControlError> {
        let id = self.model.plugins.gate(name)?.id;
        if let Some(table) = self.tables.set_kind(id, kind) {
            self.workers.tell(|| FilterCommand::SetTable(id, table.clone()))?;
            self.workers.barrier()?;
            self.say_moved(id, false);
        }
        Ok(())
    }

    /// Removes a gate at control and at the workers.
    pub fn remove(&mut self, name: &str) -> Result<(), ControlError> {
        let change = self.model.plugins.remove_gate(name)?;
        self.tell_and_wait(vec![change])
    }

    /// Returns the gate of this name, with its bindings.
    pub fn find(&mut self, name: &str) -> Result<GateView, ControlError> {
        self.model.plugins.gate(name)?;
        let counts = self.workers.filter_counts()?;
        let mut gates = show::gates(&counts, self.model, self.tables).into_iter();
        let found = gates.find(|gate| gate.name == name);
        found.ok_or_else(|| ControlError::not_found(format!("no gate is named {name:?}")))
    }

    /// Sends changes to the workers, and waits until they are in force. A worker makes them together, between
    /// two batches.
    pub fn tell_and_wait(&mut self, changes: Vec<PluginChange>) -> Result<(), ControlError> {
        self.tell(changes)?;
        self.workers.barrier()
    }

    /// Returns the view of a binding or filter that was just added. `known` tells whether its gate had too many
    /// filters for the configured kind of table before.
    pub fn added(&self, id: BindingId, known: bool) -> Result<BindingView, ControlError> {
        let missing = || ControlError::System("internal error: the new filter can't be found".into());
        let bound = self.model.plugins.binding(id).ok_or_else(missing)?;
        self.say_moved(bound.gate, known);
        Ok(BindingView {
            shadowed_by: self.shadowed_by(id, bound.gate),
            unreached: is_for_groups(&bound.filter).then(|| UNREACHED.to_owned()),
            ..show::binding(id, bound, &Counts::default(), self.model)
        })
    }

    /// Returns the filters that shadow a binding; an empty list if the binding can win. Returns `None` if the
    /// gate has too many filters to compare.
    fn shadowed_by(&self, id: BindingId, gate: GateId) -> Option<Vec<NamedFilterView>> {
        let filters = self.tables.table(gate)?.filters();
        if filters.len() > MOST_COMPARED {
            return None;
        }
        let entries: Vec<_> = filters.entries().collect();
        let by = shadowed_by(entries.iter().copied(), |entry| entry.value == id).unwrap_or_default();
        let mut bindings: Vec<BindingId> = Vec::new();
        for entry in entries.iter().filter(|entry| by.contains(&entry.id)) {
            if !bindings.contains(&entry.value) {
                bindings.push(entry.value);
            }
        }
        Some(bindings.into_iter().filter_map(|id| named(id, self.model)).collect())
    }

    /// Whether a gate has too many filters for the configured kind of table, and so uses another kind.
    pub fn has_moved(&self, gate: GateId) -> bool {
        self.tables.table(gate).is_some_and(|table| table.moved().is_some())
    }

    /// Logs that a gate has too many filters for the configured kind of table. Does nothing if `known` is
    /// true: the gate already had too many before the change.
    fn say_moved(&self, gate: GateId, known: bool) {
        if let Some(why) = self.tables.table(gate).filter(|_| !known).and_then(GateTable::moved) {
            tracing::warn!(gate = self.model.plugins.gate_name(gate), "{why}");
        }
    }

    /// Plans the removal of bindings and filters. Returns the last view of each.
    pub fn plan_removal(
        &mut self,
        ids: &[BindingId],
    ) -> Result<(Vec<Change>, Vec<BindingView>), ControlError> {
        let views = show::binding_views(ids, &self.workers.counts_of(ids)?, self.model);
        let bound = ids.iter().filter_map(|id| self.model.plugins.binding(*id));
        let removal = |bound: &Bound| match bound.action.instance() {
            Some(id) => Change::Unbind(running_bind(self.model, bound, self.model.plugins.instance_name(id))),
            None => Change::RemoveFilter(self.model.running_filter(bound)),
        };
        Ok((bound.map(removal).collect(), views))
    }
}
