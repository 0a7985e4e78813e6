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
}
