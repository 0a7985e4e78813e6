//! Types for the replacement of an instance: the successor, the state hand-over and its result.

use millrace_plugin_abi::Instance;

/// Instance that replaces another instance.
pub struct Successor {
    /// New instance, already initialized with its settings.
    pub instance: Box<dyn Instance>,
    /// Rule for the state hand-over.
    pub inheritance: Inheritance,
    /// State version of the old instance.
    pub version: u32,
    /// Whether both instances have the same state version. In that case the new instance keeps the flow
    /// states unchanged and takes over the state common to all flows.
    pub same_version: bool,
}

/// Rule for the state hand-over from an instance to its successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inheritance {
    /// The hand-over must succeed, unless the old instance can't save its state.
    Required,
    /// The old instance must be able to save its state, and the hand-over must succeed; otherwise the old
    /// instance stays.
    Indispensable,
    /// The hand-over may fail.
    Tried,
    /// No hand-over: the new instance ran here before and has its own state.
    Renounced,
}

/// Result of a state hand-over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inherited {
    /// The new instance took over this number of bytes.
    Bytes(usize),
    /// The old instance had no state or can't save it.
    Nothing,
    /// The state is lost, for this reason.
    Lost(String),
}

/// Result of a replacement of an instance.
pub struct Succession {
    /// Old instance, or the new one if the replacement failed.
    pub instance: Box<dyn Instance>,
    /// Result of the state hand-over, or the reason that the old instance stays.
    pub inherited: Result<Inherited, String>,
}

/// Receiver of the result of a replacement; gets `None` if the old instance doesn't exist.
pub type Successed = Box<dyn FnOnce(Option<Succession>) + Send>;
