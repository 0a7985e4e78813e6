//! Errors with their places in the text of a configuration.

use super::Config;
use crate::error::ConfigErrors;
use crate::origin::{LeftOut, Step};

impl Config {
    /// Whether that table, or entries of that list, are left out, as something is wrong in them.
    pub fn lacks(&self, part: &str) -> bool {
        self.origin.left_out().is_some_and(|left_out| left_out.is_wrong(part))
    }

    /// Whether anything is left out.
    pub fn is_rest(&self) -> bool {
        self.origin.left_out().is_some_and(LeftOut::is_any)
    }

    /// An error about what stands where these steps lead, or as far as there is something; none, where the configuration comes
    /// from no file.
    pub fn error_at(&self, path: &[Step<'_>], problem: &str) -> Option<ConfigErrors> {
        self.origin.error_at(path, problem).map(Into::into)
    }
}
