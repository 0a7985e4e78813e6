//! The configuration of a running router: what it is, what another one would change, and how that is changed: all of it or nothing.

mod apply;
mod base;
mod bindings;
mod carry_out;
mod confirm;
mod expected;
mod history;
mod keep;
mod lists;
mod ports;
mod routes;
mod running;
mod single;
pub mod words;

pub use apply::{Apply, ConfirmTime};
pub use confirm::Pending;
pub use history::RollBack;
pub use keep::{Keep, Save};
pub use lists::AddedFilters;

pub(crate) use base::Base;
pub(crate) use confirm::Waiting;
pub(crate) use single::checked;

use millrace_config::Change;

use crate::ControlError;
use crate::router::Router;

/// Says that a configuration is being applied, or a list of changes made, as long as it is there.
struct Turn(Router);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().applying = None;
    }
}

/// Changes as commands. Their number is the number of changes in every report.
fn commands(changes: &[Change]) -> Vec<String> {
    changes.iter().flat_map(Change::commands).collect()
}

/// Why changes were not made.
struct Failed {
    /// Which one could not be made, from 0.
    pub step: usize,
    /// Whether that one stands all the same, since the data plane did not answer, and was unmade as those before it.
    pub stands: bool,
    /// Why.
    pub error: ControlError,
    /// What could not be unmade after that.
    pub remains: Vec<String>,
}

impl Failed {
    /// The same as an error, where nobody asked for each change.
    fn into_error(self) -> ControlError {
        match self.remains.as_slice() {
            [] => self.error,
            remains => ControlError::System(format!(
                "{}; what was changed before it is changed back, but for: {}",
                self.error,
                remains.join("; ")
            )),
        }
    }
}
