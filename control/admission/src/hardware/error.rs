//! Errors of hardware files.

/// Fault in a hardware file, with its place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {key}: {fault}")]
pub struct HardwareError {
    /// Line of the file, from 1.
    pub line: usize,
    /// Text of the line at the fault.
    pub key: String,
    /// Fault.
    pub fault: Fault,
}

/// Fault in a hardware file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// Text that is no TOML of this schema.
    #[error("{0}")]
    Syntax(String),
    /// Number outside its range.
    #[error("{value} is not {need}")]
    Number {
        /// Value.
        value: f64,
        /// Allowed values.
        need: &'static str,
    },
    /// Name without an entry.
    #[error("there is no {what} {name:?}; known are: {known}")]
    Unknown {
        /// Kind of thing.
        what: &'static str,
        /// Given name.
        name: String,
        /// Known names.
        known: String,
    },
    /// Name of two things.
    #[error("{0:?} is the name of two entries")]
    Twice(String),
    /// Value that this kind of entry lacks or must not have.
    #[error("{0}")]
    Entry(&'static str),
    /// Processor without a path from a port.
    #[error("no path leads from a port to processor {0:?}")]
    Unreachable(String),
}
