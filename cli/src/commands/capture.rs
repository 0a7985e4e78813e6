//! The command `capture`, and files of packets.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::arguments::Capture;
use crate::client::Client;
use crate::commands::remote::segment;
use crate::output::{Failure, rows};

/// First line on standard error.
const SLOWER: &str = "capture: flows that it may match leave the driver while it runs, and TCP slows down; \
    narrow it by --filter";

/// What files of packets are.
const PCAPNG: &str = "application/x-pcapng";

/// Writes the frames at a place to a file or to standard output, until interrupted or `--count` is reached.
pub fn capture(client: &Client, capture: &Capture) -> Result<(), Failure> {
    let (kind, name) = place(client, &capture.place)?;
    eprintln!("{SLOWER}");
    let mut query = format!("/capture?{kind}={}&snap={}", segment(&name), capture.snap);
    if let Some(filter) = &capture.filter {
        query += &format!("&filter={}", segment(filter));
    }
    if let Some(count) = capture.count {
        query += &format!("&count={count}");
    }
    write_packets(client, &query, &capture.write)
}

/// What a place is, and its name: as it is said before a colon, or what there is of that name.
fn place(client: &Client, place: &str) -> Result<(&'static str, String), Failure> {
    const KINDS: [(&str, &str); 3] = [("port", "/ports"), ("gate", "/gates"), ("instance", "/instances")];
    if let Some((kind, name)) = place.split_once(':')
        && let Some((kind, _)) = KINDS.iter().find(|(known, _)| *known == kind)
    {
        return Ok((*kind, name.to_owned()));
    }
    if place == "any" {
        return Ok(("port", place.to_owned()));
    }
    let mut found = Vec::new();
    for (kind, path) in KINDS {
        if rows(&client.get(path)?).iter().any(|row| row["name"] == place) {
            found.push(kind);
        }
    }
    match found.as_slice() {
        // Who has ports says that there is no such one.
        [] => Ok(("port", place.to_owned())),
        [kind] => Ok((*kind, place.to_owned())),
        several => {
            let forms: Vec<String> = several.iter().map(|kind| format!("{kind}:{place}")).collect();
            Err(Failure::new(format!("{place:?} is the name of several: say {}", forms.join(" or "))))
        }
    }
}

/// Makes or empties a file that its owner alone may read: a capture shows traffic.
fn private(file: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(file)
}

/// Writes what a resource says as pcapng to a file, or to standard output for `-`, until it ends or is interrupted.
pub fn write_packets(client: &Client, path: &str, file: &Path) -> Result<(), Failure> {
    let failed = |error: &io::Error| Failure::new(format!("can't write {}: {error}", file.display()));
    let mut output: Box<dyn Write> = match file.as_os_str() == "-" {
        true => Box::new(io::stdout()),
        false => Box::new(private(file).map_err(|error| failed(&error))?),
    };
    client.stream(path, PCAPNG, |bytes| match output.write_all(bytes).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failed(&error)),
    })
}
