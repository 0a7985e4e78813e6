//! Reads the origin and the comment of a configuration, which are single lines shown to people.

use serde::Deserialize as _;
use serde::de::{Deserializer, Error};

/// Maximum length of a comment, in bytes.
const COMMENT: usize = 1024;
/// Maximum length of a file name, in bytes: the maximum length of a path.
const ORIGIN: usize = 4096;

/// Reads a comment: up to 1,024 bytes in one line.
///
/// # Errors
/// Returns an error for a longer comment, or for control characters.
pub fn comment<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    line(from, "comment", COMMENT)
}

/// Reads the name of a file: up to 4,096 bytes in one line.
///
/// # Errors
/// Returns the errors of [`comment`].
pub fn origin<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    line(from, "origin", ORIGIN)
}

fn line<'de, D: Deserializer<'de>>(from: D, what: &str, most: usize) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let Some(said) = &text else { return Ok(None) };
    if said.len() > most {
        let length = said.len();
        return Err(D::Error::custom(format!("the {what} has {length} bytes: the maximum is {most}")));
    }
    if let Some(letter) = said.chars().find(|letter| letter.is_control()) {
        return Err(D::Error::custom(format!(
            "the {what} has the control character {letter:?}: write one line without control characters"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn line_is_accepted_and_terminal_controls_are_refused() {
        assert_eq!(comment(json!("why: größer")).unwrap().as_deref(), Some("why: größer"));
        assert_eq!(comment(json!(null)).unwrap(), None);
        assert_eq!(origin(json!("x".repeat(4096))).unwrap().map(|said| said.len()), Some(4096));
        let why = |said: String| comment(json!(said)).unwrap_err().to_string();
        assert_eq!(why("x".repeat(1025)), "the comment has 1025 bytes: the maximum is 1024");
        for said in ["a\nb", "\u{1b}[31m", "a\tb", "\u{9b}0m"] {
            assert!(why(said.into()).contains("control character"), "{said:?}");
        }
    }
}
