//! Checks the files of ports. If two ports wrote to one file, each would overwrite the other's frames.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::{At, Checker};

/// Device files that several ports may write to.
const SINKS: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// Use of a file by a port.
struct Use<'a> {
    port: &'a str,
    index: usize,
    /// Key of the port that names the file.
    key: &'static str,
}

impl Checker<'_> {
    /// Refuses a file that is written by two ports, or written by one port and read by another.
    pub(super) fn port_files(&self) {
        let mut written: HashMap<PathBuf, Use<'_>> = HashMap::new();
        for (path, using) in self.files_of_ports(&["record", "output"]) {
            match written.get(&path) {
                Some(other) => self.refuse_file(&path, other, &using),
                None => drop(written.insert(path, using)),
            }
        }
        for (path, using) in self.files_of_ports(&["input"]) {
            if let Some(other) = written.get(&path) {
                self.refuse_file(&path, other, &using);
            }
        }
    }

    /// Returns the files that ports name by one of `keys`, except [`SINKS`].
    fn files_of_ports(&self, keys: &'static [&'static str]) -> Vec<(PathBuf, Use<'_>)> {
        let mut files = Vec::new();
        for (index, port) in self.config.port.iter().enumerate() {
            for key in keys {
                let path = match *key {
                    "record" => &port.record,
                    "output" => &port.output,
                    _ => &port.input,
                };
                let is_file = |path: &&Path| !SINKS.iter().any(|sink| Path::new(sink) == *path);
                let Some(path) = path.as_deref().filter(is_file) else {
                    continue;
                };
                files.push((plain(path), Use { port: &port.name, index, key }));
            }
        }
        files
    }

    fn refuse_file(&self, path: &Path, first: &Use<'_>, second: &Use<'_>) {
        self.at("port", Some(second.index));
        let at = At::Entry("port", second.index, &[second.key]);
        self.note(self.require(false, at, || {
            let (first_key, second_key) = (first.key, second.key);
            let (one, other) = (first.port, second.port);
            let who = match one == other {
                true => format!("port {one:?} names {path:?} as {first_key} and as {second_key}"),
                false => format!(
                    "ports {one:?} ({first_key}) and {other:?} ({second_key}) name the same file {path:?}"
                ),
            };
            format!("{who}: the frames would overwrite each other; give each key a file of its own")
        }));
    }
}

/// Returns a path without `.` between its parts.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}
