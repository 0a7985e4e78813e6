//! Messages to people that name keys of settings. The keys are written as the reader knows them, from files
//! or from JSON.

use std::fmt;

/// Spelling of the keys in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Configuration files and commands: hyphens, as in `icmp-rate`.
    File,
    /// JSON: underscores, as in `icmp_rate`.
    Json,
}

impl Spelling {
    /// Returns a key of a configuration file in this spelling.
    pub fn of(self, key: &str) -> String {
        match self {
            Self::File => key.to_owned(),
            Self::Json => key.replace('-', "_"),
        }
    }
}

/// Piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text that is the same in both spellings.
    Text(String),
    /// Key of a setting, as in a configuration file.
    Key(String),
}

/// Message to people, in pieces. Its keys are written in the spelling of the file or interface that the
/// reader uses.
///
/// ```
/// use millrace_units::{Message, Spelling};
///
/// let message = Message::from("router.").key("icmp-dscp").text(" must be 0 to 63, not 64");
/// assert_eq!(message.spelled(Spelling::Json), "router.icmp_dscp must be 0 to 63, not 64");
/// assert_eq!(message.to_string(), "router.icmp-dscp must be 0 to 63, not 64");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(Vec<Piece>);

impl Message {
    /// Appends text.
    #[must_use]
    pub fn text(mut self, text: impl AsRef<str> + Into<String>) -> Self {
        match self.0.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text.as_ref()),
            Some(Piece::Key(_)) | None => self.0.push(Piece::Text(text.into())),
        }
        self
    }

    /// Appends a key of a setting, as in a configuration file.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        // Escapes control characters, because a key may be any text that a client has sent.
        self.0.push(Piece::Key(key.into().escape_debug().to_string()));
        self
    }

    /// Appends a key of a setting in double quotes.
    #[must_use]
    pub fn quoted_key(self, key: impl Into<String>) -> Self {
        self.text("\"").key(key).text("\"")
    }

    /// Appends another message.
    #[must_use]
    pub fn append(self, other: Self) -> Self {
        other.0.into_iter().fold(self, |mut all, piece| match piece {
            Piece::Text(text) => all.text(text),
            // The key is escaped already.
            Piece::Key(_) => {
                all.0.push(piece);
                all
            }
        })
    }

    /// Joins messages, with the text `between` between them.
    #[must_use]
    pub fn join(messages: impl IntoIterator<Item = Self>, between: &str) -> Self {
        messages.into_iter().enumerate().fold(Self::default(), |all, (index, message)| {
            if index == 0 { message } else { all.text(between).append(message) }
        })
    }

    /// Returns the pieces in their order.
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Returns the whole text, with its keys in the given spelling.
    pub fn spelled(&self, spelling: Spelling) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Key(key) => spelling.of(key),
        };
        self.0.iter().map(piece).collect()
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self(vec![Piece::Text(text)])
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Writes the message in the spelling of configuration files.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) | Piece::Key(text) => f.write_str(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_the_spelling_and_texts_stay() {
        let one = Message::from("port \"my_port-1\": tail-drop and ").quoted_key("icmp-rate");
        let all = Message::join([one, "other-text".into()], "; ");
        assert_eq!(
            all.spelled(Spelling::Json),
            "port \"my_port-1\": tail-drop and \"icmp_rate\"; other-text"
        );
        assert_eq!(all.to_string(), "port \"my_port-1\": tail-drop and \"icmp-rate\"; other-text");
        assert_eq!(all.pieces().len(), 3, "adjacent texts are one piece");
    }

    #[test]
    fn keys_of_callers_stay_in_one_line() {
        let message = Message::from("no setting is named ").quoted_key("a\n\u{1b}[31mb\"");
        assert_eq!(message.to_string(), r#"no setting is named "a\n\u{1b}[31mb\"""#);
        assert_eq!(Message::default().append(message.clone()), message, "escaped once");
    }
}
