//! The command `capture`, and files of packets.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::arguments::Capture;
use crate::client::Client;
use crate::commands::remote::segment;
use crate::output::Failure;

/// What files of packets are.
const PCAPNG: &str = "application/x-pcapng";

/// Writes the frames of a port to a file or to standard output, until interrupted or `--count` is reached.
pub fn capture(client: &Client, capture: &Capture) -> Result<(), Failure> {
    let mut query = format!("/capture?port={}&snap={}", segment(&capture.port), capture.snap);
    if let Some(filter) = &capture.filter {
        query += &format!("&filter={}", segment(filter));
    }
    if let Some(count) = capture.count {
        query += &format!("&count={count}");
    }
    write_packets(client, &query, &capture.write)
}

/// Writes what a resource says as pcapng to a file, or to standard output for `-`, until it ends or is interrupted.
pub fn write_packets(client: &Client, path: &str, file: &Path) -> Result<(), Failure> {
    let failed = |error: &io::Error| Failure::new(format!("can't write {}: {error}", file.display()));
    let mut output: Box<dyn Write> = match file.as_os_str() == "-" {
        true => Box::new(io::stdout()),
        false => Box::new(File::create(file).map_err(|error| failed(&error))?),
    };
    client.stream(path, PCAPNG, |bytes| match output.write_all(bytes).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failed(&error)),
    })
}
