//! What is wrong with a configuration, and where.

use std::fmt;
use std::ops::Range;

use crate::Config;
use crate::wording::explain_in_file;

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
        let said = error.message().replace('\n', " ");
        let problem = explain_in_file(&path_of(text), &said).unwrap_or(said);
        Self { place: Place::of(error.span(), text, origin), problem }
    }
}

/// Where in what the file says the first thing is that is wrong: `port[0].mtu`, for one. It is looked for only when something is.
fn path_of(text: &str) -> String {
    let Ok(file) = toml::Deserializer::parse(text) else { return String::new() };
    let path = match serde_path_to_error::deserialize::<_, Config>(file) {
        Err(error) => error.path().to_string(),
        Ok(_) => return String::new(),
    };
    // Values that know their place in the file are read as tables with keys of the reader's own.
    let said = path.split('.').filter(|step| !step.is_empty() && !step.starts_with("$__") && *step != "?");
    said.collect::<Vec<_>>().join(".")
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
}
