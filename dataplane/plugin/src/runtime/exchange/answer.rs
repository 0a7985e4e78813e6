//! Calls of a plugin without packets, such as control messages, and the replies.

use super::outbox::shown;

/// Request to a plugin, other than to process packets.
#[derive(Debug)]
pub(crate) enum Job {
    /// Control message with its arguments as JSON.
    Control { name: String, arguments: Vec<u8> },
    /// Message between an instance and its host companion, to the part that runs this plugin.
    Message(Vec<u8>),
    /// Request to return the plugin's state for a hand-over.
    Save,
    /// Request to restore a state that was saved under a version of the state format.
    Restore { state: Vec<u8>, version: u32 },
}

/// Current request to a plugin, and its result.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Request that the plugin has not begun yet.
    pub pending: Option<Job>,
    /// Result of the latest request: the reply, or the error text.
    pub outcome: Option<Result<Vec<u8>, String>>,
}

impl Jobs {
    /// Begins a request, and discards the result of the earlier one.
    pub fn begin(&mut self, job: Job) {
        (self.pending, self.outcome) = (Some(job), None);
    }
}

/// Reply that a plugin gives during the current request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Whether `reply` and `fail` take effect: only during a request.
    is_expected: bool,
    reply: Option<Vec<u8>>,
    failure: Option<String>,
}

impl Answer {
    /// Starts to accept a reply or an error text from the plugin; discards earlier ones.
    pub fn listen(&mut self) {
        *self = Self { is_expected: true, reply: None, failure: None };
    }

    /// Returns the plugin's reply to a request. `result` is the number that the plugin's function returned
    /// for the request; 0 means success.
    ///
    /// # Errors
    /// The error text that the plugin reported. If it reported none, a text with `result`.
    pub fn take(&mut self, result: i32) -> Result<Vec<u8>, String> {
        let Self { reply, failure, .. } = std::mem::take(self);
        match (result, failure) {
            (0, None) => Ok(reply.unwrap_or_default()),
            (_, Some(failure)) => Err(failure),
            (_, None) => Err(format!("the plugin returned {result} without an error message")),
        }
    }

    /// Records the plugin's error text.
    pub fn fail(&mut self, text: &[u8]) {
        if self.is_expected {
            self.failure = Some(shown(text));
        }
    }

    /// Records the plugin's reply.
    pub fn reply(&mut self, reply: &[u8]) {
        if self.is_expected {
            self.reply = Some(reply.to_vec());
        }
    }
}
