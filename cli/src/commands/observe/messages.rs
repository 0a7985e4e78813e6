//! Streams of server-sent events.

use serde_json::Value;

use crate::client::Client;
use crate::output::{Failure, write};

/// Converts each message of a stream with `text`, and prints the result. `text` returns the text to print,
/// and whether to continue after it; or `None` to end at once. Also ends when the reader has closed standard
/// output.
///
/// # Errors
/// The resource can't be read; the text is the daemon's.
pub fn print_messages(
    client: &Client,
    path: &str,
    mut text: impl FnMut(Message) -> Option<(String, bool)>,
) -> Result<(), Failure> {
    let mut messages = Messages::default();
    client.stream(path, "text/event-stream", |bytes| {
        for message in messages.add(bytes) {
            let Some((text, continues)) = text(message) else { return Ok(false) };
            if !write(text.as_bytes())? || !continues {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Parser of a server-sent event stream (WHATWG HTML, 9.2.6) whose data is JSON on one line.
#[derive(Default)]
struct Messages {
    rest: Vec<u8>,
    event: String,
}

/// Message of a server-sent event stream.
pub struct Message {
    /// Event type of the message.
    pub event: String,
    /// Data of the message, parsed as JSON.
    pub data: Value,
}

impl Messages {
    /// Adds received bytes, and returns the messages that are now complete.
    fn add(&mut self, bytes: &[u8]) -> Vec<Message> {
        self.rest.extend_from_slice(bytes);
        let mut whole = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut self.event);
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data = serde_json::from_str(data).unwrap_or(Value::Null);
                whole.push(Message { event: std::mem::take(&mut self.event), data });
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_put_together_from_pieces() {
        let text = ": hello\nretry: 1000\n\nid: 7\nevent: link-up\ndata: {\"number\": 7}\n\n: \n\nevent: missed\ndata: {\"missed\": 3}\n\n";
        for size in [1, 5, 1000] {
            let mut messages = Messages::default();
            let all: Vec<Message> =
                text.as_bytes().chunks(size).flat_map(|chunk| messages.add(chunk)).collect();
            let seen: Vec<_> = all.iter().map(|message| (&*message.event, &message.data)).collect();
            assert_eq!(seen, [("link-up", &json!({"number": 7})), ("missed", &json!({"missed": 3}))]);
        }
    }
}
