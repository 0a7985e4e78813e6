//! What is wrong with a configuration, and where.

use std::fmt;
use std::ops::Range;

use crate::nearest;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name.
    pub origin: String,
    /// Line, from 1; 0 when the error is not about one.
    pub line: usize,
    /// Column in characters, from 1.
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

/// Why a configuration can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ConfigError {
    /// Where.
    pub place: Place,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl ConfigError {
    pub(crate) fn from_toml(error: &toml::de::Error, text: &str, origin: &str) -> Self {
        Self { place: Place::of(error.span(), text, origin), problem: with_nearest(error.message()) }
    }
}

/// Adds the nearest right name to serde's "unknown field `x`, expected one of `a`, `b`".
fn with_nearest(message: &str) -> String {
    let message = message.replace('\n', " ");
    let kind = ["unknown field ", "unknown variant "].into_iter().find(|start| message.starts_with(start));
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (Some(kind), [wrong, known @ ..]) = (kind, quoted.as_slice()) else { return message };
    let noun = if kind.contains("field") { "key" } else { "value" };
    match nearest(wrong, known.iter().copied()) {
        Some(name) => format!("unknown {noun} {wrong:?}: did you mean {name:?}?"),
        None => format!("unknown {noun} {wrong:?}: it is one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_name_the_nearest() {
        let message = "unknown field `devise`, expected one of `name`, `device`";
        assert_eq!(with_nearest(message), "unknown key \"devise\": did you mean \"device\"?");
    }

    #[test]
    fn places_count_lines_and_columns_from_one() {
        let text = "a = 1\nbb = 2\n";
        assert_eq!(Place::of(Some(9..10), text, "f").to_string(), "f:2:4");
        assert_eq!(Place::of(None, text, "f").to_string(), "f");
    }
}
