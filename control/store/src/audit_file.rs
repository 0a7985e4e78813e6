//! Files of the audit log. Rotation renames a full file to `audit.1.jsonl`, `audit.1.jsonl` to
//! `audit.2.jsonl`, and so on. It deletes the oldest file.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::audit_entry::AuditEntry;

/// Size limits of the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditLimits {
    /// Maximum size of the current file, in bytes.
    pub bytes: u64,
    /// Maximum number of files, the current file included.
    pub files: u32,
}

impl Default for AuditLimits {
    fn default() -> Self {
        Self { bytes: 8 << 20, files: 5 }
    }
}

/// Current file of the audit log.
#[derive(Debug)]
pub(crate) struct AuditFile {
    pub path: PathBuf,
    limits: AuditLimits,
    open: Option<File>,
}

impl AuditFile {
    /// Creates the file of a directory, which may not exist yet.
    pub fn new(directory: &Path, limits: AuditLimits) -> Self {
        Self { path: directory.join("audit.jsonl"), limits, open: None }
    }

    /// Appends a line and passes it to the kernel.
    ///
    /// # Errors
    /// The line could not be written. The next write opens the file again.
    pub fn write(&mut self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        // If the path no longer leads to the open file, for example after a rename, open the path again.
        let mut open = match self.open.take() {
            Some(open) if is_at(&open, &self.path) => open,
            _ => open_at(&self.path)?,
        };
        let length = open.metadata()?.len();
        if length > 0 && length + line.len() as u64 > self.limits.bytes {
            drop(open);
            self.rotate()?;
            open = open_at(&self.path)?;
        }
        open.write_all(&line)?;
        self.open = Some(open);
        Ok(())
    }

    fn rotate(&self) -> io::Result<()> {
        let oldest = self.limits.files.saturating_sub(1);
        if oldest == 0 {
            return fs::remove_file(&self.path);
        }
        for number in (0..oldest).rev() {
            match fs::rename(numbered(&self.path, number), numbered(&self.path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether an open file is the file at a path.
fn is_at(open: &File, path: &Path) -> bool {
    let (Ok(one), Ok(other)) = (open.metadata(), fs::metadata(path)) else { return false };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Returns the last `most` lines of a log, the oldest first. Unreadable lines are omitted.
pub(crate) fn last(path: &Path, limits: AuditLimits, most: usize) -> io::Result<Vec<AuditEntry>> {
    let mut found: VecDeque<AuditEntry> = VecDeque::new();
    for number in 0..limits.files {
        let left = most - found.len();
        if left == 0 {
            break;
        }
        let older = last_lines(&numbered(path, number), left)?;
        older.into_iter().rev().for_each(|entry| found.push_front(entry));
    }
    Ok(found.into())
}

/// Returns the last lines of a file; none for a missing file.
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

/// Opens the file for appending, and adds a line end to an incomplete last line.
fn open_at(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .mode(0o600)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(path)?;
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

/// Returns the path of the file with this number; 0 is the current file.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 0 { path.to_owned() } else { path.with_extension(format!("{number}.jsonl")) }
}
