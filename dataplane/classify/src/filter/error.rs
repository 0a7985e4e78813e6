//! Why a filter's text was refused.

/// A filter that could not be read: where, what is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {}: {problem}; {help}", offset + 1)]
pub struct FilterError {
    /// Where the wrong part starts, in bytes from the start of the text.
    pub offset: usize,
    /// Length of the wrong part in bytes; zero when something is missing there.
    pub length: usize,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub help: String,
}

/// What is wrong with a value, and what would be right; where it stands is added by who knows.
#[derive(Debug)]
pub(super) struct Refusal {
    pub problem: String,
    pub help: String,
}

impl Refusal {
    pub fn new(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self { problem: problem.into(), help: help.into() }
    }

    pub fn at(self, token: Token<'_>) -> FilterError {
        FilterError { offset: token.offset, length: token.text.len(), problem: self.problem, help: self.help }
    }
}

/// A part of a filter's text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub text: &'a str,
    /// In bytes from the start of the filter.
    pub offset: usize,
}
