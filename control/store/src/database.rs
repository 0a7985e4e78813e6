//! Database file of the revisions: opening, reading and atomic changes.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    TableDefinition, TableError, WriteTransaction, backends::FileBackend,
};

use crate::{Revision, StoreError};

const FILE: &str = "revisions.redb";
const NEW: &str = "revisions.new";
/// Revisions by number, as JSON.
const REVISIONS: TableDefinition<u64, &[u8]> = TableDefinition::new("revisions");
/// Texts of revisions by number.
const TEXTS: TableDefinition<u64, &str> = TableDefinition::new("texts");
/// Lengths of the texts in bytes. Files of older versions lack this table, or some entries.
const LENGTHS: TableDefinition<u64, u64> = TableDefinition::new("lengths");
/// File size in bytes up to which a file is never compacted. A larger file is compacted if it is more than
/// [`TIMES`] times as large as its texts. (A text takes up to twice its length in the file.)
const LONG: u64 = 1 << 20;
const TIMES: u64 = 4;
/// Lock that a thread holds while it has a database file open: redb allows one open handle per file, even
/// within a process.
static OWN: Mutex<()> = Mutex::new(());
/// Maximum time to wait while another process has the file open.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// Location of the database file: its directory.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    directory: PathBuf,
}

/// Changes of the database that are made atomically.
pub(crate) struct Changes {
    /// Revisions to write: changed ones without text, and new ones with their text.
    pub put: Vec<(Revision, Option<String>)>,
    /// Numbers of the revisions to delete.
    pub forget: Vec<u64>,
}

/// Open database file, with the lock of this process.
struct Open {
    // Fields are dropped in this order: the database must be closed before `_own` lets another thread open
    // it.
    database: Database,
    _own: MutexGuard<'static, ()>,
}

