//! Errors of a configuration, each with its place in the file.

use std::fmt;
use std::ops::Range;

use millrace_units::Message;

/// Position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub origin: String,
    /// Line, counted from 1; 0 for an error without a line.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
}

impl Place {
    pub(crate) fn of(span: Option<Range<usize>>, text: &str, origin: &str) -> Self {
        let Some(span) = span else { return Self { origin: origin.into(), line: 0, column: 0 } };
        let before = &text[..text.floor_char_boundary(span.start.min(text.len()))];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Self { origin: origin.into(), line, column }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.origin),
            line => write!(f, "{}:{line}:{}", self.origin, self.column),
        }
    }
}

/// One error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ConfigError {
    /// Position of the error.
    pub place: Place,
    /// Text of the problem and its remedy.
    pub problem: Message,
}

/// Errors of a configuration, in the order of the file.
///
/// The text lists up to ten errors, one per line, and then the number of further errors. With `{:#}`, the
/// text is a single line with the first error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// First errors, at least one, up to [`ConfigErrors::NAMED`].
    errors: Vec<ConfigError>,
    /// Total number of errors.
    wrong: usize,
}

impl ConfigErrors {
    /// Maximum number of stored errors; further errors are only counted.
    pub const NAMED: usize = 100;
    /// Maximum number of errors that are displayed.
    const DISPLAYED: usize = 10;

    /// Returns the total number of errors.
    pub fn wrong(&self) -> usize {
        self.wrong
    }

    /// Returns the first errors, up to [`Self::NAMED`], in the order of the file.
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }

    /// Merges the errors of several values into one value, in the order of the file; `None` if there are
    /// none.
    pub fn of(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        let (mut errors, mut wrong) = (Vec::new(), 0);
        for one in all {
            wrong += one.wrong;
            errors.extend(one.errors);
        }
        errors.sort_by_key(|error: &ConfigError| (error.place.line, error.place.column));
        errors.truncate(Self::NAMED);
        (!errors.is_empty()).then_some(Self { errors, wrong })
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self { errors: vec![error], wrong: 1 }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, apart) = if f.alternate() { (1, ", ") } else { (Self::DISPLAYED, "\n") };
        for (index, error) in self.errors.iter().take(most).enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { apart })?;
        }
        match self.wrong.saturating_sub(most) {
            0 => Ok(()),
            more => write!(f, "{apart}and {more} more"),
        }
    }
}

impl std::error::Error for ConfigErrors {}

/// Problems of a configuration text, each with its byte range.
#[derive(Debug, Default)]
pub(crate) struct Found(Vec<(Option<Range<usize>>, Message)>);

impl Found {
    /// Adds a problem and its byte range.
    pub fn note(&mut self, span: Option<Range<usize>>, problem: Message) {
        self.0.push((span, problem));
    }

    /// Returns the number of problems.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Converts the problems to errors with positions; `None` if there are none.
    pub fn located(mut self, text: &str, origin: &str) -> Option<ConfigErrors> {
        let wrong = self.0.len();
        self.0.sort_by_key(|(span, _)| span.as_ref().map(|span| span.start));
        self.0.truncate(ConfigErrors::NAMED);
        let place = |(span, problem)| ConfigError { place: Place::of(span, text, origin), problem };
        let errors: Vec<_> = self.0.into_iter().map(place).collect();
        (wrong > 0).then_some(ConfigErrors { errors, wrong })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_columns_from_one() {
        let text = "a = 1\nbb = 2\n";
        assert_eq!(Place::of(Some(9..10), text, "f").to_string(), "f:2:4");
        assert_eq!(Place::of(None, text, "f").to_string(), "f");
    }

    #[test]
    fn ten_errors_are_displayed_in_the_order_of_the_file_and_the_others_counted() {
        let mut found = Found::default();
        (0..12).rev().for_each(|line| found.note(Some(2 * line..2 * line), format!("p{line}").into()));
        let errors = found.located(&"\n\n".repeat(12), "f").unwrap();
        let listed = errors.to_string();
        assert!(listed.starts_with("f:1:1: p0\nf:3:1: p1\n"), "{listed}");
        assert!(listed.ends_with("f:19:1: p9\nand 2 more"), "{listed}");
        assert_eq!((errors.wrong(), errors.errors().len()), (12, 12));
        assert_eq!(format!("{errors:#}"), "f:1:1: p0, and 11 more");
        assert!(Found::default().located("", "f").is_none());
        let both = ConfigErrors::of([errors.errors()[3].clone().into(), errors.errors()[1].clone().into()]);
        assert_eq!(both.unwrap().to_string(), "f:3:1: p1\nf:7:1: p3");
        assert_eq!(ConfigErrors::of([]), None);
    }
}
