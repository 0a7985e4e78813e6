//! The file: opened, read, changed as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError,
    WriteTransaction, backends::FileBackend,
};

use crate::{Revision, StoreError};

const FILE: &str = "revisions.redb";
const NEW: &str = "revisions.new";
/// Revisions by number, as JSON.
const REVISIONS: TableDefinition<u64, &[u8]> = TableDefinition::new("revisions");
/// Their texts.
const TEXTS: TableDefinition<u64, &str> = TableDefinition::new("texts");
/// How long another router may have the file.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// The file of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    directory: PathBuf,
}

/// Changes of the file that are made as one.
pub(crate) struct Changes {
    /// What changes, or is new.
    pub put: Vec<(Revision, Option<String>)>,
    /// What is forgotten.
    pub forget: Vec<u64>,
}

impl Place {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    fn failed(&self, problem: impl ToString) -> StoreError {
        StoreError::File { path: self.path(), problem: problem.to_string() }
    }

    /// All revisions, the oldest first.
    pub fn revisions(&self) -> Result<Vec<Revision>, StoreError> {
        let Some(database) = self.open()? else { return Ok(Vec::new()) };
        let read = || -> Result<Vec<Vec<u8>>, redb::Error> {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(REVISIONS) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            table.iter()?.map(|entry| Ok(entry?.1.value().to_vec())).collect()
        };
        let read = read().map_err(|error| self.failed(error))?;
        read.iter().map(|json| serde_json::from_slice(json).map_err(|error| self.failed(error))).collect()
    }

    /// The text of a revision.
    pub fn text(&self, number: u64) -> Result<Option<String>, StoreError> {
        let Some(database) = self.open()? else { return Ok(None) };
        let read = || -> Result<Option<String>, redb::Error> {
            let table = database.begin_read()?.open_table(TEXTS)?;
            Ok(table.get(number)?.map(|text| text.value().to_owned()))
        };
        read().map_err(|error| self.failed(error))
    }

    /// Makes changes. When this returns, they are on the disk.
    pub fn change(&self, changes: &Changes) -> Result<(), StoreError> {
        if let Some(database) = self.open()? {
            return write(&database, changes).map_err(|error| self.failed(error));
        }
        // A file that isn't there is whole from its first moment on.
        let new = self.directory.join(NEW);
        let made = self.make(&new, changes);
        made.inspect_err(|_| drop(fs::remove_file(&new)))
    }

    fn make(&self, new: &Path, changes: &Changes) -> Result<(), StoreError> {
        let mut directory = DirBuilder::new();
        directory.recursive(true).mode(0o700);
        directory
            .create(&self.directory)
            .map_err(|error| StoreError::File { path: self.directory.clone(), problem: error.to_string() })?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(new);
        let backend = FileBackend::new(file.map_err(|error| self.failed(error))?);
        let made = backend.and_then(|backend| Database::builder().create_with_backend(backend));
        let made = made.map_err(redb::Error::from);
        made.and_then(|database| write(&database, changes)).map_err(|error| self.failed(error))?;
        let placed = fs::rename(new, self.path()).and_then(|()| File::open(&self.directory)?.sync_all());
        placed.map_err(|error| self.failed(error))
    }

    /// The file, if it is there.
    fn open(&self) -> Result<Option<Database>, StoreError> {
        let path = self.path();
        let known = match fs::symlink_metadata(&path) {
            Ok(known) => known,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        if !known.is_file() || known.uid() != geteuid().as_raw() || known.mode() & 0o022 != 0 {
            return Err(self.failed("it isn't read: others may write it"));
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Database::open(&path) {
                Ok(database) => return Ok(Some(database)),
                Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < deadline => {
                    std::thread::sleep(LOOK);
                }
                Err(DatabaseError::DatabaseAlreadyOpen) => {
                    return Err(self.failed("another process has it open"));
                }
                Err(error) => {
                    return Err(self.failed(format!(
                        "it can't be read: {error}; move it away, and the history begins anew"
                    )));
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

fn fill(transaction: &WriteTransaction, changes: &Changes) -> Result<(), redb::Error> {
    let (mut revisions, mut texts) = (transaction.open_table(REVISIONS)?, transaction.open_table(TEXTS)?);
    for number in &changes.forget {
        revisions.remove(number)?;
        texts.remove(number)?;
    }
    for (revision, text) in &changes.put {
        let json = serde_json::to_vec(revision).map_err(|error| redb::Error::Io(error.into()))?;
        revisions.insert(revision.number, &*json)?;
        if let Some(text) = text {
            texts.insert(revision.number, &**text)?;
        }
    }
    Ok(())
}
