//! Outputs of a plugin besides verdicts, until the router collects them.

use std::collections::VecDeque;

use millrace_plugin_abi::{Instant, LogLevel, Output, Request, RequestKinds};
use millrace_units::PortId;

/// Maximum number of outputs of a plugin that the router hasn't collected yet.
const MOST_OUTPUTS: usize = 64;
/// Maximum number of log lines of a plugin per second.
const LINES_A_SECOND: u32 = 10;
const SECOND: u64 = 1_000_000_000;
/// Maximum bytes of a log line or an error text. The rest is cut off.
const MOST_TEXT: usize = 1024;
/// Maximum bytes of a packet that a plugin creates.
const MOST_MADE: usize = 9000;
/// Maximum bytes of a message between an instance and its host companion.
const MOST_MESSAGE: usize = 16 << 10;
/// Maximum bytes of a request to control.
const MOST_REQUEST: usize = 64 << 10;

/// Queue of a plugin's outputs.
#[derive(Debug)]
pub(crate) struct Outbox {
    outputs: VecDeque<Output>,
    log: LogLimit,
    /// Kinds of requests that the plugin may make to control.
    requests: RequestKinds,
}

/// Rate limit of the plugin's log lines.
#[derive(Debug, Default)]
struct LogLimit {
    second: u64,
    lines: u32,
}

impl Outbox {
    /// Creates an empty queue for a plugin that may make these kinds of requests.
    pub fn new(requests: RequestKinds) -> Self {
        Self { outputs: VecDeque::new(), log: LogLimit::default(), requests }
    }

    /// Removes and returns the earliest output.
    pub fn take(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Queues a log line, unless the rate limit suppresses it.
    pub fn log(&mut self, now: Instant, level: u32, line: &[u8]) {
        if self.log.admits(now) {
            self.give(Output::Log(LogLevel::from_number(level), shown(line)));
        }
    }

    /// Queues a packet that the plugin created. Returns `false` if the queue is full, or if the packet is
    /// empty or too long.
    pub fn packet(&mut self, content: &[u8], port: PortId, passes: u8) -> bool {
        let fits = !content.is_empty() && content.len() <= MOST_MADE;
        fits && self.give(Output::Packet { bytes: content.to_vec(), port, passes })
    }

    /// Queues a request to control. Returns `false` if the queue is full, or if the request is too long or no
    /// UTF-8.
    pub fn request(&mut self, json: &[u8]) -> bool {
        let fits = json.len() <= MOST_REQUEST;
        let Some(json) = std::str::from_utf8(json).ok().filter(|_| fits) else { return false };
        self.give(Output::Request(Request { json: json.to_owned(), granted: self.requests }))
    }

    /// Queues a message between an instance and its host companion, sent by the part that runs this plugin.
    /// Returns `false` if the queue is full or the message is too long.
    pub fn send(&mut self, message: &[u8]) -> bool {
        message.len() <= MOST_MESSAGE && self.give(Output::Message(message.to_vec()))
    }

    /// Queues an output. Returns `false` if 64 outputs wait already.
    fn give(&mut self, output: Output) -> bool {
        let room = self.outputs.len() < MOST_OUTPUTS;
        if room {
            self.outputs.push_back(output);
        }
        room
    }
}

impl LogLimit {
    /// Whether the rate limit admits another log line.
    fn admits(&mut self, now: Instant) -> bool {
        let second = now.as_nanos() / SECOND;
        if second != self.second {
            (self.second, self.lines) = (second, 0);
        }
        let is_admitted = self.lines < LINES_A_SECOND;
        self.lines += u32::from(is_admitted);
        is_admitted
    }
}

/// Returns the first [`MOST_TEXT`] bytes of `text`, with invalid UTF-8 replaced.
pub(super) fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..MOST_TEXT).unwrap_or(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_get_through() {
        let mut limit = LogLimit::default();
        assert_eq!((0..15).filter(|_| limit.admits(Instant::ZERO)).count(), 10);
        assert!(limit.admits(Instant::from_millis(1000)));
    }
}
