//! Crash captures: for each panic of a worker, the frames of its last batch and a report, in a directory of
//! bounded size.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::notebook::{NotebookError, make_private, private, read_at_most};

/// Name of the directory below the state directory.
const DIRECTORY: &str = "crash-captures";
/// File with the names of the captures that were already reported at a start, one per line.
const REPORTED: &str = "reported";
/// Maximum number of captures. The oldest is removed first.
pub const MOST_CAPTURES: usize = 8;
/// Maximum size of a capture's file of frames, in bytes.
pub const MOST_FRAME_BYTES: usize = 4 << 20;
/// Maximum size of a capture's report, in bytes.
pub const MOST_REPORT_BYTES: usize = 4 << 20;
/// Extension of the file of frames, pcapng.
const FRAMES: &str = "pcapng";
/// Extension of the report, JSON.
const REPORT: &str = "json";

/// Crash captures of a state directory.
#[derive(Clone, Debug)]
pub struct CrashCaptures(PathBuf);

impl CrashCaptures {
    /// Returns the captures below a state directory, without reading anything.
    pub fn of(state: &Path) -> Self {
        Self(state.join(DIRECTORY))
    }

    /// Writes a capture and returns the path of its frames. Removes the oldest captures beyond
    /// [`MOST_CAPTURES`], and frames without a report.
    ///
    /// # Errors
    /// The system refuses, or a part exceeds its limit.
    pub fn add(&self, name: &str, frames: &[u8], report: &[u8]) -> Result<PathBuf, NotebookError> {
        if frames.len() > MOST_FRAME_BYTES || report.len() > MOST_REPORT_BYTES {
            let error = io::Error::other("frames or report of the crash capture exceed 4 MiB");
            return Err(NotebookError::of(&self.0)(error));
        }
        make_private(&self.0).map_err(NotebookError::of(&self.0))?;
        let path = self.path(name, FRAMES);
        write_new(&path, frames)?;
        // Write the report last: a capture counts as complete once its report exists.
        if let Err(error) = write_new(&self.path(name, REPORT), report) {
            // Remove the frames: without a report they only take space.
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(self.path(name, REPORT));
            return Err(error);
        }
        self.remove_oldest(name);
        Ok(path)
    }

    /// Returns the names of all captures, the oldest first.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.names_of(REPORT);
        names.sort_unstable();
        names
    }

    /// Returns the names of the files with an extension.
    fn names_of(&self, extension: &str) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let name = |entry: fs::DirEntry| {
            let path = entry.path();
            let has_it = path.extension().is_some_and(|found| found == extension);
            has_it.then(|| path.file_stem()?.to_str().map(str::to_owned)).flatten()
        };
        entries.filter_map(name).collect()
    }

    /// Returns the captures that no router has reported yet, and marks them as reported.
    pub fn take_unreported(&self) -> Vec<String> {
        let mark = self.0.join(REPORTED);
        let reported = fs::read_to_string(&mark).unwrap_or_default();
        let names = self.names();
        let is_new = |name: &&String| !reported.lines().any(|known| known == name.as_str());
        let new: Vec<String> = names.iter().filter(is_new).cloned().collect();
        if !new.is_empty() {
            let opened = private().write(true).create(true).truncate(true).open(&mark);
            // If the captures can't be marked, the next start reports them again.
            let _ = opened.and_then(|mut file| file.write_all(names.join("\n").as_bytes()));
        }
        new
    }

    /// Returns the path of a capture's frames.
    pub fn frames(&self, name: &str) -> PathBuf {
        self.path(name, FRAMES)
    }

    /// Reads the report of a capture.
    pub fn report(&self, name: &str) -> Result<Vec<u8>, NotebookError> {
        read_report(&self.path(name, REPORT))
    }

    fn path(&self, name: &str, extension: &str) -> PathBuf {
        self.0.join(format!("{name}.{extension}"))
    }

    /// Removes the oldest captures by their names, but never `added`: if the clock was set back, the name of
    /// the newest capture may sort first.
    fn remove_oldest(&self, added: &str) {
        let names = self.names();
        let without_report = self.names_of(FRAMES).into_iter().filter(|name| !names.contains(name));
        let oldest = names.iter().filter(|name| *name != added).cloned();
        let oldest = oldest.take(names.len().saturating_sub(MOST_CAPTURES));
        for name in without_report.chain(oldest) {
            for extension in [REPORT, FRAMES] {
                // If a removal fails, the next crash tries it again.
                let _ = fs::remove_file(self.path(&name, extension));
            }
        }
    }
}

