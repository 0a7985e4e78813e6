//! What a plugin answers when it can't do what it was asked.

/// Why a plugin refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The plugin does not know the message.
    #[error("plugin {plugin} has no message {message:?}; it has: {known}")]
    UnknownMessage {
        /// The plugin's name.
        plugin: &'static str,
        /// The message that was sent.
        message: String,
        /// The messages it has, separated by commas.
        known: String,
    },
    /// A setting or a message's argument is unknown, of the wrong type or out of range.
    #[error("plugin {plugin}: {setting}: {problem}")]
    Setting {
        /// The plugin's name.
        plugin: &'static str,
        /// The setting or argument.
        setting: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// It can't do what it was asked, for a reason that is no setting's and no argument's: what is wrong, in a sentence.
    #[error("{0}")]
    Refused(String),
}

impl PluginError {
    /// The refusal of a message that is none of `messages`, as [`Plugin::messages`](crate::Plugin::messages) lists them.
    pub fn unknown_message(
        plugin: &'static str,
        message: &str,
        messages: &[(&'static str, &'static str)],
    ) -> Self {
        let known: Vec<_> = messages.iter().map(|(name, _)| *name).collect();
        Self::UnknownMessage { plugin, message: message.to_owned(), known: known.join(", ") }
    }

    /// The refusal of a setting or argument.
    pub fn setting(plugin: &'static str, setting: &str, problem: impl Into<String>) -> Self {
        Self::Setting { plugin, setting: setting.to_owned(), problem: problem.into() }
    }

    /// Refuses settings or arguments that are none of `known`.
    ///
    /// # Errors
    /// [`PluginError::Setting`] for the first of them.
    pub fn unless_known(
        plugin: &'static str,
        settings: &serde_json::Map<String, serde_json::Value>,
        known: &[&str],
    ) -> Result<(), Self> {
        let Some(strange) = settings.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
        let right = if known.is_empty() {
            "none is taken here".to_owned()
        } else {
            format!("give {}", known.join(", "))
        };
        Err(Self::setting(plugin, strange, format!("there is no such setting; {right}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_is_known() {
        let unknown = PluginError::unknown_message("null", "raed", &[("read", "counts"), ("reset", "zeros")]);
        assert_eq!(unknown.to_string(), "plugin null has no message \"raed\"; it has: read, reset");
        let settings = serde_json::json!({ "port": 1 }).as_object().cloned().unwrap_or_default();
        assert_eq!(
            PluginError::unless_known("p", &settings, &["ports", "cut"]).unwrap_err().to_string(),
            "plugin p: port: there is no such setting; give ports, cut"
        );
        assert_eq!(
            PluginError::unless_known("p", &settings, &[]).unwrap_err().to_string(),
            "plugin p: port: there is no such setting; none is taken here"
        );
        assert_eq!(PluginError::unless_known("p", &settings, &["port"]), Ok(()));
    }
}
