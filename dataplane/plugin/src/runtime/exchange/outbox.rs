//! Outputs of a plugin besides verdicts, until the router collects them.

use std::collections::VecDeque;
use std::time::Duration;

use millrace_plugin_abi::{Instant, LogLevel, Output, Packets, Request, RequestKinds};
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
/// Time for which the passes of handled packets count for packets that the plugin makes in calls without packets.
const LATELY: Duration = Duration::from_secs(1);
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
    /// Passes of the packets that the plugin handled lately; `None` if it may not make packets.
    lately: Option<LatePasses>,
}

/// Number of passes of packets that a plugin handled lately. A packet made in a timer call, or for a message, may follow
/// from any of them, so a greater number displaces a smaller one. A smaller one that comes while it counts is forgotten.
#[derive(Clone, Copy, Debug, Default)]
struct LatePasses {
    passes: u8,
    /// Time until which this number counts.
    until: Instant,
}

/// Rate limit of the plugin's log lines.
#[derive(Debug, Default)]
struct LogLimit {
    second: u64,
    lines: u32,
}

impl Outbox {
    /// Creates an empty queue for a plugin that may make these kinds of requests, and packets if `makes` is set.
    pub fn new(requests: RequestKinds, makes: bool) -> Self {
        let lately = makes.then(LatePasses::default);
        Self { outputs: VecDeque::new(), log: LogLimit::default(), requests, lately }
    }

    /// Notes the packets of a call that began at `now`.
    #[inline]
    pub fn note_packets(&mut self, packets: &Packets<'_>, now: Instant) {
        if let Some(lately) = &mut self.lately {
            lately.note(packets.passes(), now);
        }
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

    /// Queues a packet that the plugin created in a call that began at `now`. `passes`: maximum number of passes of the
    /// call's packets; `None` for a call without packets. Returns `false` if the queue is full, or if the packet is
    /// empty or too long.
    pub fn packet(&mut self, content: &[u8], port: PortId, passes: Option<u8>, now: Instant) -> bool {
        let fits = !content.is_empty() && content.len() <= MOST_MADE;
        let lately = self.lately.unwrap_or_default();
        let passes = passes.unwrap_or_else(|| lately.at(now));
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

impl LatePasses {
    /// Notes packets of a call at `now`. A greater number counts until its own time is over.
    fn note(&mut self, passes: u8, now: Instant) {
        if passes >= self.at(now) {
            *self = Self { passes, until: now + LATELY };
        }
    }

    /// Returns the number of passes that counts at `now`; 0 if none does.
    fn at(&self, now: Instant) -> u8 {
        if now < self.until { self.passes } else { 0 }
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
    use millrace_packet::{FlowKey, Pool};
    use millrace_plugin_abi::Verdict;

    use super::*;

    /// Returns the passes of a packet that a call makes at a time. `of_call`: passes of the call's packets.
    fn passes(outbox: &mut Outbox, of_call: Option<u8>, millis: u64) -> u8 {
        assert!(outbox.packet(&[1], PortId(1), of_call, Instant::from_millis(millis)));
        let Some(Output::Packet { passes, .. }) = outbox.take() else { panic!("no packet") };
        passes
    }

    #[test]
    fn packets_of_timers_have_the_greatest_passes_noted_until_a_second_later() {
        let mut outbox = Outbox::new(RequestKinds::default(), true);
        assert_eq!(passes(&mut outbox, None, 0), 0);
        let pool = Pool::new(2).unwrap();
        let mut packets = [pool.packet_from(&[0; 60]).unwrap(), pool.packet_from(&[0; 60]).unwrap()];
        let key = FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (1, 2), PortId(1));
        let mut call = |of_packets: [u8; 2], millis, outbox: &mut Outbox| {
            packets.iter_mut().zip(of_packets).for_each(|(packet, passes)| packet.passes = passes);
            let mut verdicts = [Verdict::Pass; 2];
            let keys = [key; 2];
            let packets = Packets::new(&mut packets, &keys, &[0, 1], &mut verdicts);
            outbox.note_packets(&packets, Instant::from_millis(millis));
        };
        call([1, 3], 100, &mut outbox);
        assert_eq!([Some(1), None].map(|of_call| passes(&mut outbox, of_call, 200)), [1, 3]);
        // Packets that were handled after fewer passes change nothing meanwhile.
        call([0, 1], 900, &mut outbox);
        assert_eq!([1099, 1100].map(|millis| passes(&mut outbox, None, millis)), [3, 0]);
        call([2, 0], 1200, &mut outbox);
        call([2, 2], 1300, &mut outbox);
        assert_eq!([2299, 2300].map(|millis| passes(&mut outbox, None, millis)), [2, 0]);
    }

    #[test]
    fn ten_lines_a_second_get_through() {
        let mut limit = LogLimit::default();
        assert_eq!((0..15).filter(|_| limit.admits(Instant::ZERO)).count(), 10);
        assert!(limit.admits(Instant::from_millis(1000)));
    }
}
