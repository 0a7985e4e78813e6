//! The command `capture`, and writing of pcapng files.

use std::io::{self, Write};
use std::path::Path;

use millrace_port::create_recording;

use crate::arguments::Capture;
use crate::client::{Client, segment};
use crate::output::{Failure, rows};

/// Warning on standard error at the start.
const SLOWER: &str = "capture: matching flows are not offloaded while the capture runs, and TCP slows down; \
                      narrow the capture with --filter";

/// Media type of pcapng files.
const PCAPNG: &str = "application/x-pcapng";

/// Writes the frames captured at a place to a file or standard output, until an interrupt or `--count`
/// frames.
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

/// Returns kind and name of a capture place. A prefix before a colon states the kind. Without a prefix, the
/// router is asked which kinds of places have this name.
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
        // Unknown names are treated as ports: the port resource then reports the error.
        [] => Ok(("port", place.to_owned())),
        [kind] => Ok((*kind, place.to_owned())),
        several => {
            let forms: Vec<String> = several.iter().map(|kind| format!("{kind}:{place}")).collect();
            Err(Failure::new(format!("{place:?} is ambiguous: give {}", forms.join(" or "))))
        }
    }
}

/// Opens a file with access for its owner only, or standard output for `-`.
fn destination(file: &Path) -> io::Result<Box<dyn Write>> {
    Ok(match file.as_os_str() == "-" {
        true => Box::new(io::stdout()),
        false => Box::new(create_recording(file)?),
    })
}

/// Writes the pcapng stream of a resource to a file, or to standard output for `-`, until the stream ends or
/// the user presses Ctrl-C. Creates or truncates the file only when the first bytes arrive, so a refused
/// request leaves the file unchanged.
pub fn write_packets(client: &Client, path: &str, file: &Path) -> Result<(), Failure> {
    let failed = |error: &io::Error| Failure::new(format!("can't write {}: {error}", file.display()));
    let mut output = None;
    client.stream(path, PCAPNG, |bytes| match append(&mut output, file, bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failed(&error)),
    })
}

/// Appends bytes to the file; opens it at the first call.
fn append(output: &mut Option<Box<dyn Write>>, file: &Path, bytes: &[u8]) -> io::Result<()> {
    let output = match output {
        Some(open) => open,
        None => output.insert(destination(file)?),
    };
    output.write_all(bytes)?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn capture_follows_no_link_and_writes_a_private_file() {
        let folder = std::env::temp_dir().join(format!("millrace-cli-capture-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (victim, link, old) = (folder.join("victim"), folder.join("link"), folder.join("old"));
        fs::write(&victim, "kept").unwrap();
        symlink(&victim, &link).unwrap();
        assert!(destination(&link).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"kept");
        fs::write(&old, "older").unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
        drop(destination(&old).unwrap());
        assert_eq!(fs::metadata(&old).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(&folder).unwrap();
    }
}
