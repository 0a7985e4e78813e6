//! Registry of the gates.

use millrace_plugin_abi::Position;
use millrace_units::GateId;

use super::Error;
use super::checks::{check_name, free};
use crate::{Gate, GateOrder, PluginChange};

/// Maximum number of gates: gate ids have 8 bits.
const MOST_GATES: usize = 256;

/// Gates in the order in which packets pass them.
#[derive(Clone, Debug)]
pub(super) struct GateRegistry(Vec<Gate>);

impl Default for GateRegistry {
    fn default() -> Self {
        Self(Gate::defaults())
    }
}

impl GateRegistry {
    /// Returns all gates.
    pub fn all(&self) -> &[Gate] {
        &self.0
    }

    /// Returns the gate with this name.
    pub fn named(&self, name: &str) -> Result<&Gate, Error> {
        let found = self.0.iter().find(|gate| gate.name == name);
        found.ok_or_else(|| Error::unknown("gate", name, self.0.iter().map(|gate| gate.name.as_str())))
    }

    /// Returns the gate with this id.
    pub fn get(&self, id: GateId) -> Option<&Gate> {
        self.0.iter().find(|gate| gate.id == id)
    }

    /// Returns the name of a gate; empty for an unknown id.
    pub fn name(&self, id: GateId) -> &str {
        self.get(id).map_or("", |gate| &gate.name)
    }

    /// Creates a gate at a position, with the given `order`, or after the last gate of the position.
    pub fn create<F>(
        &mut self,
        name: &str,
        position: Position,
        order: Option<GateOrder>,
    ) -> Result<(GateId, PluginChange<F>), Error> {
        check_name("gate", name)?;
        if self.named(name).is_ok() {
            return Err(Error::Taken { kind: "gate", name: name.to_owned() });
        }
        let order = self.order(position, order)?;
        let id = GateId(free(self.0.iter().map(|gate| gate.id.index()), MOST_GATES, "gate")? as u8);
        let gate = Gate { id, name: name.to_owned(), position, order };
        let place = self.0.partition_point(|other| other.place() < gate.place());
        let change = add(&gate);
        self.0.insert(place, gate);
        Ok((id, change))
    }

    fn order(&self, position: Position, order: Option<GateOrder>) -> Result<GateOrder, Error> {
        let mut here = self.0.iter().filter(|gate| gate.position == position);
        let Some(order) = order else {
            let last = here.next_back().map_or(0, |gate| gate.order.0);
            return last.checked_add(GateOrder::STEP).map(GateOrder).ok_or(Error::NoOrderLeft { position });
        };
        match here.find(|gate| gate.order == order) {
            Some(gate) => Err(Error::OrderTaken { position, order, gate: gate.name.clone() }),
            None => Ok(order),
        }
    }

    /// Removes a gate.
    pub fn remove(&mut self, id: GateId) {
        self.0.retain(|gate| gate.id != id);
    }
}

/// Returns the change that adds a gate to a worker.
pub(super) fn add<F>(gate: &Gate) -> PluginChange<F> {
    PluginChange::AddGate { gate: gate.id, position: gate.position, order: gate.order }
}