/// Error of the operating system on opening the file, with its remedy.
#[derive(Debug, thiserror::Error)]
#[error("can't be opened: {0}; to start a new history, move it away")]
struct CantOpen(#[source] io::Error);

impl Place {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    fn failed(&self, error: impl Into<redb::Error>) -> StoreError {
        let problem = match error.into() {
            redb::Error::Io(error) => error,
            other => io::Error::other(other),
        };
        StoreError::File { path: self.path(), problem }
    }

    /// Reads from the database with `work`; returns the default if there is no file.
    fn read<T: Default>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        self.guarded(|| {
            let Some(Open { database, _own }) = self.open()? else { return Ok(T::default()) };
            read(&database).map_err(|error| self.failed(error))
        })
    }

    /// Runs work on the file, and turns a panic into an error about the file: redb panics on some damages.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let damaged =
            |_| Err(self.failed(io::Error::other("it is damaged; to start a new history, move it away")));
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(damaged)
    }

    /// Returns all revisions, the oldest first.
    pub fn revisions(&self) -> Result<Vec<Revision>, StoreError> {
        let read = self.read(|database| -> Result<Vec<Vec<u8>>, redb::Error> {
            let transaction = database.begin_read()?;
            let Some(table) = existing(transaction.open_table(REVISIONS))? else { return Ok(Vec::new()) };
            table.iter()?.map(|entry| Ok(entry?.1.value().to_vec())).collect()
        })?;
        let parse = |json: &Vec<u8>| serde_json::from_slice(json).map_err(io::Error::from);
        read.iter().map(|json| parse(json).map_err(|error| self.failed(error))).collect()
    }

    /// Returns the text of a revision.
    pub fn text(&self, number: u64) -> Result<Option<String>, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(TEXTS)?;
            Ok(table.get(number)?.map(|text| text.value().to_owned()))
        })
    }

    /// Returns the lengths of the texts in bytes, by revision number.
    pub fn lengths(&self) -> Result<HashMap<u64, u64>, StoreError> {
        self.read(lengths)
    }

    /// Makes changes atomically. On return they are synced to disk.
    pub fn change(&self, changes: &Changes) -> Result<(), StoreError> {
        self.guarded(|| {
            if let Some(Open { mut database, _own }) = self.open()? {
                write(&database, changes).map_err(|error| self.failed(error))?;
                if !changes.forget.is_empty() {
                    self.shorten(&mut database);
                }
                return Ok(());
            }
            // Write a new file under a temporary name and rename it, so that its path never has an incomplete
            // file.
            let new = self.directory.join(NEW);
            let made = self.make(&new, changes);
            made.inspect_err(|_| drop(fs::remove_file(&new)))
        })
    }

    /// Compacts the file if it is too large. If that fails, the file is unchanged, and the next change tries
    /// again.
    fn shorten(&self, database: &mut Database) {
        let Ok(kept) = lengths(database) else { return };
        let needed = kept.values().sum::<u64>().saturating_mul(TIMES).max(LONG);
        if fs::metadata(self.path()).is_ok_and(|file| file.len() > needed) {
            let _ = database.compact();
        }
    }

    fn make(&self, new: &Path, changes: &Changes) -> Result<(), StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.map_err(|problem| StoreError::File { path: self.directory.clone(), problem })?;
        let mut options = OpenOptions::new();
        options.custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits());
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(new);
        let backend = FileBackend::new(file.map_err(|error| self.failed(error))?);
        let made = backend.and_then(|backend| Database::builder().create_with_backend(backend));
        let made = made.map_err(redb::Error::from);
        made.and_then(|database| write(&database, changes)).map_err(|error| self.failed(error))?;
        let placed = fs::rename(new, self.path()).and_then(|()| File::open(&self.directory)?.sync_all());
        placed.map_err(|error| self.failed(error))
    }

    /// Opens the file; `None` if it doesn't exist. Waits for other threads of this process, and at most
    /// [`PATIENCE`] for another process.
    fn open(&self) -> Result<Option<Open>, StoreError> {
        // Ignore a poisoned lock: a thread that panicked can't leave a partial change in the file.
        let own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path();
        let known = match fs::symlink_metadata(&path) {
            Ok(known) => known,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        if !known.is_file() || known.uid() != geteuid().as_raw() || known.mode() & 0o022 != 0 {
            return Err(self.failed(io::Error::other(
                "refused: the file must be a regular file of the router's user that no other user may write: \
                 correct its owner and mode, or move it away",
            )));
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Database::open(&path) {
                Ok(database) => return Ok(Some(Open { database, _own: own })),
                Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < deadline => {
                    std::thread::sleep(LOOK);
                }
                Err(DatabaseError::DatabaseAlreadyOpen) => {
                    return Err(self.failed(io::Error::other(
                        "another process has it open: stop that process, or choose another directory with \
                         --state DIR",
                    )));
                }
                Err(error) => {
                    return Err(match redb::Error::from(error) {
                        redb::Error::Io(error) if error.raw_os_error().is_some() => {
                            self.failed(io::Error::new(error.kind(), CantOpen(error)))
                        }
                        error => self.failed(io::Error::other(format!(
                            "can't be read: {error}; to start a new history, move it away"
                        ))),
                    });
                }
            }
        }
    }
}

fn write(database: &Database, changes: &Changes) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    fill(&transaction, changes)?;
    Ok(transaction.commit()?)
}

/// Returns an opened table; `None` if the file lacks it.
fn existing<T>(table: Result<T, TableError>) -> Result<Option<T>, TableError> {
    match table {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => table.map(Some),
    }
}

fn lengths(database: &Database) -> Result<HashMap<u64, u64>, redb::Error> {
    let transaction = database.begin_read()?;
    let Some(texts) = existing(transaction.open_table(TEXTS))? else { return Ok(HashMap::new()) };
    let mut known = HashMap::new();
    if let Some(lengths) = existing(transaction.open_table(LENGTHS))? {
        for entry in lengths.iter()? {
            let (number, length) = entry?;
            known.insert(number.value(), length.value());
        }
    }
    if known.len() as u64 != texts.len()? {
        for entry in texts.iter()? {
            let (number, text) = entry?;
            known.insert(number.value(), text.value().len() as u64);
        }
    }
    Ok(known)
}

