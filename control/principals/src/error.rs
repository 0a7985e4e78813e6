//! Errors of control groups.

use std::io;
use std::path::{Path, PathBuf};

use crate::controller::{Controller, Obstacle};

/// Control group that can't be created, set, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// Invalid name of a group.
    #[error(
        "group name {name:?} {why}; give 1 to {} bytes without slashes and control characters",
        crate::name::LONGEST
    )]
    Name {
        /// Given name.
        name: String,
        /// Fault of the name.
        why: &'static str,
    },
    /// A file or directory can't be read, written, created or removed.
    #[error("can't {action} {}: {source}{}", path.display(), hint(.source))]
    File {
        /// Refused operation: `read`, `write`, …
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// System's error.
        source: io::Error,
    },
    /// A resource can't be limited on this machine.
    #[error("can't limit the {}: {obstacle}; {}", controller.resource(), obstacle.remedy())]
    Unavailable {
        /// Controller of the resource.
        controller: Controller,
        /// Reason.
        obstacle: Obstacle,
    },
    /// No controller can be used.
    #[error("no control group can be created here: {obstacle}; {}", obstacle.remedy())]
    NoController {
        /// Reason for the first controller.
        obstacle: Obstacle,
    },
    /// The kernel refused a limit. All earlier values are restored, except those in `unrestored`.
    #[error(
        "can't write {value:?} to {}: {source}{}{}",
        path.display(), hint(.source), restored(.unrestored)
    )]
    Limit {
        /// File that refused the value.
        path: PathBuf,
        /// Refused value.
        value: String,
        /// System's error.
        source: io::Error,
        /// Files whose earlier value could not be restored.
        unrestored: Vec<PathBuf>,
    },
    /// A running router has a group of the same name.
    #[error(
        "{} belongs to a running router: give this router another name, or stop the other one",
        path.display()
    )]
    InUse {
        /// Directory of the group.
        path: PathBuf,
    },
    /// Version 2: the group of the router contains processes of others.
    #[error(
        "can't distribute resources of {}: it contains processes that are not the router's ({}); start the \
         router in a group of its own, for example with `systemd-run --scope -p Delegate=yes`",
        path.display(), listed(.processes)
    )]
    Occupied {
        /// Directory of the group in which the router was started.
        path: PathBuf,
        /// Process ids of the other processes.
        processes: Vec<i32>,
    },
    /// A group still contains processes or threads after the time limit.
    #[error(
        "can't remove {}: it still contains {} after {} s{}; end them, then remove it with rmdir",
        path.display(), listed(.members), crate::directory::REMOVAL.as_secs(), reason(.source)
    )]
    NotEmpty {
        /// Directory of the group.
        path: PathBuf,
        /// Ids of the remaining processes or threads.
        members: Vec<i32>,
        /// Error of the last attempt to move one of them.
        source: Option<io::Error>,
    },
    /// The router already has a group of this name.
    #[error("{} already exists: remove this group first, or use another name", path.display())]
    Exists {
        /// Directory of the group.
        path: PathBuf,
    },
    /// The group was removed.
    #[error("group {name:?} was removed: create it again")]
    Removed {
        /// Name of the group.
        name: String,
    },
    /// A process or thread can't be added to a group.
    #[error("can't add {member} {id} to {}: {source}{}", path.display(), join_hint(.source))]
    Join {
        /// `process` or `thread`.
        member: &'static str,
        /// Id of the process or thread.
        id: i32,
        /// Directory of the group.
        path: PathBuf,
        /// System's error.
        source: io::Error,
    },
    /// A process was given to a group of threads, or a thread to a group of processes.
    #[error("group {} holds {holds}: add {given} to a group of {given}", path.display())]
    Members {
        /// Directory of the group.
        path: PathBuf,
        /// Members of the group.
        holds: &'static str,
        /// Kind of the refused member.
        given: &'static str,
    },
    /// A resource of a group of threads can't be limited.
    #[error(
        "can't limit the {} of threads: the kernel limits it for processes; give it to a group of processes",
        controller.resource()
    )]
    OfThreads {
        /// Controller of the resource.
        controller: Controller,
    },
    /// A program can't be started in a group.
    #[error("can't start {program:?} in {}: {source}{}", path.display(), start_hint(.source))]
    Start {
        /// Program.
        program: String,
        /// Directory of the group.
        path: PathBuf,
        /// System's error.
        source: io::Error,
    },
}

