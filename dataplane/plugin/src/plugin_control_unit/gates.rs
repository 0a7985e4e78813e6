//! Registry of the gates.

use millrace_plugin_abi::Position;
use millrace_units::GateId;

use super::Error;
use super::checks::{check_name, free};
use crate::{Gate, GateOrder, PluginChange};

/// Maximum number of gates: gate ids have 8 bits.
const MOST_GATES: usize = 256;

/// Gates of a router.
#[derive(Clone, Debug)]
pub(super) struct GateRegistry {
    /// Gates in the order in which packets pass them.
    gates: Vec<Gate>,
    /// Gates removed since the last [`begin`](Self::begin); `None` outside of a transaction.
    former: Option<Vec<Gate>>,
}

impl Default for GateRegistry {
    fn default() -> Self {
        Self { gates: Gate::defaults(), former: None }
    }
}

impl GateRegistry {
    /// Begins a transaction: until [`end`](Self::end), a gate that is removed and created again keeps its order.
    pub fn begin(&mut self) {
        self.former = Some(Vec::new());
    }

    /// Ends a transaction.
    pub fn end(&mut self) {
        self.former = None;
    }

    /// Returns all gates.
    pub fn all(&self) -> &[Gate] {
        &self.gates
    }

    /// Returns the gate with this name.
    pub fn named(&self, name: &str) -> Result<&Gate, Error> {
        let found = self.gates.iter().find(|gate| gate.name == name);
        found.ok_or_else(|| Error::unknown("gate", name, self.gates.iter().map(|gate| gate.name.as_str())))
    }

    /// Returns the gate with this id.
    pub fn get(&self, id: GateId) -> Option<&Gate> {
        self.gates.iter().find(|gate| gate.id == id)
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
        let order = self.order(position, order.or_else(|| self.former_order(name, position)))?;
        let id = GateId(free(self.gates.iter().map(|gate| gate.id.index()), MOST_GATES, "gate")? as u8);
        let gate = Gate { id, name: name.to_owned(), position, order };
        let place = self.gates.partition_point(|other| other.place() < gate.place());
        let change = add(&gate);
        self.gates.insert(place, gate);
        Ok((id, change))
    }

    fn order(&self, position: Position, order: Option<GateOrder>) -> Result<GateOrder, Error> {
        let mut here = self.gates.iter().filter(|gate| gate.position == position);
        let Some(order) = order else {
            let last = here.next_back().map_or(0, |gate| gate.order.0);
            return last.checked_add(GateOrder::STEP).map(GateOrder).ok_or(Error::NoOrderLeft { position });
        };
        match here.find(|gate| gate.order == order) {
            Some(gate) => Err(Error::OrderTaken { position, order, gate: gate.name.clone() }),
            None => Ok(order),
        }
    }

    /// Returns the order that a gate had when it was removed, if it is still free.
    fn former_order(&self, name: &str, position: Position) -> Option<GateOrder> {
        let mut former = self.former.iter().flatten().rev();
        let order = former.find(|gate| gate.name == name && gate.position == position)?.order;
        self.order(position, Some(order)).ok()
    }

    /// Removes a gate.
    pub fn remove(&mut self, id: GateId) {
        let gone = self.gates.extract_if(.., |gate| gate.id == id);
        match &mut self.former {
            Some(former) => former.extend(gone),
            None => gone.for_each(drop),
        }
    }
}

/// Returns the change that adds a gate to a worker.
pub(super) fn add<F>(gate: &Gate) -> PluginChange<F> {
    PluginChange::AddGate { gate: gate.id, position: gate.position, order: gate.order }
}
