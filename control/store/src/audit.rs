//! Audit log: every requested change with user, time and outcome, one JSON line each.
//!
//! A separate thread (`audit_writer.rs`) appends lines to a file in the directory of the revisions
//! (`audit_file.rs`). It writes to the page cache without a sync. So lines survive the end of the router, but
//! not a power failure. An orderly shutdown waits for the last line.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::audit_entry::AuditEntry;
use crate::audit_file::{self, AuditFile, AuditLimits};
use crate::audit_writer::{AuditTrouble, Writer, Written};
use crate::store::lock;

/// Number of latest lines that a log without a file keeps in memory.
const IN_MEMORY: usize = 1000;
/// Maximum time that a reader waits until queued lines are written.
const PATIENCE: Duration = Duration::from_secs(1);

/// Audit log: a file, or the latest lines in memory. Clones share one log.
#[derive(Clone, Debug)]
pub struct AuditLog(Kept);

#[derive(Clone, Debug)]
enum Kept {
    Disk { path: PathBuf, limits: AuditLimits, writer: Writer },
    Memory(Arc<Mutex<VecDeque<AuditEntry>>>),
}

impl Default for AuditLog {
    /// Creates a log in memory; its lines are lost when the router ends.
    fn default() -> Self {
        Self(Kept::Memory(Arc::default()))
    }
}

impl AuditLog {
    /// Opens the log of a directory, which may not exist yet, and starts its writer thread. This thread calls
    /// `tell` for each failure.
    pub fn open(
        directory: &Path,
        limits: AuditLimits,
        tell: impl Fn(AuditTrouble) + Send + 'static,
    ) -> io::Result<Self> {
        let file = AuditFile::new(directory, limits);
        let path = file.path.clone();
        let writer = Writer::start(file, Box::new(tell))?;
        Ok(Self(Kept::Disk { path, limits, writer }))
    }

