//! Bindings: which instance handles, at a gate, the packets that a filter matches.

use std::fmt;

/// A binding of an instance to a filter at a gate. The control side gives the ids; one is used again once its binding
/// is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct BindingId(pub u32);

impl fmt::Display for BindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What went through a binding since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct BindingCounts {
    /// Packets handed to the instance.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
    /// Of these packets, those that the instance dropped.
    pub drops: u64,
    /// Of these packets, those that the instance consumed.
    pub consumed: u64,
}

/// The filter table of a gate: finds the binding that a packet belongs to.
pub trait BindingTable: Default {
    /// A filter in the form that is matched.
    type Filter;
    /// What filters see of a packet.
    type Candidate;

    /// Adds a binding; of several that match, the higher priority wins, and then what the table's order says.
    fn insert(&mut self, filter: Self::Filter, priority: i32, binding: BindingId);

    /// Removes a binding; does nothing when it is not there.
    fn remove(&mut self, binding: BindingId);

    /// The binding that wins for the packet.
    fn lookup(&self, candidate: &Self::Candidate) -> Option<BindingId>;
}
