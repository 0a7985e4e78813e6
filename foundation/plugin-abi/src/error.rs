//! Errors of plugins.

/// Error of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The plugin has no such control message.
    #[error("plugin {plugin} has no message {message:?}; its messages: {known}")]
    UnknownMessage {
        /// Name of the plugin.
        plugin: &'static str,
        /// Received message.
        message: String,
        /// Known messages, separated by commas.
        known: String,
    },
    /// A setting or argument is unknown, of a wrong type, or out of range.
    #[error("plugin {plugin}: {setting}: {problem}")]
    Setting {
        /// Name of the plugin.
        plugin: &'static str,
        /// Name of the setting or argument.
        setting: String,
        /// Description of the problem and of the expected value.
        problem: String,
    },
    /// The plugin refuses for another reason, given as a sentence.
    #[error("{0}")]
    Refused(String),
}

impl PluginError {
    /// Builds the error for a message that `messages` doesn't list. `messages` comes from
    /// [`Plugin::messages`](crate::Plugin::messages).
    pub fn unknown_message(
        plugin: &'static str,
        message: &str,
        messages: &[(&'static str, &'static str)],
    ) -> Self {
        let known: Vec<_> = messages.iter().map(|(name, _)| *name).collect();
        Self::UnknownMessage { plugin, message: message.to_owned(), known: known.join(", ") }
    }

    /// Builds the error for a setting or argument.
    pub fn setting(plugin: &'static str, setting: &str, problem: impl Into<String>) -> Self {
        Self::Setting { plugin, setting: setting.to_owned(), problem: problem.into() }
    }

    /// Rejects settings or arguments outside `known`.
    ///
    /// # Errors
    /// [`PluginError::Setting`] for the first unknown one.
    pub fn unless_known(
        plugin: &'static str,
        settings: &serde_json::Map<String, serde_json::Value>,
        known: &[&str],
    ) -> Result<(), Self> {
        let Some(strange) = settings.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
        let right = if known.is_empty() {
            "no settings are accepted here".to_owned()
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
    fn refusal_names_the_known_values() {
        let unknown = PluginError::unknown_message("null", "raed", &[("read", "counts"), ("reset", "zeros")]);
        assert_eq!(unknown.to_string(), "plugin null has no message \"raed\"; its messages: read, reset");
        let settings = serde_json::json!({ "port": 1 }).as_object().cloned().unwrap_or_default();
        assert_eq!(
            PluginError::unless_known("p", &settings, &["ports", "cut"]).unwrap_err().to_string(),
            "plugin p: port: there is no such setting; give ports, cut"
        );
        assert_eq!(
            PluginError::unless_known("p", &settings, &[]).unwrap_err().to_string(),
            "plugin p: port: there is no such setting; no settings are accepted here"
        );
        assert_eq!(PluginError::unless_known("p", &settings, &["port"]), Ok(()));
    }
}
