//! Directories of groups: creation under a lock, and removal with all processes moved out.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::controller::Version;
use crate::error::GroupError;
use crate::files::{read, read_if_present, write};
use crate::name::is_routers;

/// Maximum time that the removal of a group waits for its processes to leave.
pub const REMOVAL: Duration = Duration::from_secs(2);
/// Pause between two attempts to remove a group, or to lock it.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);
/// Number of attempts to lock a group that another router is removing.
const ATTEMPTS: usize = 20;

/// Directory locked by a living router. The lock ends with the process, however it ends; a child that it has
/// forked keeps the lock until it runs a program.
#[derive(Debug)]
pub(crate) struct Claim {
    _lock: File,
}

impl Claim {
    /// Creates a directory, or takes over the directory of a dead router.
    ///
    /// # Errors
    /// The directory can't be created, or a living router has locked it.
    pub fn take(path: &Path) -> Result<Self, GroupError> {
        for _ in 0..ATTEMPTS {
            create(path)?;
            if let Some(lock) = lock(path).map_err(GroupError::file("lock", path))? {
                return Ok(Self { _lock: lock });
            }
            sleep(PAUSE);
        }
        Err(GroupError::InUse { path: path.to_owned() })
    }
}

/// Creates a directory unless it exists. Other users can't open it, because whoever opens it can lock it,
/// and a lock stands for a living router.
///
/// # Errors
/// The directory can't be created.
pub(crate) fn create(path: &Path) -> Result<(), GroupError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        result => result.map_err(GroupError::file("create", path)),
    }
}

/// Locks a directory; `None` if another process holds the lock or has just removed the directory.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let file = match File::open(path) {
        Err(error) if absent(&error) => return Ok(None),
        result => result?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(None),
        Err(fs::TryLockError::Error(error)) => return Err(error),
    }
    // The locked directory may have been removed, and the path be a newer one.
    match fs::metadata(path) {
        Err(error) if absent(&error) => Ok(None),
        result => Ok((result?.ino() == file.metadata()?.ino()).then_some(file)),
    }
}

/// Removes the groups that dead routers have left in the group `own`, and moves their processes to `home`.
/// Failures are left to the next router: a leftover group limits only its own processes.
pub(crate) fn remove_dead(version: Version, own: &Path, home: &Path) {
    let named = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(is_routers);
    for path in children(own).into_iter().filter(named) {
        if let Ok(Some(_lock)) = lock(&path) {
            let _ = clear(version, &path, home, Instant::now() + REMOVAL);
        }
    }
}

/// Returns the child groups of a group; none if it doesn't exist.
pub(crate) fn children(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Removes a group with its child groups, and moves their processes to the group `home`. Does nothing if the
/// group doesn't exist.
///
/// # Errors
/// A group still contains processes at the deadline.
pub(crate) fn clear(version: Version, path: &Path, home: &Path, deadline: Instant) -> Result<(), GroupError> {
    for child in children(path) {
        clear(version, &child, home, deadline)?;
    }
    loop {
        let (members, refused) = evacuate(version, path, home);
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.raw_os_error() != Some(Errno::EBUSY as i32) => {
                return Err(GroupError::file("remove", path)(error));
            }
            Err(_) if Instant::now() >= deadline => {
                return Err(GroupError::NotEmpty { path: path.to_owned(), members, source: refused });
            }
            Err(_) => sleep(PAUSE),
        }
    }
}

/// Moves the members of a group away. Returns the members that it found, and the last refusal.
pub(crate) fn evacuate(version: Version, path: &Path, home: &Path) -> (Vec<i32>, Option<io::Error>) {
    let (list, exit) = exits(version, path, home);
    let members = members(&path.join(list));
    let moved = members.iter().map(|member| write(&exit, &member.to_string()));
    let mut refused =
        moved.filter_map(Result::err).filter(|error| error.raw_os_error() != Some(Errno::ESRCH as i32));
    let refused = refused.next_back();
    (members, refused)
}

/// Returns the name of the file that lists a group's members, and the file that moves them home. Threads of
/// version 2 stay in the group of their process, which is the parent.
pub(crate) fn exits(version: Version, path: &Path, home: &Path) -> (&'static str, PathBuf) {
    let is_threaded = || read_if_present(&path.join("cgroup.type")).is_some_and(|kind| kind == "threaded");
    match version {
        Version::V1 => ("tasks", home.join("tasks")),
        Version::V2 if is_threaded() => {
            ("cgroup.threads", path.parent().unwrap_or(home).join("cgroup.threads"))
        }
        Version::V2 => ("cgroup.procs", home.join("cgroup.procs")),
    }
}

/// Returns the ids in a file such as `tasks`; none if the file can't be read. Processes outside the own PID
/// namespace have the id 0, which would be the caller's own if written, so they are left out.
pub(crate) fn members(file: &Path) -> Vec<i32> {
    let text = read(file).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).filter(|id| *id > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Scratch;

    #[test]
    fn claimed_directory_is_refused_until_the_claim_ends() {
        let scratch = Scratch::new("claim-twice", &[]);
        let path = scratch.join("millrace-a");
        let claim = Claim::take(&path).unwrap();
        assert!(matches!(Claim::take(&path), Err(GroupError::InUse { .. })));
        drop(claim);
        Claim::take(&path).unwrap();
    }

    #[test]
    fn claimed_directory_is_closed_to_other_users() {
        let scratch = Scratch::new("claim-closed", &[]);
        let path = scratch.join("millrace-a");
        let _claim = Claim::take(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn lock_of_a_removed_directory_is_no_claim() {
        let scratch = Scratch::new("claim-removed", &[]);
        let path = scratch.join("millrace-a");
        fs::create_dir(&path).unwrap();
        let file = lock(&path).unwrap().unwrap();
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(lock(&path).unwrap().is_some(), "the new directory has no lock");
        drop(file);
        fs::remove_dir(&path).unwrap();
        assert!(lock(&path).unwrap().is_none());
    }

    #[test]
    fn only_unlocked_groups_of_routers_are_removed() {
        let scratch = Scratch::new("claim-dead", &[]);
        let names = ["millrace-1", "millrace-2", "other", "millrace-web", "millrace-3.service"];
        let [living, dead, others @ ..] = names.map(|name| scratch.join(name));
        let _claim = Claim::take(&living).unwrap();
        fs::create_dir_all(dead.join("router/worker")).unwrap();
        others.iter().for_each(|other: &PathBuf| fs::create_dir(other).unwrap());
        remove_dead(Version::V1, scratch.path(), scratch.path());
        assert!(living.exists() && !dead.exists());
        assert!(others.iter().all(|other| other.exists()), "groups of others stay");
    }

    #[test]
    fn foreign_and_malformed_ids_are_left_out() {
        let scratch = Scratch::new("claim-ids", &[]);
        let file = scratch.join("tasks");
        fs::write(&file, "0\n12\nx\n-3\n7\n").unwrap();
        assert_eq!(members(&file), [12, 7]);
        assert_eq!(members(&scratch.join("absent")), [0; 0]);
    }
}
