//! Words for the exchange of an instance: who comes, what it takes over, and how that ended.

use millrace_plugin_abi::Instance;

/// An instance that is to take the place of another one.
pub struct Successor {
    /// The instance, which has begun with its settings.
    pub instance: Box<dyn Instance>,
    /// Whether it takes over what the other one knows.
    pub inheritance: Inheritance,
    /// The version of what the other one saves.
    pub version: u32,
    /// Whether that is the version of its own, too: then it goes on with the state of flows as it is, and takes over that which
    /// is common to all flows.
    pub same_version: bool,
}

/// Whether the successor of an instance takes over what that knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inheritance {
    /// It must, unless that one has no way to say what it knows.
    Required,
    /// It must, and that one has a way to say what it knows: else it stays.
    Indispensable,
    /// It does if it can.
    Tried,
    /// It doesn't: it is one that was here before, and has its own.
    Renounced,
}

/// What became of what an instance knew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inherited {
    /// The successor took so many bytes over.
    Bytes(usize),
    /// It knew nothing, or has no way to say it.
    Nothing,
    /// It is lost, and why.
    Lost(String),
}

/// How an exchange of instances ended: with the one that is out of use now.
pub struct Succession {
    /// The old instance, or the new one when that can't take its place.
    pub instance: Box<dyn Instance>,
    /// What became of what the old one knew, or why it is still there.
    pub inherited: Result<Inherited, String>,
}

/// Takes the end of an exchange; `None` when there was no instance to be replaced.
pub type Successed = Box<dyn FnOnce(Option<Succession>) + Send>;
