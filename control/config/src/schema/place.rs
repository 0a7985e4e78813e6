//! Returns errors with their positions in the text of a configuration.

use millrace_units::Message;

use super::Config;
use crate::origin::error::ConfigErrors;
use crate::origin::{LeftOut, Step};

impl Config {
    /// Whether a table, or at least one entry of a list, is omitted because of errors.
    pub fn lacks(&self, part: &str) -> bool {
        self.origin.left_out().is_some_and(|left_out| left_out.is_wrong(part))
    }

    /// Whether any part is omitted because of errors.
    pub fn is_rest(&self) -> bool {
        self.origin.left_out().is_some_and(LeftOut::is_any)
    }

    /// Returns `problem` as an error at the position of the value at `path`, or of the longest part of `path`
    /// that exists. Returns `None` if the configuration comes from no file.
    pub fn error_at(&self, path: &[Step<'_>], problem: Message) -> Option<ConfigErrors> {
        self.origin.error_at(path, problem).map(Into::into)
    }
}