    /// Returns the path of the log file; `None` for a log in memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Kept::Disk { path, .. } => Some(path),
            Kept::Memory(_) => None,
        }
    }

    /// Queues a line without waiting for the disk. With the returned value, the caller can wait for the
    /// write.
    pub fn add(&self, entry: AuditEntry) -> Written {
        let entry = entry.shortened();
        match &self.0 {
            Kept::Disk { writer, .. } => writer.write(entry),
            Kept::Memory(entries) => {
                let mut entries = lock(entries);
                if entries.len() == IN_MEMORY {
                    entries.pop_front();
                }
                entries.push_back(entry);
                Written::already()
            }
        }
    }

    /// Waits until all queued lines are written, at most `patience`. Returns whether they are written.
    pub fn flush(&self, patience: Duration) -> bool {
        match &self.0 {
            Kept::Disk { writer, .. } => writer.flush(patience),
            Kept::Memory(_) => true,
        }
    }

    /// Returns the last `most` lines, the oldest first. Omits unreadable lines. Waits at most a second for
    /// queued lines, and omits lines that are not written by then.
    pub fn last(&self, most: usize) -> io::Result<Vec<AuditEntry>> {
        match &self.0 {
            Kept::Memory(entries) => {
                let entries = lock(entries);
                Ok(entries.iter().skip(entries.len().saturating_sub(most)).cloned().collect())
            }
            Kept::Disk { path, limits, writer } => {
                writer.flush(PATIENCE);
                audit_file::last(path, *limits, most)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Instant;

    use super::*;
    use crate::Who;
    use crate::audit_entry::Outcome;
    use crate::test_folder::Folder;

    fn entry(number: usize, request: &str) -> AuditEntry {
        AuditEntry {
            time: "2026-11-22T12:00:00.000Z".into(),
            who: Who::user(0, Some("root".into())),
            role: Some("admin".into()),
            pid: Some(7),
            from: None,
            operation: format!("DELETE /filters/{number}"),
            request: Some(request.into()),
            outcome: Outcome::Done,
            status: Some(200),
            why: None,
            revision: None,
        }
    }

    fn operations(log: &AuditLog, most: usize) -> Vec<String> {
        log.last(most).unwrap().into_iter().map(|entry| entry.operation).collect()
    }

    /// Opens the log of a directory, and returns it with the receiver of its failures.
    fn open(directory: &Path, limits: AuditLimits) -> (AuditLog, Receiver<AuditTrouble>) {
        let (tell, told) = channel();
        let log = AuditLog::open(directory, limits, move |trouble| drop(tell.send(trouble))).unwrap();
        (log, told)
    }

    #[test]
    fn lines_are_found_again_in_their_order() {
        let folder = Folder::new("audit");
        let state = folder.0.join("state");
        for log in [AuditLog::default(), open(&state, AuditLimits::default()).0] {
            assert!(operations(&log, 10).is_empty());
            (0..5).for_each(|number| drop(log.add(entry(number, ""))));
            assert_eq!(operations(&log, 2), ["DELETE /filters/3", "DELETE /filters/4"]);
            assert_eq!(operations(&log, 100).len(), 5);
        }
        let path = folder.0.join("state/audit.jsonl");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A truncated line affects no other line.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let (again, _) = open(&state, AuditLimits::default());
        drop(again.add(entry(9, "")));
        assert_eq!(operations(&again, 2), ["DELETE /filters/3", "DELETE /filters/9"]);
    }

    #[test]
    fn lines_go_into_the_file_that_stands_there_also_where_another_one_was_put() {
        let folder = Folder::new("audit-moved");
        let (log, _) = open(&folder.0, AuditLimits::default());
        drop(log.add(entry(0, "")));
        assert_eq!(operations(&log, 10).len(), 1);
        // Renames the file and creates a new one, as `logrotate` does with `create`.
        let path = folder.0.join("audit.jsonl");
        fs::rename(&path, folder.0.join("audit.jsonl.1")).unwrap();
        fs::write(&path, "").unwrap();
        drop(log.add(entry(1, "")));
        assert_eq!(operations(&log, 10), ["DELETE /filters/1"]);
    }

    #[test]
    fn files_are_bounded_and_the_oldest_lines_go() {
        for files in [1, 3] {
            let folder = Folder::new(&format!("audit-long-{files}"));
            let limits = AuditLimits { bytes: 100_000, files };
            let (log, _) = open(&folder.0, limits);
            (0..3000).for_each(|number| drop(log.add(entry(number, &"x".repeat(150)))));
            assert!(log.flush(Duration::from_secs(20)));
            let lengths: Vec<u64> = fs::read_dir(&folder.0)
                .unwrap()
                .map(|file| file.unwrap().metadata().unwrap().len())
                .collect();
            assert_eq!(lengths.len(), files as usize);
            assert!(lengths.iter().all(|length| *length <= limits.bytes), "{lengths:?}");
            let kept = operations(&log, 10_000);
            assert_eq!(kept.last().unwrap(), "DELETE /filters/2999");
            assert!(kept.len() < 3000 && kept.len() > 200 * (files as usize - 1), "{}", kept.len());
            let all_in_order = kept.windows(2).all(|pair| number(&pair[0]) + 1 == number(&pair[1]));
            assert!(all_in_order, "out of several files");
        }
    }

    fn number(operation: &str) -> usize {
        operation.rsplit('/').next().unwrap().parse().unwrap()
    }

    #[test]
    fn stalled_disk_delays_nobody_and_lost_lines_are_counted() {
        let folder = Folder::new("audit-stall");
        let pipe = folder.0.join("audit.jsonl");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // The log file is a full pipe, so writing to it blocks.
        let mut reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let (log, told) = open(&folder.0, AuditLimits::default());
        let begun = Instant::now();
        let all = 3 * crate::audit_writer::WAITING;
        (0..all).for_each(|number| drop(log.add(entry(number, ""))));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(!log.flush(Duration::from_millis(50)));
        let reading = std::thread::spawn(move || {
            let (mut text, mut piece) = (Vec::new(), vec![0; 1 << 16]);
            let end = b"the end\",\"outcome\":\"done\",\"status\":200,\"why\":null,\"revision\":null}\n";
            while !text.ends_with(end) {
                let read = reader.read(&mut piece).unwrap();
                text.extend_from_slice(&piece[..read]);
            }
            String::from_utf8(text).unwrap()
        });
        assert!(log.flush(Duration::from_secs(20)));
        let lost: u64 = told
            .try_iter()
            .map(|trouble| match trouble {
                AuditTrouble::Lost(lost) => lost,
                AuditTrouble::Unwritten(error) => panic!("{error}"),
            })
            .sum();
        drop(log.add(AuditEntry {
            operation: "last".into(),
            request: Some("the end".into()),
            ..entry(0, "")
        }));
        let text = reading.join().unwrap();
        assert_eq!(text.matches("DELETE /filters/").count() as u64 + lost, all as u64);
        assert!(lost > 0 && text.contains("lines lost"), "{lost}");
    }

    #[tokio::test]
    async fn line_is_in_the_file_when_its_caller_continues() {
        let folder = Folder::new("audit-wait");
        let (log, _) = open(&folder.0, AuditLimits::default());
        for number in 0..100 {
            log.add(entry(number, "")).done().await;
            let text = fs::read_to_string(folder.0.join("audit.jsonl")).unwrap();
            assert!(
                text.ends_with('\n') && text.contains(&format!("/filters/{number}\"")),
                "{number}: {text}"
            );
        }
        AuditLog::default().add(entry(0, "")).done().await;
    }

    #[test]
    fn long_entries_are_shortened() {
        let log = AuditLog::default();
        let long = "x".repeat(1 << 20);
        let keys: serde_json::Map<_, _> = (0..50).map(|key| (format!("{key:02}"), true.into())).collect();
        let request = serde_json::json!({"text": long, "ids": (0..50).collect::<Vec<_>>(), "keys": keys, "origin": "a.toml"});
        let asked = AuditEntry {
            request: Some(request),
            why: Some(format!("no plugin is named {long:?}")),
            operation: format!("DELETE /gates/{long}"),
            ..entry(1, "")
        };
        drop(log.add(asked));
        let noted = log.last(1).unwrap().remove(0);
        let request = noted.request.as_ref().unwrap();
        assert_eq!((&request["origin"], &request["ids"][20]), (&"a.toml".into(), &"… and 30 more".into()));
        assert_eq!(request["keys"]["…"], "and 30 more");
        assert!(request["text"].as_str().unwrap().ends_with("x… (1048576 bytes)"), "{request}");
        assert!(serde_json::to_vec(&noted).unwrap().len() < 2000);
    }

    #[test]
    fn line_of_any_request_has_at_most_8_kib() {
        let log = AuditLog::default();
        // Each of these characters takes six bytes in JSON.
        let long = "\u{1}".repeat(1000);
        let request = serde_json::json!({"entries": vec![vec![&long; 20]; 20]});
        drop(log.add(AuditEntry {
            who: Who { uid: Some(u32::MAX), name: long.clone() },
            operation: long.clone(),
            request: Some(request),
            why: Some(long.clone()),
            revision: Some(u64::MAX),
            ..entry(1, "")
        }));
        let noted = log.last(1).unwrap().remove(0);
        let bytes = serde_json::to_vec(&noted).unwrap().len();
        assert!(bytes <= 8192, "{bytes} bytes");
    }

    #[test]
    fn failed_write_is_reported_and_repeated() {
        let folder = Folder::new("audit-full");
        fs::write(folder.0.join("file"), "").unwrap();
        let (log, told) = open(&folder.0.join("file/below"), AuditLimits::default());
        drop(log.add(entry(0, "")));
        assert!(log.flush(Duration::from_secs(5)));
        assert!(matches!(told.try_recv(), Ok(AuditTrouble::Unwritten(_))));
        fs::remove_file(folder.0.join("file")).unwrap();
        drop(log.add(entry(1, "")));
        assert_eq!(operations(&log, 10), ["DELETE /filters/1"]);
    }
}
