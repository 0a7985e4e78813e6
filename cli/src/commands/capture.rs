//! The command `capture`.

use std::fs::File;
use std::io::{self, Write};

use crate::arguments::Capture;
use crate::client::Client;
use crate::commands::remote::segment;
use crate::output::Failure;

/// Writes the frames of a port to a file or to standard output, until interrupted or `--count` is reached.
pub fn capture(client: &Client, capture: &Capture) -> Result<(), Failure> {
    let mut query = format!("/capture?port={}&snap={}", segment(&capture.port), capture.snap);
    if let Some(filter) = &capture.filter {
        query += &format!("&filter={}", segment(filter));
    }
    if let Some(count) = capture.count {
        query += &format!("&count={count}");
    }
    let mut output: Box<dyn Write> = if capture.write.as_os_str() == "-" {
        Box::new(io::stdout())
    } else {
        let file = File::create(&capture.write)
            .map_err(|error| Failure::new(format!("can't write {}: {error}", capture.write.display())))?;
        Box::new(file)
    };
    client.stream(&query, "*/*", |bytes| match output.write_all(bytes).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("can't write {}: {error}", capture.write.display()))),
    })
}
