//! Errors in a filter's text.

/// Error of a filter's text: its position, the problem, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {}: {problem}; {help}", offset + 1)]
pub struct FilterError {
    /// Start of the wrong part, in bytes from the start of the text.
    pub offset: usize,
    /// Length of the wrong part in bytes; 0 if a part is missing at this position.
    pub length: usize,
    /// Description of the problem.
    pub problem: String,
    /// Remedy: the accepted values or syntax.
    pub help: String,
}

/// Problem and remedy of a wrong part of a filter's text. [`at`](Self::at) adds the position of the part.
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

/// Part of a filter's text, with its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub text: &'a str,
    /// Position in bytes from the start of the filter.
    pub offset: usize,
}