impl GroupError {
    /// Returns a function that converts the error of an operation on a path.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { action, path: path.to_owned(), source }
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => " (root, or ownership of the group, is needed)",
        Some(libc::EROFS) => " (the hierarchy is mounted read-only)",
        Some(libc::ENOENT) => " (the group was removed, or the kernel lacks the feature)",
        Some(libc::EBUSY) => " (the group's processes use more than this)",
        Some(libc::EINVAL) => {
            " (the value is out of the kernel's range, exceeds the parent's, or real-time threads prevent it)"
        }
        Some(libc::ENODEV | libc::ENXIO) => " (the device is gone)",
        _ => "",
    }
}

fn join_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ESRCH) => " (it has ended)",
        Some(libc::EINVAL) => " (with a real-time policy it needs a real-time share of the group first)",
        Some(libc::EOPNOTSUPP) => {
            " (version 2 moves only threads of the router itself into groups of threads)"
        }
        Some(libc::EACCES | libc::EPERM) => " (root, or ownership of both groups, is needed)",
        Some(libc::ENOENT) => " (the group was removed)",
        _ => "",
    }
}

fn start_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT) => " (the program or its working directory doesn't exist)",
        Some(libc::EACCES | libc::EPERM) => " (the program may not be executed, or the group not be joined)",
        Some(libc::EAGAIN) => " (this user or group may have no more processes)",
        _ => "",
    }
}

fn restored(unrestored: &[PathBuf]) -> String {
    let files: Vec<String> = unrestored.iter().map(|path| path.display().to_string()).collect();
    match files.as_slice() {
        [] => "; the earlier limits are restored".to_owned(),
        files => format!("; the earlier values of these files could not be restored: {}", files.join(", ")),
    }
}

fn reason(source: &Option<io::Error>) -> String {
    source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default()
}

/// Maximum number of ids that an error lists.
const LISTED: usize = 8;

fn listed(ids: &[i32]) -> String {
    let mut texts: Vec<String> = ids.iter().take(LISTED).map(ToString::to_string).collect();
    match ids.len().checked_sub(LISTED) {
        Some(more) if more > 0 => texts.push(format!("and {more} more")),
        _ => {}
    }
    if texts.is_empty() { "child groups".to_owned() } else { format!("ids {}", texts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_failure_value_reason_and_remedy() {
        let error = GroupError::Limit {
            path: "/g/memory.max".into(),
            value: "4096".to_owned(),
            source: io::Error::from_raw_os_error(libc::EBUSY),
            unrestored: Vec::new(),
        };
        let text = error.to_string();
        assert!(text.starts_with("can't write \"4096\" to /g/memory.max: "), "{text}");
        assert!(text.ends_with("use more than this); the earlier limits are restored"), "{text}");
        let obstacle = Obstacle::NotMounted { controller: "blkio" };
        let text = GroupError::Unavailable { controller: Controller::Disk, obstacle }.to_string();
        assert!(text.starts_with("can't limit the disk transfer: no hierarchy with"), "{text}");
        assert!(text.contains("; mount the version-2 hierarchy"), "{text}");
    }

    #[test]
    fn long_lists_of_ids_are_cut() {
        assert_eq!(listed(&[1, 2]), "ids 1, 2");
        assert_eq!(listed(&(1..=10).collect::<Vec<_>>()), "ids 1, 2, 3, 4, 5, 6, 7, 8, and 2 more");
        assert_eq!(listed(&[]), "child groups");
    }
}