/// Reads the report of the crash capture with these frames; both files may be in any directory.
pub fn report_of(frames: &Path) -> Result<Vec<u8>, NotebookError> {
    read_report(&frames.with_extension(REPORT))
}

fn read_report(path: &Path) -> Result<Vec<u8>, NotebookError> {
    let read = File::open(path).and_then(|file| read_at_most(file, MOST_REPORT_BYTES));
    let checked = read.and_then(|bytes| match bytes.len() > MOST_REPORT_BYTES {
        true => Err(io::Error::other("the report exceeds 4 MiB")),
        false => Ok(bytes),
    });
    checked.map_err(NotebookError::of(path))
}

/// Writes a file that must not exist yet.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), NotebookError> {
    let opened = private().write(true).create_new(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(bytes));
    written.map_err(NotebookError::of(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::Folder;

    #[test]
    fn eight_captures_are_kept_and_each_is_reported_once() {
        let folder = Folder::new("crash-captures");
        let captures = CrashCaptures::of(&folder.0);
        assert!(captures.names().is_empty() && captures.take_unreported().is_empty());
        for number in 0..10 {
            let name = format!("20261123T2200{number:02}Z-1");
            let path = captures.add(&name, b"frames", format!("{number}").as_bytes()).unwrap();
            assert_eq!(report_of(&path).unwrap(), captures.report(&name).unwrap());
        }
        assert_eq!(captures.names().len(), MOST_CAPTURES);
        assert_eq!(captures.names()[0], "20261123T220002Z-1");
        assert!(!captures.frames("20261123T220001Z-1").exists());
        assert_eq!(captures.take_unreported().len(), MOST_CAPTURES);
        assert!(captures.take_unreported().is_empty());
        captures.add("20261123T230000Z-1", b"", b"{}").unwrap();
        assert_eq!(captures.take_unreported(), ["20261123T230000Z-1"]);
    }

    #[test]
    fn a_capture_after_a_clock_step_back_is_kept_and_reported() {
        let folder = Folder::new("crash-captures-clock");
        let captures = CrashCaptures::of(&folder.0);
        for number in 0..MOST_CAPTURES {
            captures.add(&format!("20261123T2200{number:02}Z-1"), b"frames", b"{}").unwrap();
        }
        captures.take_unreported();
        captures.add("19700101T000003Z-1", b"frames", b"{}").unwrap();
        assert_eq!(captures.take_unreported(), ["19700101T000003Z-1"]);
        assert!(captures.take_unreported().is_empty());
        assert_eq!(captures.names().len(), MOST_CAPTURES);
        assert!(!captures.frames("20261123T220000Z-1").exists());
    }

    #[test]
    fn frames_without_a_report_are_removed() {
        let folder = Folder::new("crash-captures-half");
        let captures = CrashCaptures::of(&folder.0);
        captures.add("20261123T220000Z-1", b"frames", b"{}").unwrap();
        // As if the process had died before it wrote the report.
        fs::remove_file(captures.path("20261123T220000Z-1", REPORT)).unwrap();
        fs::create_dir(captures.path("20261123T220001Z-1", REPORT)).unwrap();
        assert!(captures.add("20261123T220001Z-1", b"frames", b"{}").is_err());
        assert!(!captures.frames("20261123T220001Z-1").exists());
        captures.add("20261123T220002Z-1", b"frames", b"{}").unwrap();
        assert!(!captures.frames("20261123T220000Z-1").exists());
    }

    #[test]
    fn capture_beyond_its_limit_is_refused() {
        let folder = Folder::new("crash-captures-limit");
        let captures = CrashCaptures::of(&folder.0);
        assert!(captures.add("a", &vec![0; MOST_FRAME_BYTES + 1], b"{}").is_err());
        assert!(captures.names().is_empty());
    }
}
