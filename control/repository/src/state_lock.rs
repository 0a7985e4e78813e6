//! Lock of a state directory, so that only one router uses it at a time.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::notebook::{make_private, private};

/// Lock file of the state directory.
const FILE: &str = "router.lock";

/// Lock of a state directory, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct StateLock {
    _held: Flock<File>,
}

/// Error that another router uses the state directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the state directory {} is in use by the router at {holder}: choose another with --state DIR",
    directory.display()
)]
pub struct StateTaken {
    /// State directory.
    pub directory: PathBuf,
    /// Socket of the other router.
    pub holder: String,
}

impl StateLock {
    /// Locks a directory for the router at `socket`. Returns `None` if the lock file can't be created: then
    /// the directory can't store state either, and the first write of state reports the error.
    ///
    /// # Errors
    /// Another router has locked the directory.
    pub fn take(directory: &Path, socket: &Path) -> Result<Option<Self>, StateTaken> {
        let Ok(file) = open(directory) else { return Ok(None) };
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut held) => {
                // The socket's path in the file is only information for people.
                let _ = write(&mut held, &socket.display().to_string());
                Ok(Some(Self { _held: held }))
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                Err(StateTaken { directory: directory.to_owned(), holder: holder.trim_end().to_owned() })
            }
            Err(_) => Ok(None),
        }
    }
}

fn open(directory: &Path) -> io::Result<File> {
    make_private(directory)?;
    private().read(true).write(true).create(true).truncate(false).open(directory.join(FILE))
}

fn write(file: &mut File, name: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::Folder;

    #[test]
    fn a_directory_has_one_router_at_a_time() {
        let folder = Folder::new("state-lock");
        let directory = folder.0.join("state");
        let (one, other) = (Path::new("/run/one.sock"), Path::new("/run/other.sock"));
        let held = StateLock::take(&directory, one).unwrap();
        assert!(held.is_some());
        let taken = StateTaken { directory: directory.clone(), holder: "/run/one.sock".into() };
        assert_eq!(StateLock::take(&directory, other).unwrap_err(), taken);
        drop(held);
        assert!(StateLock::take(&directory, other).unwrap().is_some(), "who ended has it no longer");
    }

    #[test]
    fn unusable_directory_has_no_owner() {
        let folder = Folder::new("state-lock-file");
        let file = folder.0.join("file");
        std::fs::write(&file, "").unwrap();
        assert!(StateLock::take(&file.join("below"), Path::new("/run/one.sock")).unwrap().is_none());
    }
}
