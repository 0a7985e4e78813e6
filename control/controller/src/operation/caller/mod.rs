//! Callers of operations: principals with their roles, calls for the audit log, and effects of operations.
//! The effect decides which role a caller needs, and whether a call is audited.

mod call;
mod effect;
mod principal;

pub use self::call::Call;
pub use self::effect::Effect;
pub use self::principal::Principal;
use super::Operation;
use crate::router::Router;

/// Caller of operations: a call, or a principal. A principal gets a call for each operation, with the name of
/// the operation.
pub trait Caller: Sync {
    /// Returns the call to which an operation belongs.
    fn call<O: Operation>(&self, router: &Router) -> Call;
}

impl Caller for Principal {
    fn call<O: Operation>(&self, router: &Router) -> Call {
        let name = std::any::type_name::<O>().rsplit("::").next().unwrap_or_default();
        Call::single(router, self.clone(), name.to_owned(), O::EFFECT)
    }
}

impl Caller for Call {
    fn call<O: Operation>(&self, _: &Router) -> Call {
        self.clone()
    }
}
