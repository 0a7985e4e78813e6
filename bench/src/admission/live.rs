//! `live`: decisions of a running router, over its Unix socket.
//!
//! The router has two ports in memory, and some services. Dry runs of `instance create` and `flow reserve` decide, and
//! show all components. The time of `admission show`, which only shows them, is subtracted.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant as Clock};

use super::failed;
use crate::interrupt::check;
use crate::statistics::median;
use crate::testbed::router::Router;
use crate::testbed::scratch::Scratch;
use crate::{BenchError, Bound, Measurement, Options};

const CONFIGURATION: &str = "[router]\non-death = \"drop\"\n\
    [[port]]\nname = \"a\"\nkind = \"memory\"\n[[port]]\nname = \"b\"\nkind = \"memory\"\n";
/// Numbers of services beside a decision.
const SERVICES: [usize; 2] = [0, 100];
/// Number of requests.
const REQUESTS: usize = 200;
/// Longest time of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Promised maxima in microseconds: decision on a service, and on a reservation.
const PLACED: f64 = 1_000.0;
const RESERVED: f64 = 100.0;

/// Requests: method, path and body.
const SHOW: [&str; 3] = ["GET", "/admission", ""];
const PLACE: [&str; 3] = [
    "POST",
    "/admission/place",
    r#"{"plugin": "statistics", "service": {"rate": 100, "size": "300B", "packet": 120}}"#,
];
const RESERVE: [&str; 3] =
    ["POST", "/reservations", r#"{"filter": "proto udp dport 9100", "cpu": "0.1%", "dry_run": true}"#];

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let scratch = Scratch::new()?;
    let file = scratch.write("router.toml", CONFIGURATION.as_bytes())?;
    let socket = std::env::temp_dir().join(format!("millrace-live-{}.sock", std::process::id()));
    let mut command = Command::new(&options.binary);
    command.args(["run", "--config", &file, "--state", "none"]);
    let router = Router::launch(command, &options.binary, socket.clone())?;
    let mut results = Vec::new();
    let mut made = 0;
    for services in SERVICES {
        while made < services {
            check()?;
            let name = format!("s{made}");
            let load = ["--rate", "10", "--size", "300B", "--packet", "120"];
            router.tell(&[&["instance", "create", "statistics", &name][..], &load].concat())?;
            made += 1;
        }
        let mut client = Client::new(&socket)?;
        let shown = median(&client.times(SHOW)?);
        for (what, request, limit) in [("service", PLACE, PLACED), ("flow reservation", RESERVE, RESERVED)] {
            let all = median(&client.times(request)?);
            (options.progress)(&format!(
                "live, {services} services: {all:.0} us for a {what}, {shown:.0} us to show the components"
            ));
            let case = format!("live, decision on a {what} beside {services} services");
            results.push(Measurement::of(case, (all - shown).max(0.0), "us").promising(Bound::AtMost, limit));
        }
    }
    router.stop()?;
    Ok(results)
}

/// Connection to the router.
struct Client(UnixStream);

impl Client {
    fn new(socket: &Path) -> Result<Self, BenchError> {
        let stream = UnixStream::connect(socket).map_err(BenchError::system("connect to the router"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(BenchError::system("limit the time of an answer"))?;
        Ok(Self(stream))
    }

    /// Returns the microseconds of requests.
    fn times(&mut self, request: [&str; 3]) -> Result<Vec<f64>, BenchError> {
        let timed = |_| {
            check()?;
            let start = Clock::now();
            self.ask(request)?;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        };
        (0..REQUESTS).map(timed).collect()
    }

    fn ask(&mut self, [method, path, body]: [&str; 3]) -> Result<(), BenchError> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: millrace\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.write_all(request.as_bytes()).map_err(BenchError::system("ask the router"))?;
        let (mut answer, mut piece) = (Vec::new(), [0; 16_384]);
        while !is_complete(&answer)? {
            let length = self.0.read(&mut piece).map_err(BenchError::system("read an answer"))?;
            if length == 0 {
                return Err(failed("the router ended the connection"));
            }
            answer.extend_from_slice(piece.get(..length).unwrap_or_default());
        }
        Ok(())
    }
}

/// Whether an answer has arrived.
///
/// # Errors
/// It is an error.
fn is_complete(answer: &[u8]) -> Result<bool, BenchError> {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
    let text = String::from_utf8_lossy(answer.get(..head).unwrap_or_default()).to_lowercase();
    if !text.starts_with("http/1.1 20") {
        return Err(failed(String::from_utf8_lossy(answer)));
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    Ok(answer.len() >= head + 4 + length.ok_or_else(|| failed("an answer without a length"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_complete_with_their_length_and_errors_are_reported() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
        assert!(!is_complete(b"HTTP/1.1 200 OK\r\n").unwrap());
        assert!(is_complete(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").unwrap());
        assert!(!is_complete(format!("{head}abc").as_bytes()).unwrap());
        assert!(is_complete(format!("{head}abcd").as_bytes()).unwrap());
        let error = is_complete(b"HTTP/1.1 409 Conflict\r\ncontent-length: 3\r\n\r\nno\n").unwrap_err();
        assert!(error.to_string().contains("409"), "{error}");
    }
}
