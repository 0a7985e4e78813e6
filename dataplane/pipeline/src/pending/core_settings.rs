//! Settings of core: its place among the principals, the principals inside it, and what it may shed.

/// Place of core among the principals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CoreOrder {
    /// Core comes first, up to its share.
    #[default]
    First,
    /// Core is a principal like others: with work, each gets its share.
    Share,
}

/// Packets that a worker may shed while core is overloaded. Each value includes the previous ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Shed {
    /// None. The receive rings overflow.
    Nothing,
    /// Plain packets of new flows.
    NewFlows,
    /// All plain packets.
    #[default]
    Plain,
    /// Packets of principals without a reserved share, beginning with the lowest weights.
    ByWeight,
}

/// Principals inside core. Packets are shed of those that have used more than their part of the share of core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CoreDivision {
    /// Core is undivided: it sheds packets of each port.
    #[default]
    Undivided,
    /// Core is one principal. Inside it, the parts of the input ports, of forwarding and of the output ports follow
    /// the load.
    ByLoad,
    /// Each input port is a principal, by its input weight.
    ByInput,
    /// Each input port, forwarding and each output port is a principal, by its weight.
    ByFunction,
}

/// Settings of core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreSettings {
    /// Place among the principals.
    pub order: CoreOrder,
    /// Packets that may be shed.
    pub shed: Shed,
    /// Principals inside core.
    pub division: CoreDivision,
    /// Weight of forwarding with [`CoreDivision::ByFunction`].
    pub forwarding_weight: u16,
}

impl Default for CoreSettings {
    fn default() -> Self {
        Self {
            order: CoreOrder::default(),
            shed: Shed::default(),
            division: CoreDivision::default(),
            forwarding_weight: 1024,
        }
    }
}
