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

/// The one of `known` that looks most like `word`, if one is close enough to have been meant.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Quadratic in the length, and nobody misspells a keyword into something long.
    if word.len() > 32 {
        return None;
    }
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&word.to_ascii_lowercase(), name), name))
        .filter(|(distance, name)| *distance <= name.len().div_ceil(2).min(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
