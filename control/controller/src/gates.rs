//! Gates: created, searched in another way, removed.

use millrace_pipeline::FilterCommand;
use millrace_plugin_abi::Position;

use crate::ControlError;
use crate::router::{Inner, Router};
use crate::show;
use crate::view::GateView;

impl Router {
    /// All gates.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn gates(&self) -> Result<Vec<GateView>, ControlError> {
        let mut inner = self.lock();
        let counts = inner.workers.filter_counts()?;
        Ok(show::gates(&counts, &inner.model, &inner.tables))
    }

    /// Creates a gate, the last at its position.
    ///
    /// # Errors
    /// No such position, a name taken.
    pub fn create_gate(&self, name: &str, position: &str) -> Result<GateView, ControlError> {
        self.to_change()?.create_gate(name, position)
    }

    /// Says how the filters of a gate are searched. They are moved while the router forwards; all kinds of tables find
    /// the same.
    ///
    /// # Errors
    /// No such gate, no such kind of table.
    pub fn set_gate_table(&self, name: &str, table: &str) -> Result<GateView, ControlError> {
        self.to_change()?.set_gate_table(name, table)
    }

    /// Removes a gate that nothing is bound at.
    ///
    /// # Errors
    /// No such gate; it is in use.
    pub fn remove_gate(&self, name: &str) -> Result<GateView, ControlError> {
        self.to_change()?.remove_gate(name)
    }
}

impl Inner {
    pub fn create_gate(&mut self, name: &str, position: &str) -> Result<GateView, ControlError> {
        let position: Position = position.parse().map_err(ControlError::Invalid)?;
        let (_, change) = self.model.plugins.create_gate(name, position, None)?;
        self.tell_plugins(vec![change])?;
        self.find_gate(name)
    }

    pub fn set_gate_table(&mut self, name: &str, table: &str) -> Result<GateView, ControlError> {
        let kind = table.parse().map_err(ControlError::Invalid)?;
        let id = self.model.plugins.gate(name)?.id;
        if let Some(table) = self.tables.set_kind(id, kind) {
            self.workers.tell(|| FilterCommand::SetTable(id, table.clone()))?;
            self.barrier()?;
            self.say_moved(id, false);
        }
        self.find_gate(name)
    }

    pub fn remove_gate(&mut self, name: &str) -> Result<GateView, ControlError> {
        self.model.plugins.gate(name)?;
        let view = self.find_gate(name)?;
        let change = self.model.plugins.remove_gate(name)?;
        self.tell_plugins(vec![change])?;
        Ok(view)
    }

    /// The gate of that name, with what is bound there.
    ///
    /// # Errors
    /// No such gate; when the data plane does not answer.
    fn find_gate(&mut self, name: &str) -> Result<GateView, ControlError> {
        let counts = self.workers.filter_counts()?;
        let gates = show::gates(&counts, &self.model, &self.tables);
        gates
            .into_iter()
            .find(|gate| gate.name == name)
            .ok_or_else(|| ControlError::NotFound(format!("no gate is named {name:?}")))
    }
}
