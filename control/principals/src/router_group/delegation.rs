//! Version 2: distribution of the own group's resources to the groups of principals.
//!
//! A group that enables controllers for its children may contain no processes ("no internal processes"). So
//! all processes of the router move into the group `router`, and back at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::controller::{Controller, Version};
use crate::directory::{children, clear, evacuate, members};
use crate::error::GroupError;
use crate::files::{read_if_present, write};
use crate::group::Branch;

/// Number of times that the router's processes are moved: a process may start another one meanwhile.
const ROUNDS: usize = 10;
/// Largest number of ancestors that are searched for the router's process.
const ANCESTORS: usize = 64;

/// Controllers enabled by this router, and the group of its processes.
#[derive(Debug)]
pub(super) struct Delegation {
    /// Group in which the router was started.
    own: PathBuf,
    /// Group of the router.
    directory: PathBuf,
    /// Group of the router's processes.
    router: PathBuf,
    /// Controllers to disable for the children of `own` at the end.
    enabled: Vec<&'static str>,
}

impl Delegation {
    /// Moves the router's processes into the group `router`, and enables controllers for the other groups. If
    /// that fails, moves them back.
    ///
    /// # Errors
    /// The own group contains processes of others, or the kernel refuses a step.
    pub fn begin(branch: &Branch, router: PathBuf, deadline: Instant) -> Result<Self, GroupError> {
        let (own, directory) = (branch.home.clone(), branch.path.clone());
        let mut delegation = Self { own, directory, router, enabled: Vec::new() };
        // Groups of threads of a dead router.
        for leftover in children(&delegation.router) {
            clear(Version::V2, &leftover, &delegation.router, deadline)?;
        }
        let entered = delegation.gather().and_then(|()| delegation.enable(&branch.controllers));
        entered.inspect_err(|_| {
            let _ = delegation.leave();
        })?;
        Ok(delegation)
    }

    /// Moves the router's processes into its group.
    fn gather(&self) -> Result<(), GroupError> {
        let file = self.router.join("cgroup.procs");
        let enter = |process: i32| match write(&file, &process.to_string()) {
            // It has ended.
            Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(()),
            result => result.map_err(GroupError::file("move the router's processes to", &file)),
        };
        // After an upgrade this process is in the group of its predecessor.
        enter(own_id())?;
        for _ in 0..ROUNDS {
            let (family, _) = family(&self.own);
            if family.is_empty() {
                break;
            }
            family.into_iter().try_for_each(enter)?;
        }
        Ok(())
    }

    fn enable(&mut self, controllers: &[Controller]) -> Result<(), GroupError> {
        // The root group has no type. There, controllers that others have enabled stay enabled.
        let is_root = !self.own.join("cgroup.type").exists();
        let controllers = controllers.iter().filter(|one| !one.is_in_every_group());
        for controller in controllers.map(|controller| controller.name(Version::V2)) {
            let was_enabled = is_enabled(&self.own, controller);
            if !was_enabled {
                switch(&self.own, '+', controller)?;
            }
            if !was_enabled || !is_root {
                self.enabled.push(controller);
            }
            switch(&self.directory, '+', controller)?;
        }
        Ok(())
    }

    /// Returns the group of the router's processes.
    pub fn router(&self) -> &Path {
        &self.router
    }

    /// Removes all groups in the router's group, and moves the router's processes back.
    ///
    /// # Errors
    /// A process can't be moved, or a controller not be disabled.
    pub fn end(&self, deadline: Instant) -> Result<(), GroupError> {
        for child in children(&self.directory).into_iter().filter(|child| *child != self.router) {
            clear(Version::V2, &child, &self.router, deadline)?;
        }
        for child in children(&self.router) {
            clear(Version::V2, &child, &self.router, deadline)?;
        }
        self.leave()
    }

    /// Disables the controllers, and moves the router's processes back. Does nothing if that is done.
    fn leave(&self) -> Result<(), GroupError> {
        let mut result = Ok(());
        for directory in [&self.router, &self.directory] {
            let enabled = read_if_present(&directory.join(ENABLED)).unwrap_or_default();
            for controller in enabled.split_whitespace() {
                result = result.and(switch(directory, '-', controller));
            }
        }
        for controller in &self.enabled {
            // Another router in the own group, such as the successor after an upgrade, may need it.
            let _ = switch(&self.own, '-', controller);
        }
        evacuate(Version::V2, &self.router, &self.own);
        result
    }
}

/// File with the controllers that a group enables for its children.
const ENABLED: &str = "cgroup.subtree_control";

fn is_enabled(directory: &Path, controller: &str) -> bool {
    let text = read_if_present(&directory.join(ENABLED)).unwrap_or_default();
    text.split(' ').any(|word| word == controller)
}

/// Enables (`+`) or disables (`-`) a controller for the children of a group.
fn switch(directory: &Path, sign: char, controller: &str) -> Result<(), GroupError> {
    let file = directory.join(ENABLED);
    write(&file, &format!("{sign}{controller}")).map_err(|error| {
        let (_, processes) = family(directory);
        match error.raw_os_error() {
            Some(code) if code == Errno::EBUSY as i32 && !processes.is_empty() => {
                GroupError::Occupied { path: directory.to_owned(), processes }
            }
            _ => GroupError::file("write", &file)(error),
        }
    })
}

/// Returns the processes in a group, by process ids: this process with its descendants, and the others.
fn family(directory: &Path) -> (Vec<i32>, Vec<i32>) {
    let is_ours = |process: &i32| descends(*process, own_id(), |process| parent(&read_stat(process)?));
    members(&directory.join("cgroup.procs")).into_iter().partition(is_ours)
}

fn own_id() -> i32 {
    Pid::this().as_raw()
}

fn read_stat(process: i32) -> Option<String> {
    let text = fs::read(format!("/proc/{process}/stat")).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Whether a process is `ancestor` or descends from it.
fn descends(process: i32, ancestor: i32, parent: impl Fn(i32) -> Option<i32>) -> bool {
    let chain = std::iter::successors(Some(process), |process| parent(*process).filter(|parent| *parent > 0));
    chain.take(ANCESTORS).any(|process| process == ancestor)
}

/// Returns the parent's process id in the text of `/proc/PID/stat`. The name in parentheses may contain any
/// character.
fn parent(stat: &str) -> Option<i32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_found_behind_any_name() {
        assert_eq!(parent("7 (a ) b) S 12 7 7 0"), Some(12));
        assert_eq!(parent("7 (a"), None);
        assert_eq!(parent("7 (a) S"), None);
    }

    #[test]
    fn descendants_are_distinguished_from_others() {
        // 1 ─ 2 ─ 3 and 1 ─ 4.
        let parent =
            |process| [None, Some(0), Some(1), Some(2), Some(1)].get(process as usize).copied().flatten();
        assert!(descends(2, 2, parent) && descends(3, 2, parent));
        assert!(!descends(4, 2, parent) && !descends(1, 2, parent) && !descends(9, 2, parent));
        assert!(!descends(8, 2, |_| Some(8)), "a circle ends the search");
    }
}
