//! Control groups of plugin processes.
//!
//! The keeper may not open the kernel's files, so control opens them. The kernel checks the rights of the
//! thread that opened a file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nix::sys::eventfd::EventFd;

/// Control group that plugin processes can join.
#[derive(Debug)]
pub struct ProcessGroup {
    /// Open files by which a process joins the group, one for each hierarchy.
    join: Vec<File>,
    /// Open files by which a process leaves the group.
    leave: Vec<File>,
    obstacle: Mutex<Option<String>>,
    patience: AtomicU32,
}

impl ProcessGroup {
    /// Opens the files of a group. A process joins the group when its id is written to the files `join`, and
    /// leaves it when its id is written to the files `leave`.
    ///
    /// # Errors
    /// The path of a file that can't be opened for writing, and the error.
    pub fn open(join: &[PathBuf], leave: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        let open = |path: &PathBuf| {
            let file = OpenOptions::new().append(true).open(path);
            file.map_err(|error| (path.clone(), error))
        };
        let all = |paths: &[PathBuf]| paths.iter().map(open).collect::<Result<_, _>>();
        Ok(Self { join: all(join)?, leave: all(leave)?, obstacle: Mutex::default(), patience: 1.into() })
    }

    /// Sets how many times longer than usual a call may take in this group, because the group's processor time
    /// is limited: 1 or more. [`ProcessGroups::set`] makes the keeper take notice.
    pub fn set_patience(&self, patience: u32) {
        self.patience.store(patience, Ordering::Relaxed);
    }

    /// Returns the reason why the latest process could not join the group; `None` if it has joined.
    pub fn obstacle(&self) -> Option<String> {
        lock(&self.obstacle).clone()
    }

    /// Moves a process into the group, from any other group. If the kernel refuses, moves it out again, keeps
    /// the reason as the obstacle, and logs it.
    fn take(&self, process: u32, plugin: &str) {
        let joined = write(&self.join, process);
        if let Err(error) = &joined {
            let _ = write(&self.leave, process);
            tracing::warn!(
                plugin,
                process,
                "a plugin process can't join the control group of its principal: {error}"
            );
        }
        *lock(&self.obstacle) = joined.err().map(|error| {
            format!("process {process} of plugin {plugin:?} can't join its control group: {error}")
        });
    }
}

/// Writes the id of a process to all files. An ended process and a removed group need nothing.
fn write(files: &[File], process: u32) -> io::Result<()> {
    let is_gone = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV));
    // The keeper may write, but not at an offset. The kernel ignores the offset of these files.
    files.iter().try_for_each(|mut file| match file.write_all(process.to_string().as_bytes()) {
        Err(error) if !is_gone(&error) => Err(error),
        _ => Ok(()),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Groups by the names of the plugins whose processes belong there.
type Groups = BTreeMap<String, Arc<ProcessGroup>>;

/// Control groups of the plugin processes of a router. Clones share the groups. Processes of other plugins
/// stay in the group of the router.
#[derive(Clone, Debug, Default)]
pub struct ProcessGroups(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    groups: Mutex<Groups>,
    /// Wakes the keeper. A router without a plugin process has none.
    wake: OnceLock<Arc<EventFd>>,
}

impl ProcessGroups {
    /// Replaces the groups. The keeper then moves the running processes.
    pub fn set(&self, groups: Groups) {
        *lock(&self.0.groups) = groups;
        // An error means that the counter is at its maximum: the keeper is about to wake up anyway.
        let _ = self.0.wake.get().map(|wake| wake.write(1));
    }

    pub(crate) fn wake_by(&self, wake: &Arc<EventFd>) {
        // A router has one keeper.
        let _ = self.0.wake.set(wake.clone());
    }

    /// Moves a process of a plugin from the group `joined` to its present group, if that is another one.
    /// Returns how many times longer than usual its calls may take.
    pub(crate) fn follow(&self, plugin: &str, process: u32, joined: &mut Option<Arc<ProcessGroup>>) -> u32 {
        let wanted = lock(&self.0.groups).get(plugin).cloned();
        match (&*joined, &wanted) {
            (Some(joined), Some(wanted)) if Arc::ptr_eq(joined, wanted) => {}
            (_, Some(wanted)) => wanted.take(process, plugin),
            (Some(joined), None) => _ = write(&joined.leave, process),
            (None, None) => {}
        }
        *joined = wanted;
        joined.as_ref().map_or(1, |joined| joined.patience.load(Ordering::Relaxed))
    }
}