fn fill(transaction: &WriteTransaction, changes: &Changes) -> Result<(), redb::Error> {
    let (mut revisions, mut texts) = (transaction.open_table(REVISIONS)?, transaction.open_table(TEXTS)?);
    let mut lengths = transaction.open_table(LENGTHS)?;
    for number in &changes.forget {
        revisions.remove(number)?;
        texts.remove(number)?;
        lengths.remove(number)?;
    }
    for (revision, text) in &changes.put {
        let json = serde_json::to_vec(revision).map_err(|error| redb::Error::Io(error.into()))?;
        revisions.insert(revision.number, &*json)?;
        if let Some(text) = text {
            texts.insert(revision.number, &**text)?;
            lengths.insert(revision.number, text.len() as u64)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::test_folder::Folder;

    #[test]
    fn database_open_in_the_same_process_is_waited_for() {
        let folder = Folder::new("database-own");
        let place = Place::new(&folder.0);
        place.change(&Changes { put: Vec::new(), forget: Vec::new() }).unwrap();
        let held = place.open().unwrap().unwrap();
        let (say, said) = channel();
        let other = place.clone();
        let reader =
            thread::spawn(move || drop(say.send(other.revisions().map_err(|error| error.to_string()))));
        let early = said.recv_timeout(PATIENCE + Duration::from_millis(500));
        assert!(early.is_err(), "it gave up: {early:?}");
        drop(held);
        assert_eq!(said.recv_timeout(Duration::from_secs(5)).unwrap(), Ok(Vec::new()));
        reader.join().unwrap();
    }

    #[test]
    fn database_open_in_another_process_is_reported() {
        let folder = Folder::new("database-other");
        let place = Place::new(&folder.0);
        place.change(&Changes { put: Vec::new(), forget: Vec::new() }).unwrap();
        // A second handle locks the file as another process would.
        let _held = Database::open(place.path()).unwrap();
        let refused = place.revisions().unwrap_err().to_string();
        assert!(refused.contains("another process has it open"), "{refused}");
    }

    #[test]
    fn a_damaged_file_is_an_error_and_no_panic() {
        let folder = Folder::new("database-damaged");
        let place = Place::new(&folder.0);
        place.change(&Changes { put: Vec::new(), forget: Vec::new() }).unwrap();
        let database = Database::open(place.path()).unwrap();
        let transaction = database.begin_write().unwrap();
        for number in 0..50 {
            transaction.open_table(TEXTS).unwrap().insert(number, "text").unwrap();
            transaction.open_table(REVISIONS).unwrap().insert(number, &b"{}"[..]).unwrap();
        }
        transaction.commit().unwrap();
        drop(database);
        let whole = fs::read(place.path()).unwrap();
        let mut damaged = Vec::new();
        for length in [0, 1, 100, 320, 512, 4096, 5000, whole.len() / 2, whole.len() - 1] {
            damaged.push(whole[..length.min(whole.len())].to_vec());
        }
        let step = (whole.len() / 400).max(1);
        for at in (0..640).chain((640..whole.len()).step_by(step)) {
            let mut bytes = whole.clone();
            bytes[at] ^= if at % 2 == 0 { 0xff } else { 1 };
            damaged.push(bytes);
        }
        let mut panics = 0;
        for bytes in damaged {
            fs::write(place.path(), bytes).unwrap();
            let read = || drop((place.revisions(), place.text(7), place.lengths()));
            panics += usize::from(std::panic::catch_unwind(read).is_err());
        }
        assert_eq!(panics, 0);
    }

    #[test]
    fn lengths_of_files_without_metadata_are_determined() {
        let folder = Folder::new("database-lengths");
        let place = Place::new(&folder.0);
        place.change(&Changes { put: Vec::new(), forget: Vec::new() }).unwrap();
        let database = Database::open(place.path()).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(TEXTS).unwrap().insert(7, "seven").unwrap();
        transaction.commit().unwrap();
        drop(database);
        assert_eq!(place.lengths().unwrap(), HashMap::from([(7, 5)]));
    }
}
