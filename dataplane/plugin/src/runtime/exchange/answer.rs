//! Requests to a plugin other than packets, and the replies.

use super::outbox::shown;

/// Request to a plugin other than the processing of packets.
#[derive(Debug)]
pub(crate) enum Job {
    /// Control message with its arguments as JSON.
    Control { name: String, arguments: Vec<u8> },
    /// Message from the other half of the plugin.
    Message(Vec<u8>),
    /// Request to save its state.
    Save,
    /// Request to restore state that the plugin saved under a state version.
    Restore { state: Vec<u8>, version: u32 },
}

/// Request in progress, with its result.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Pending request to the plugin.
    pub pending: Option<Job>,
    /// Result of the latest request: the reply, or the error text.
    pub outcome: Option<Result<Vec<u8>, String>>,
}

impl Jobs {
    /// Begins a request, and forgets the result of the earlier one.
    pub fn begin(&mut self, job: Job) {
        (self.pending, self.outcome) = (Some(job), None);
    }
}

/// Reply of a plugin to the call in progress.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Whether `reply` and `fail` take effect: only while a request is pending.
    is_expected: bool,
    reply: Option<Vec<u8>>,
    failure: Option<String>,
}

impl Answer {
    /// Starts to accept a reply or an error text from the plugin; discards earlier ones.
    pub fn listen(&mut self) {
        *self = Self { is_expected: true, reply: None, failure: None };
    }

    /// Returns the plugin's reply to a call that returned `result`.
    ///
    /// # Errors
    /// The error text of the plugin, or one with `result` if the plugin gave none.
    pub fn take(&mut self, result: i32) -> Result<Vec<u8>, String> {
        let Self { reply, failure, .. } = std::mem::take(self);
        match (result, failure) {
            (0, None) => Ok(reply.unwrap_or_default()),
            (_, Some(failure)) => Err(failure),
            (_, None) => Err(format!("the plugin returned {result} without an error message")),
        }
    }

    /// Records the error text of a failed request.
    pub fn fail(&mut self, text: &[u8]) {
        if self.is_expected {
            self.failure = Some(shown(text));
        }
    }

    /// Records the reply to a request.
    pub fn reply(&mut self, reply: &[u8]) {
        if self.is_expected {
            self.reply = Some(reply.to_vec());
        }
    }
}
