//! Gates: points in the pipeline at which instances are bound to flows.

use std::fmt;

use millrace_plugin_abi::{DEFAULT_GATES, Position};
use millrace_units::GateId;

/// Rank of a gate among the gates of its position: packets pass the gate with the smallest order first. The
/// gates of a position have distinct orders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct GateOrder(pub u16);

impl GateOrder {
    /// Default distance between the orders of two gates. It leaves free orders for gates that are created
    /// later.
    pub const STEP: u16 = 10;

    /// Returns the rank of a gate of this order at a position, among all gates.
    pub(crate) fn among_all(self, position: Position) -> u32 {
        (position as u32) << 16 | u32::from(self.0)
    }
}

impl fmt::Display for GateOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Gate as control knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gate {
    /// Id of the gate. A new gate may get the id of a removed one.
    pub id: GateId,
    /// Unique name of the gate.
    pub name: String,
    /// Position of the gate in the pipeline.
    pub position: Position,
    /// Order of the gate among the gates of its position.
    pub order: GateOrder,
}

impl Gate {
    /// Returns the predefined gates, in the order in which packets pass them.
    pub(crate) fn defaults() -> Vec<Self> {
        let mut gates: Vec<Self> = Vec::with_capacity(DEFAULT_GATES.len());
        for (id, (name, position)) in (0..).map(GateId).zip(DEFAULT_GATES) {
            let before = gates.iter().filter(|gate| gate.position == position).count() as u16;
            let order = GateOrder((before + 1) * GateOrder::STEP);
            gates.push(Self { id, name: name.to_owned(), position, order });
        }
        gates
    }

    /// Returns the key that sorts gates in the order in which packets pass them.
    pub(crate) fn place(&self) -> (Position, GateOrder) {
        (self.position, self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_gates_stand_in_the_order_of_the_journey() {
        let gates = Gate::defaults();
        assert!(gates.is_sorted_by(|a, b| a.place() < b.place()));
        assert_eq!(gates[1].name, "security-in");
        assert_eq!(gates[1].order, GateOrder(20));
        assert_eq!(gates.len(), DEFAULT_GATES.len());
    }
}
