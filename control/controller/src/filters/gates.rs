//! Gates: creating them, changing their filter tables, removing them.

use millrace_pipeline::FilterCommand;
use millrace_plugin_abi::Position;

use crate::ControlError;
use crate::router::{Inner, Router};
use crate::show;
use crate::view::GateView;

impl Router {
    /// Returns all gates.
    ///
    /// # Errors
    /// Returns an error if the data plane does not answer.
    pub fn gates(&self) -> Result<Vec<GateView>, ControlError> {
        let mut inner = self.lock();
        let counts = inner.workers.filter_counts()?;
        Ok(show::gates(&counts, &inner.model, &inner.tables))
    }

    /// Creates a gate, the last at its position.
    ///
    /// # Errors
    /// Returns an error for an unknown position or a name in use.
    pub fn create_gate(&self, name: &str, position: &str) -> Result<GateView, ControlError> {
        self.to_change()?.create_gate(name, position)
    }

    /// Sets the kind of a gate's filter table. The filters are moved while the router forwards. All kinds of
    /// tables return the same matches.
    ///
    /// # Errors
    /// Returns an error for an unknown gate or kind of table.
    pub fn set_gate_table(&self, name: &str, table: &str) -> Result<GateView, ControlError> {
        self.to_change()?.set_gate_table(name, table)
    }

    /// Removes a gate without bindings.
    ///
    /// # Errors
    /// Returns an error if the gate is unknown or in use.
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

    /// Returns the gate of this name, with its bindings.
    ///
    /// # Errors
    /// Returns an error if the gate is unknown, or if the data plane does not answer.
    fn find_gate(&mut self, name: &str) -> Result<GateView, ControlError> {
        let counts = self.workers.filter_counts()?;
        let gates = show::gates(&counts, &self.model, &self.tables);
        gates
            .into_iter()
            .find(|gate| gate.name == name)
            .ok_or_else(|| ControlError::NotFound(format!("no gate is named {name:?}")))
    }
}
