//! Why something could not be confined.

/// Why a process or a thread could not be confined, and so must not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't {what}: {why}")]
pub struct ConfineError {
    what: &'static str,
    why: String,
}

impl ConfineError {
    /// What failed, from what the system says.
    pub fn of<E: ToString>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| Self { what, why: error.to_string() }
    }
}
