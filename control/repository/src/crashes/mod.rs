//! Crash records: lines written while the process dies, and read at the next start.
//!
//! A signal handler writes the line, so it can neither allocate nor wait. Therefore the file is already open,
//! and each instance has a prepared line that lacks only two numbers. The handler does not sync the file. So
//! the line survives the end of the process, but maybe not a power failure.

pub(crate) mod captures;

use std::fs::File;
use std::path::Path;

use serde::Deserialize;

use crate::notebook::{NotebookError, make_private, private, read_own};
use crate::{Held, Quarantine};

const FILE: &str = "crashes";

/// Line of the crash file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Crash {
    instance: String,
    plugin: String,
    signal: i32,
    since: u64,
}

/// Prepared line of a crash. The signal number and the time are missing, since they are known only at the
/// crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CrashLine {
    /// Text before the signal number. It begins with a line end, in case the previous line is incomplete.
    pub before_signal: String,
    /// Text before the time, in seconds since 1970.
    pub before_time: &'static str,
    /// Text after the time.
    pub end: &'static str,
}

impl CrashLine {
    /// Returns the line for a call of an instance of a plugin.
    pub fn of(instance: &str, plugin: &str) -> Self {
        let (instance, plugin) = (serde_json::Value::from(instance), serde_json::Value::from(plugin));
        Self {
            before_signal: format!("\n{{\"instance\":{instance},\"plugin\":{plugin},\"signal\":"),
            before_time: ",\"since\":",
            end: "}\n",
        }
    }
}

/// Crashes of the previous run, found at the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Instances that are now in quarantine because of a crash.
    pub held: Vec<Held>,
    /// Number of unreadable lines.
    pub unreadable: usize,
}

/// Opens the crash file of a directory for appending; creates a missing directory.
pub fn crash_file(directory: &Path) -> Result<File, NotebookError> {
    let path = directory.join(FILE);
    let opened = make_private(directory).and_then(|()| private().append(true).create(true).open(&path));
    opened.map_err(NotebookError::of(&path))
}

impl Quarantine {
    /// Puts the instances in a directory's crash file into quarantine, and empties the file.
    ///
    /// # Errors
    /// A sentence: the file can't be read or emptied, or the quarantine can't be written.
    pub fn take_crashes(&mut self, directory: &Path) -> Result<Found, String> {
        let path = directory.join(FILE);
        let text = read_own(&path)?.unwrap_or_default();
        let mut found = Found::default();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Crash>(line) {
                Ok(crash) => found.held.push(crash.held()),
                Err(_) => found.unreadable += 1,
            }
        }
        for held in &found.held {
            self.put(held.clone()).map_err(|error| error.to_string())?;
        }
        if !text.is_empty() {
            let emptied = private().write(true).open(&path).and_then(|file| file.set_len(0));
            emptied.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(found)
    }
}

impl Crash {
    fn held(self) -> Held {
        let Self { instance, plugin, signal, since } = self;
        let why = format!("a call of the instance crashed (signal {signal}), ending the router");
        Held { instance, plugin, since, why }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::test_folder::Folder;

    #[test]
    fn crashed_instance_is_quarantined_once_and_truncated_records_are_ignored() {
        let folder = Folder::new("crashes");
        let open = || Quarantine::open(Some(&folder.0));
        assert_eq!(open().take_crashes(&folder.0), Ok(Found::default()));
        let mut file = crash_file(&folder.0).unwrap();
        let CrashLine { before_signal, before_time, end } = CrashLine::of("a \"b\"", "p");
        write!(file, "\n{{\"instance\":{before_signal}11{before_time}1700000000{end}").unwrap();
        let found = open().take_crashes(&folder.0).unwrap();
        assert_eq!((found.held.len(), found.unreadable), (1, 1));
        let held = open().find("a \"b\"", "p").unwrap().clone();
        assert_eq!(
            (held.since, &*held.why),
            (1_700_000_000, "a call of the instance crashed (signal 11), ending the router")
        );
        assert!(open().release("a \"b\"", "p").unwrap());
        assert_eq!(open().take_crashes(&folder.0), Ok(Found::default()));
        // The handle was opened before the file was emptied, and still appends to it.
        write!(file, "{before_signal}6{before_time}1700000001{end}").unwrap();
        assert_eq!(open().take_crashes(&folder.0).unwrap().held[0].since, 1_700_000_001);
    }

    #[test]
    fn a_file_that_others_may_write_counts_for_nothing() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = Folder::new("crashes-open");
        let file = crash_file(&folder.0).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o666)).unwrap();
        let refused = Quarantine::open(Some(&folder.0)).take_crashes(&folder.0).unwrap_err();
        assert!(refused.contains("crashes can't be read: it must belong to the router's user"), "{refused}");
    }
}
