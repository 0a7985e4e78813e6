//! Components: everything of a router that can run out.

use crate::part::Part;

/// Resource of a router that promises use up: one dimension of the utilisation vector (VERA, section 4.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Name, such as `SA` or `SA.memory`.
    pub name: String,
    /// Part of the hardware.
    pub role: Role,
    /// Share that may be promised: the component of the provisioning vector.
    pub limit: Part,
}

/// Part of the hardware that a component measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Time on the line of a group of ports.
    Port,
    /// Worst-case cycles of all global services of a statically scheduled processor.
    Global,
    /// Largest worst case of the services of flows of a statically scheduled processor.
    Flow,
    /// Sum of [`Role::Global`] and [`Role::Flow`].
    Total,
    /// Cycles per second of a processor.
    Cycles,
    /// Time, bits or packets of a switch.
    Switch,
    /// Memory of a processor.
    Memory,
    /// Code slots of a processor.
    Code,
}
