//! Measurements of a router from outside: answer times of its API, and resident memory of its process.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a hundred requests per second for `path` over one connection to a Unix socket. Returns the answer
/// times in ascending order.
///
/// # Panics
/// An answer takes more than 20 s, or its status is not 200.
pub fn answer_times(socket: &Path, path: &str, time: Duration) -> Vec<Duration> {
    let mut stream =
        UnixStream::connect(socket).unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        let asked = Instant::now();
        ask(&mut stream, path);
        times.push(asked.elapsed());
        std::thread::sleep(Duration::from_millis(10).saturating_sub(asked.elapsed()));
    }
    times.sort();
    times
}

/// Returns a percentile of times in ascending order.
///
/// # Panics
/// `times` is empty.
pub fn percentile(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn ask(stream: &mut UnixStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: millrace\r\n\r\n").expect("a request");
    let mut answer = Vec::new();
    let mut piece = [0; 16_384];
    loop {
        let length = stream.read(&mut piece).expect("an answer");
        assert!(length > 0, "the router ended the connection");
        answer.extend_from_slice(&piece[..length]);
        let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&answer[..head]).to_lowercase();
        assert!(text.starts_with("http/1.1 200"), "{text}");
        let said = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = said.and_then(|length| length.parse().ok()).expect("a length");
        if answer.len() >= head + 4 + length {
            return;
        }
    }
}

/// Returns the resident memory of a process in bytes.
///
/// # Panics
/// No such process exists.
pub fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let said = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let kilobytes: u64 = said.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes << 10
}
