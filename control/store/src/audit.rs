//! The audit log: every change that was asked for, by whom, when, and what came of it, one line of JSON each.
//!
//! Lines are added to a file beside the revisions. When it is longer than 8 MiB it becomes `audit.1.jsonl`, that one `audit.2.jsonl`, and
//! so on to `audit.4.jsonl`, the oldest. A line is written before the answer is sent, and handed to the system, not to the disk: it survives
//! the router's death, and not that of the machine.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Who;

/// Bytes of a file that goes on being written.
const MOST_BYTES: u64 = 8 << 20;
/// Files with older lines.
const OLDER: u32 = 4;
/// Lines that are kept where there is no file.
const IN_MEMORY: usize = 1000;
/// Longest text in a line, in letters: whoever asks for much, or for what is refused with many words, must not push out what others did.
const MOST_TEXT: usize = 200;
/// Longest list in it.
const MOST_ENTRIES: usize = 20;

/// What came of what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was refused, and nothing was changed.
    Refused,
    /// It could not be done.
    Failed,
    /// Whoever asked went before it was answered: it may have been done.
    Abandoned,
}

/// Something that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// When it was answered: date and time, UTC.
    pub time: String,
    /// By whom.
    pub who: Who,
    /// The role that they had; none where they had none, or it was the router or a plugin.
    #[serde(default)]
    pub role: Option<String>,
    /// The process that asked; none where it was the router or a plugin, or somebody elsewhere.
    pub pid: Option<i32>,
    /// The address that it was asked from; none where it was this machine.
    #[serde(default)]
    pub from: Option<String>,
    /// The operation: a method and a resource, or what a plugin did.
    pub operation: String,
    /// What was asked for, in short; nothing where the operation says all.
    pub request: Option<Value>,
    /// What came of it.
    pub outcome: Outcome,
    /// The status of the answer, where it was one of the interface.
    pub status: Option<u16>,
    /// Why it was not done.
    pub why: Option<String>,
}

impl AuditEntry {
    /// Without what is long in it.
    fn shortened(self) -> Self {
        let Self { operation, request, why, .. } = &self;
        let (operation, why) = (shortened(operation), why.as_deref().map(shortened));
        let request = request.clone().map(without_long);
        Self { operation, request, why, ..self }
    }
}

