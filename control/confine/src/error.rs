//! Error of a failed confinement.

/// Reason why a process or a thread could not be confined. The process or thread must not continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't {what}: {why}")]
pub struct ConfineError {
    what: &'static str,
    why: String,
}

impl ConfineError {
    /// Returns a function that converts the error of the step `what`.
    pub fn of<E: ToString>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| Self { what, why: error.to_string() }
    }
}
