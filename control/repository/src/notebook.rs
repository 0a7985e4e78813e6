//! Notebooks: small files of persistent state.
//!
//! A file is never written in place. The new content is written to a file beside it, synced and renamed; then
//! the directory is synced. So after a crash or a power failure, the file has either the old or the new
//! content. A lock file serializes the changes of routers that share a directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the file format; files of other versions are not read.
const FORMAT: u32 = 1;
/// Maximum length of a file in bytes.
const MOST: usize = 1 << 20;
/// Lock file of the directory.
const LOCK: &str = "lock";

/// Error of reading or writing persistent state.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct NotebookError {
    /// Path of the file or directory.
    pub path: PathBuf,
    /// Error of the operating system.
    #[source]
    pub error: io::Error,
}

impl NotebookError {
    /// Returns a function that converts I/O errors about a file or directory.
    pub(crate) fn of(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| Self { path: path.clone(), error }
    }
}

/// JSON content of a notebook's file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content<T> {
    /// Files of earlier versions call this key `form`.
    #[serde(alias = "form")]
    format: u32,
    entries: Vec<T>,
}

/// List of entries, stored in a file of a directory. Without a directory, it is in memory only.
#[derive(Clone, Debug)]
pub struct Notebook<T> {
    directory: Option<PathBuf>,
    file: &'static str,
    entries: Vec<T>,
    damage: Option<String>,
}

impl<T: Serialize + DeserializeOwned + Clone> Notebook<T> {
    /// Reads a file. A missing file is empty; an unreadable file is [damaged](Self::damage).
    pub fn open(directory: Option<&Path>, file: &'static str) -> Self {
        let directory = directory.map(Path::to_owned);
        let (entries, damage) = match directory.as_ref().map(|directory| read(&directory.join(file))) {
            None => (Vec::new(), None),
            Some(Ok(entries)) => (entries, None),
            Some(Err(damage)) => (Vec::new(), Some(damage)),
        };
        Self { directory, file, entries, damage }
    }

    /// Returns the entries as of this router's last read or change of the file.
    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    /// Returns why the file could not be read at the start, with its path; `None` if it was readable.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Whether the entries survive the end of the router.
    pub fn is_kept(&self) -> bool {
        self.directory.is_some()
    }

    /// Returns why the file can't be read now, with its path; `None` for a readable file or without a
    /// directory.
    pub fn problem(&self) -> Option<String> {
        let path = self.directory.as_ref()?.join(self.file);
        read::<T>(&path).err()
    }

    /// Reads the current entries of the file, applies `change`, and writes them. A damaged file is first
    /// copied to a name with `.damaged` appended; `change` then starts from no entries. On return the change
    /// is synced to disk.
    ///
    /// # Errors
    /// The change could not be written; nothing has changed then.
    pub fn change(&mut self, change: impl FnOnce(&mut Vec<T>)) -> Result<(), NotebookError> {
        let Some(directory) = &self.directory else {
            change(&mut self.entries);
            return Ok(());
        };
        let path = directory.join(self.file);
        let _turn = take_turn(directory)?;
        let mut entries = match read(&path) {
            Ok(entries) => entries,
            Err(_) => {
                // Copy the file instead of renaming it. It may be unreadable only for a time, so it stays
                // until new content replaces it.
                let aside = directory.join(format!("{}.damaged", self.file));
                fs::copy(&path, &aside).map_err(NotebookError::of(&path))?;
                Vec::new()
            }
        };
        change(&mut entries);
        let content = Content { format: FORMAT, entries };
        let failed = NotebookError::of(&path);
        let text = serde_json::to_vec(&content).map_err(|error| failed(error.into()))?;
        if text.len() > MOST {
            return Err(failed(io::Error::other(format!("the new content is longer than {MOST} bytes"))));
        }
        write(directory, &path, &text).map_err(failed)?;
        (self.entries, self.damage) = (content.entries, None);
        Ok(())
    }
}

/// Returns options for a file with access for its owner only, not following a symbolic link.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits());
    options
}

/// Creates a missing directory with access for its owner only.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Reads a file, but at most `most` + 1 bytes: the additional byte tells the caller that the file is too
/// long.
pub(crate) fn read_at_most(file: File, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Locks a directory until the lock is dropped; creates a missing directory.
fn take_turn(directory: &Path) -> Result<Flock<File>, NotebookError> {
    make_private(directory).map_err(NotebookError::of(directory))?;
    let path = directory.join(LOCK);
    let file = private().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(NotebookError::of(&path))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| NotebookError::of(&path)(error.into()))
}

