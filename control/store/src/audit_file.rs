//! The files of the audit log. When one is long enough it becomes `audit.1.jsonl`, that one `audit.2.jsonl`, and so on; the oldest goes.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::audit_entry::AuditEntry;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditLimits {
    /// Bytes of a file that goes on being written.
    pub bytes: u64,
    /// Files, that one among them.
    pub files: u32,
}

impl Default for AuditLimits {
    fn default() -> Self {
        Self { bytes: 8 << 20, files: 5 }
    }
}

/// The file that goes on being written.
#[derive(Debug)]
pub(crate) struct AuditFile {
    path: PathBuf,
    limits: AuditLimits,
    open: Option<File>,
}

impl AuditFile {
    /// The one in a directory, which need not be there yet.
    pub fn new(directory: &Path, limits: AuditLimits) -> Self {
        Self { path: directory.join("audit.jsonl"), limits, open: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line, and hands it to the system.
    ///
    /// # Errors
    /// When it could not be written. The next line is tried from the beginning.
    pub fn write(&mut self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        // Whoever moved the file away wants another one.
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

/// Whether an open file is the one at a path.
fn is_at(open: &File, path: &Path) -> bool {
    let (Ok(one), Ok(other)) = (open.metadata(), fs::metadata(path)) else { return false };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The last lines of a log, so many, the oldest first. Lines that can't be read are left out.
///
/// # Errors
/// A file that can't be read.
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

/// The file, open at its end; a line that was cut short there is ended.
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

/// The file with older lines of that number; 0 is the newest.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 0 { path.to_owned() } else { path.with_extension(format!("{number}.jsonl")) }
}
