//! Types for upgrades of an instance: the successor, the state hand-over and its result.

mod hand_over;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_plugin_abi::Instance;

use crate::connection_state::ConnectionStates;
use crate::execution::health::FaultHistory;

pub(crate) use hand_over::HandOver;

/// Instance that is to replace another instance.
pub struct Successor {
    /// Copies of the new instance, one for each of its contexts, already initialized with its settings.
    pub contexts: Vec<Box<dyn Instance>>,
    /// Whether state must, may or must not be handed over.
    pub inheritance: Inheritance,
    /// Version of the old instance's state format.
    pub version: u32,
    /// Whether both instances have the same version of the state format. If so, flows keep their state, and
    /// the new instance adopts the service state.
    pub same_version: bool,
    /// Faults of an old instance that comes back after a failed upgrade; `None` for a new instance, which has none.
    pub history: Option<FaultHistory>,
    /// Right to replace the old instance, or to call the upgrade off.
    pub claim: Claim,
}

impl Successor {
    /// Creates a successor without faults. Nobody has decided yet whether it replaces the old instance.
    pub fn new(
        contexts: Vec<Box<dyn Instance>>,
        inheritance: Inheritance,
        version: u32,
        same_version: bool,
    ) -> Self {
        Self { contexts, inheritance, version, same_version, history: None, claim: Claim::default() }
    }
}

/// Right to decide whether an upgrade happens. The worker takes it when it replaces the instance; control, when it
/// waits for the worker no longer. Only one of them gets it, so both know the same outcome.
#[derive(Clone, Debug, Default)]
pub struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Takes the right. Returns whether nobody had taken it.
    #[must_use]
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether somebody has taken the right.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Whether an instance's state must, may or must not be handed over to its successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inheritance {
    /// If the old instance saves its state, the hand-over must succeed; otherwise the old instance stays. If
    /// the old instance can't save its state, the new instance starts without state.
    Required,
    /// The old instance must save its state, and the new instance must accept it; otherwise the old instance
    /// stays.
    Indispensable,
    /// The hand-over may fail: the new instance then starts without state.
    Tried,
    /// No hand-over: the new instance ran in this slot before, and has its own state.
    Renounced,
}

/// Result of a state hand-over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inherited {
    /// The new instance adopted a state of this many bytes.
    Bytes(usize),
    /// The old instance had no state or can't save it.
    Nothing,
    /// The new instance starts without the old state, for this reason.
    Lost(String),
}

impl Inherited {
    /// Adds the result of another context.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Lost(why), _) | (_, Self::Lost(why)) => Self::Lost(why),
            (Self::Bytes(one), Self::Bytes(other)) => Self::Bytes(one + other),
            (Self::Bytes(bytes), Self::Nothing) | (Self::Nothing, Self::Bytes(bytes)) => Self::Bytes(bytes),
            (Self::Nothing, Self::Nothing) => Self::Nothing,
        }
    }
}

/// Result of an upgrade of an instance.
pub struct Succession {
    /// Copies of the old instance in the order of its contexts, or those of the refused new instance if the
    /// upgrade failed.
    pub contexts: Vec<Box<dyn Instance>>,
    /// Result of the state hand-over of all contexts together, or the reason that the old instance stays.
    pub inherited: Result<Inherited, String>,
    /// Faults of the old instance.
    pub history: FaultHistory,
    /// States that the old instance kept for connections, if the new instance doesn't keep them.
    pub connection_states: Option<ConnectionStates>,
}

/// Receiver of the result of an upgrade; gets `None` if the old instance doesn't exist.
pub type Successed = Box<dyn FnOnce(Option<Succession>) + Send>;