fn without_long(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(shortened(&text)),
        Value::Array(entries) => {
            let more = entries.len().saturating_sub(MOST_ENTRIES);
            let mut kept: Vec<Value> = entries.into_iter().take(MOST_ENTRIES).map(without_long).collect();
            if more > 0 {
                kept.push(Value::String(format!("… and {more} more")));
            }
            Value::Array(kept)
        }
        Value::Object(keys) => {
            let more = keys.len().saturating_sub(MOST_ENTRIES);
            let kept = keys.into_iter().take(MOST_ENTRIES);
            let mut kept: serde_json::Map<_, _> =
                kept.map(|(key, value)| (shortened(&key), without_long(value))).collect();
            if more > 0 {
                kept.insert("…".to_owned(), Value::String(format!("and {more} more")));
            }
            Value::Object(kept)
        }
        other => other,
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// The audit log: in a file, or the latest lines as long as the router runs. Clones are the same.
#[derive(Clone, Debug)]
pub struct AuditLog(Arc<Mutex<Kept>>);

#[derive(Debug)]
enum Kept {
    Disk { path: PathBuf, file: Option<File> },
    Memory(VecDeque<AuditEntry>),
}

impl Default for AuditLog {
    /// One that ends with the router.
    fn default() -> Self {
        Self::open(None)
    }
}

impl AuditLog {
    /// The log of a directory, which need not be there yet; without one it ends with the router.
    pub fn open(directory: Option<&Path>) -> Self {
        let kept = match directory {
            Some(directory) => Kept::Disk { path: directory.join("audit.jsonl"), file: None },
            None => Kept::Memory(VecDeque::new()),
        };
        Self(Arc::new(Mutex::new(kept)))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // A line is there or not.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file; `None` where nothing outlives the router.
    pub fn path(&self) -> Option<PathBuf> {
        match &*self.lock() {
            Kept::Disk { path, .. } => Some(path.clone()),
            Kept::Memory(_) => None,
        }
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When it could not be written.
    pub fn add(&self, entry: AuditEntry) -> io::Result<()> {
        let entry = entry.shortened();
        match &mut *self.lock() {
            Kept::Disk { path, file } => {
                let written = write(path, file, &entry);
                if written.is_err() {
                    // The next line is tried from the beginning.
                    *file = None;
                }
                written
            }
            Kept::Memory(entries) => {
                if entries.len() == IN_MEMORY {
                    entries.pop_front();
                }
                entries.push_back(entry);
                Ok(())
            }
        }
    }

    /// The last lines, so many, the oldest first. Lines that can't be read are left out.
    ///
    /// # Errors
    /// A file that can't be read.
    pub fn last(&self, most: usize) -> io::Result<Vec<AuditEntry>> {
        let path = match &*self.lock() {
            Kept::Memory(entries) => {
                return Ok(entries.iter().skip(entries.len().saturating_sub(most)).cloned().collect());
            }
            Kept::Disk { path, .. } => path.clone(),
        };
        let mut found: VecDeque<AuditEntry> = VecDeque::new();
        for number in 0..=OLDER {
            let left = most - found.len();
            if left == 0 {
                break;
            }
            let older = last_lines(&numbered(&path, number), left)?;
            older.into_iter().rev().for_each(|entry| found.push_front(entry));
        }
        Ok(found.into())
    }
}

/// The last lines of a file; none where it isn't there.
fn last_lines(path: &Path, most: usize) -> io::Result<Vec<AuditEntry>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut last = VecDeque::new();
    for line in BufReader::new(file).split(b'\n') {
        let Ok(entry) = serde_json::from_slice(&line?) else { continue };
        if last.len() == most {
            last.pop_front();
        }
        last.push_back(entry);
    }
    Ok(last.into())
}

fn write(path: &Path, file: &mut Option<File>, entry: &AuditEntry) -> io::Result<()> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    // Whoever moved the file away wants another one.
    let mut open = match file.take() {
        Some(open) if path.exists() => open,
        _ => open_at(path)?,
    };
    let length = open.metadata()?.len();
    if length > 0 && length + line.len() as u64 > MOST_BYTES {
        drop(open);
        rotate(path)?;
        open = open_at(path)?;
    }
    open.write_all(&line)?;
    *file = Some(open);
    Ok(())
}

/// The file, open at its end; a line that was cut short there is ended.
fn open_at(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

fn rotate(path: &Path) -> io::Result<()> {
    for number in (0..OLDER).rev() {
        match fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The file with older lines of that number; 0 is the newest.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 0 { path.to_owned() } else { path.with_extension(format!("{number}.jsonl")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
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
        }
    }

    fn operations(log: &AuditLog, most: usize) -> Vec<String> {
        log.last(most).unwrap().into_iter().map(|entry| entry.operation).collect()
    }

    #[test]
    fn lines_are_found_again_in_their_order() {
        let folder = Folder::new("audit");
        for log in [AuditLog::open(None), AuditLog::open(Some(&folder.0.join("state")))] {
            assert!(operations(&log, 10).is_empty());
            (0..5).for_each(|number| log.add(entry(number, "")).unwrap());
            assert_eq!(operations(&log, 2), ["DELETE /filters/3", "DELETE /filters/4"]);
            assert_eq!(operations(&log, 100).len(), 5);
        }
        let path = folder.0.join("state/audit.jsonl");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A line that was cut short harms no other.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let again = AuditLog::open(Some(&folder.0.join("state")));
        again.add(entry(9, "")).unwrap();
        assert_eq!(operations(&again, 2), ["DELETE /filters/3", "DELETE /filters/9"]);
    }

    #[test]
    fn files_are_bounded_and_the_oldest_lines_go() {
        let folder = Folder::new("audit-long");
        let log = AuditLog::open(Some(&folder.0));
        // Longer than a line of the log ever is, so that few fill it.
        let (path, long, mut file) = (log.path().unwrap(), "x".repeat(1 << 20), None);
        for number in 0..60 {
            write(&path, &mut file, &entry(number, &long)).unwrap();
        }
        let files: Vec<u64> =
            fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(files.len(), 1 + OLDER as usize);
        assert!(files.iter().all(|length| *length <= MOST_BYTES), "{files:?}");
        let kept = operations(&log, 1000);
        assert_eq!(kept.last().unwrap(), "DELETE /filters/59");
        assert!((29..=35).contains(&kept.len()), "{}", kept.len());
        assert_eq!(operations(&log, 10).len(), 10, "out of two files");
    }

    #[test]
    fn what_is_long_is_shortened() {
        let log = AuditLog::open(None);
        let long = "x".repeat(1 << 20);
        let keys: serde_json::Map<_, _> = (0..50).map(|key| (format!("{key:02}"), true.into())).collect();
        let request = serde_json::json!({"text": long, "ids": (0..50).collect::<Vec<_>>(), "keys": keys, "origin": "a.toml"});
        let asked = AuditEntry {
            request: Some(request),
            why: Some(format!("no plugin is named {long:?}")),
            operation: format!("DELETE /gates/{long}"),
            ..entry(1, "")
        };
        log.add(asked).unwrap();
        let noted = log.last(1).unwrap().remove(0);
        let request = noted.request.as_ref().unwrap();
        assert_eq!((&request["origin"], &request["ids"][20]), (&"a.toml".into(), &"… and 30 more".into()));
        assert_eq!(request["keys"]["…"], "and 30 more");
        assert!(request["text"].as_str().unwrap().ends_with("x… (1048576 bytes)"), "{request}");
        assert!(serde_json::to_vec(&noted).unwrap().len() < 2000);
    }

    #[test]
    fn what_cannot_be_written_is_told_and_tried_again() {
        let folder = Folder::new("audit-full");
        fs::write(folder.0.join("file"), "").unwrap();
        let log = AuditLog::open(Some(&folder.0.join("file/below")));
        assert!(log.add(entry(0, "")).is_err());
        fs::remove_file(folder.0.join("file")).unwrap();
        log.add(entry(1, "")).unwrap();
        assert_eq!(operations(&log, 10), ["DELETE /filters/1"]);
    }
}