/// Reads the entries of a file; the error is a sentence with its path.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, String> {
    let Some(text) = read_own(path)? else { return Ok(Vec::new()) };
    let wrong = |problem: String| format!("{} can't be read: {problem}", path.display());
    let content: Content<T> = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    match content.format {
        FORMAT => Ok(content.entries),
        other => {
            Err(wrong(format!("its format version is {other}, and this router reads only version {FORMAT}")))
        }
    }
}

/// Reads a file that only this user may write; `None` for a missing file. The error is a sentence with its
/// path.
pub(crate) fn read_own(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let wrong = |problem: String| format!("{} can't be read: {problem}", path.display());
    let file = match private().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let known = file.metadata().map_err(|error| wrong(error.to_string()))?;
    if known.uid() != geteuid().as_raw() || known.mode() & 0o022 != 0 {
        return Err(wrong("it must belong to the router's user, and no other user may write it".to_owned()));
    }
    let text = read_at_most(file, MOST).map_err(|error| wrong(error.to_string()))?;
    if text.len() > MOST {
        return Err(wrong(format!("it is longer than {MOST} bytes")));
    }
    Ok(Some(text))
}

/// Replaces a file by one with this text, and syncs both file and directory.
fn write(directory: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = private().write(true).create(true).truncate(true).open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::Folder;

    fn open(folder: &Folder) -> Notebook<u32> {
        Notebook::open(Some(&folder.0), "list.json")
    }

    #[test]
    fn written_state_is_there_at_the_next_start() {
        let folder = Folder::new("notebook");
        let mut book = open(&folder);
        assert!(book.entries().is_empty() && book.damage().is_none() && book.is_kept());
        book.change(|list| list.push(3)).unwrap();
        assert_eq!(open(&folder).entries(), [3]);
        // Another router has written an entry meanwhile: the entries of both routers stay.
        open(&folder).change(|list| list.push(4)).unwrap();
        book.change(|list| list.push(5)).unwrap();
        assert_eq!(book.entries(), [3, 4, 5]);
        assert_eq!(open(&folder).entries(), [3, 4, 5]);
        let mut in_memory = Notebook::<u32>::open(None, "list.json");
        in_memory.change(|list| list.push(1)).unwrap();
        assert_eq!((in_memory.entries(), in_memory.is_kept()), (&[1][..], false));
    }

    #[test]
    fn file_of_an_earlier_version_is_read() {
        let folder = Folder::new("notebook-earlier");
        fs::write(folder.0.join("list.json"), r#"{"form":1,"entries":[3]}"#).unwrap();
        assert_eq!(open(&folder).entries(), [3]);
    }

    #[test]
    fn damaged_file_is_reported_and_set_aside_by_the_next_change() {
        let folder = Folder::new("notebook-damage");
        let path = folder.0.join("list.json");
        for text in ["", "{", "[]", r#"{"format":1,"entries":["x"]}"#, r#"{"format":2,"entries":[]}"#] {
            fs::write(&path, text).unwrap();
            let mut book = open(&folder);
            let damage = book.damage().unwrap();
            assert!(damage.contains("list.json can't be read"), "{damage}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "looking changes nothing");
            book.change(|list| list.push(7)).unwrap();
            assert_eq!((book.entries(), book.damage()), (&[7][..], None));
            assert_eq!(fs::read_to_string(folder.0.join("list.json.damaged")).unwrap(), text);
        }
        fs::write(&path, vec![b' '; MOST + 1]).unwrap();
        assert!(open(&folder).damage().unwrap().contains("longer than"));
    }

    #[test]
    fn failed_write_changes_nothing() {
        let folder = Folder::new("notebook-full");
        fs::write(folder.0.join("file"), "").unwrap();
        let mut book = Notebook::<u32>::open(Some(&folder.0.join("file/below")), "list.json");
        let error = book.change(|list| list.push(1)).unwrap_err().to_string();
        assert!(error.contains("file/below"), "{error}");
        assert!(book.entries().is_empty());
        let mut book = open(&folder);
        book.change(|list| list.push(1)).unwrap();
        let error = book.change(|list| list.resize(MOST, 2)).unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
        assert_eq!((book.entries(), open(&folder).entries()), (&[1][..], &[1][..]));
    }
}
