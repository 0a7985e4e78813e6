//! Gates: the places in the journey where instances are bound.

use std::fmt;

use millrace_plugin_abi::{DEFAULT_GATES, Position};
use millrace_units::GateId;

/// Where a gate stands among those of its position: packets meet the smaller first. No two of a position are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct GateOrder(pub u16);

impl GateOrder {
    /// The distance between gates whose order is not stated, so that others fit between.
    pub const STEP: u16 = 10;
}

impl fmt::Display for GateOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A gate as people know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gate {
    /// Its id, used again once it is removed.
    pub id: GateId,
    /// Its name, unique.
    pub name: String,
    /// Where in the journey it stands.
    pub position: Position,
    /// Where among the gates of that position it stands.
    pub order: GateOrder,
}

impl Gate {
    /// The gates that are there from the start, in the order of the journey.
    pub(crate) fn defaults() -> Vec<Self> {
        let mut gates: Vec<Self> = Vec::with_capacity(DEFAULT_GATES.len());
        for (id, (name, position)) in (0..).map(GateId).zip(DEFAULT_GATES) {
            let before = gates.iter().filter(|gate| gate.position == position).count() as u16;
            let order = GateOrder((before + 1) * GateOrder::STEP);
            gates.push(Self { id, name: name.to_owned(), position, order });
        }
        gates
    }

    /// What gates are sorted by: the order in which packets meet them.
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
