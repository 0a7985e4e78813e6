//! Removal of a group in all hierarchies: all its members leave, or all stay.
//!
//! The members leave once while they run. If new ones have appeared meanwhile, the group stops: in version 2 its processes
//! are frozen until they leave, and in version 1 they start no others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Instant;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::{Branch, Members};
use crate::controller::{Controller, Version};
use crate::directory::{PAUSE, children, exits, members};
use crate::error::GroupError;
use crate::files::{read_if_present, write};
use crate::member::Member;

/// Number of rounds after the deadline in which the members of a stopped group may still leave. The moves may take long,
/// but the members become fewer.
const LATE: usize = 4;

/// Moves the members of a group away. Returns them, each once.
///
/// # Errors
/// Some are left at the deadline. All members are in the group again.
pub(super) fn evacuate(
    branches: &[Branch],
    kind: Members,
    deadline: Instant,
) -> Result<Evacuation, GroupError> {
    // Threads of the router itself must not stop.
    let stop = Some(branches).filter(|_| kind == Members::Processes).and_then(Stop::of);
    let (last, first): (Vec<&Branch>, Vec<&Branch>) = branches
        .iter()
        .partition(|branch| stop.as_ref().is_some_and(|stop| stop.file.starts_with(&branch.path)));
    let mut evacuation = Evacuation { moved: Vec::new(), stop, is_stopped: false };
    let (mut late, mut was_seen) = (0, [false; 2]);
    loop {
        // A member that has left the hierarchy of the stop would leave unstopped children elsewhere.
        let left = [&first, &last]
            .into_iter()
            .enumerate()
            .find_map(|(place, branches)| Some((place, evacuation.leave_all(branches)?)));
        let Some((place, (path, (members, source)))) = left else { return Ok(evacuation) };
        let is_late = Instant::now() >= deadline;
        if is_late || was_seen[place] {
            evacuation.stop();
        }
        late += usize::from(is_late);
        if is_late && (source.is_some() || !evacuation.is_stopped || late > LATE) {
            evacuation.undo();
            return Err(GroupError::NotEmpty { path, members, source });
        }
        if was_seen[place] {
            sleep(PAUSE);
        }
        was_seen[place] = true;
    }
}

/// Members that have left a group.
#[derive(Debug)]
pub(super) struct Evacuation {
    /// Each move, with the file by which the member returns.
    moved: Vec<(PathBuf, Member)>,
    stop: Option<Stop>,
    is_stopped: bool,
}

/// Members found in a directory, and the last refusal to move one.
type Found = (Vec<i32>, Option<io::Error>);

impl Evacuation {
    /// Returns the members, each once.
    pub fn members(&self) -> Vec<Member> {
        let mut all: Vec<Member> = self.moved.iter().map(|(_, member)| *member).collect();
        all.sort_by_key(|member| member.id());
        all.dedup();
        all
    }

    /// Moves the members back, and lets them run. Members that have ended stay away.
    pub fn undo(&mut self) {
        for (file, member) in self.moved.drain(..).filter(|(_, member)| member.has_its_id()) {
            // It may end meanwhile.
            let _ = write(&file, &member.id().to_string());
        }
        if let Some(stop) = self.stop.as_ref().filter(|_| self.is_stopped) {
            stop.end();
        }
    }

    fn stop(&mut self) {
        if let Some(stop) = self.stop.as_ref().filter(|_| !self.is_stopped) {
            self.is_stopped = stop.begin();
        }
    }

    /// Moves the present members of some hierarchies away. Returns the last directory that had any.
    fn leave_all(&mut self, branches: &[&Branch]) -> Option<(PathBuf, Found)> {
        let mut left = None;
        for branch in branches {
            for path in with_children(&branch.path) {
                let found = self.leave(branch, &path);
                if !found.0.is_empty() {
                    left = Some((path, found));
                }
            }
        }
        left
    }

    fn leave(&mut self, branch: &Branch, path: &Path) -> Found {
        let (list, exit) = exits(branch.version, path, &branch.home);
        let (list, mut refused) = (path.join(list), None);
        let members = members(&list);
        for member in members.iter().filter_map(|id| Member::of(Pid::from_raw(*id))) {
            match write(&exit, &member.id().to_string()) {
                Ok(()) => self.moved.push((list.clone(), member)),
                Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => {}
                Err(error) => refused = Some(error),
            }
        }
        (members, refused)
    }
}

/// Stop of a group: its processes start no others.
#[derive(Debug)]
struct Stop {
    file: PathBuf,
    value: &'static str,
    earlier: String,
}

impl Stop {
    /// Returns the way to stop a group: it freezes the processes, or sets their largest number to none. `None` if the
    /// machine has neither.
    fn of(branches: &[Branch]) -> Option<Self> {
        let freezer = branches.iter().filter(|branch| branch.version == Version::V2);
        let freezer = freezer.map(|branch| (branch.file("cgroup.freeze"), "1"));
        let number = branches.iter().filter(|branch| branch.has(Controller::Processes));
        let number = number.map(|branch| (branch.file("pids.max"), "0"));
        freezer.chain(number).find_map(|(file, value)| {
            let earlier = read_if_present(&file)?;
            Some(Self { file, value, earlier })
        })
    }

    /// Stops the group. Returns whether the kernel accepts that.
    fn begin(&self) -> bool {
        write(&self.file, self.value).is_ok()
    }

    fn end(&self) {
        // The group may be gone.
        let _ = write(&self.file, &self.earlier);
    }
}

/// Removes the empty directory of a group with its child groups.
///
/// # Errors
/// A directory is not empty at the deadline: processes that have ended may leave late.
pub(super) fn remove_directory(path: &Path, deadline: Instant) -> Result<(), GroupError> {
    for path in with_children(path) {
        loop {
            match fs::remove_dir(&path) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) if error.raw_os_error() != Some(Errno::EBUSY as i32) => {
                    return Err(GroupError::file("remove", &path)(error));
                }
                Err(_) if Instant::now() >= deadline => {
                    return Err(GroupError::NotEmpty { path, members: Vec::new(), source: None });
                }
                Err(_) => sleep(PAUSE),
            }
        }
    }
    Ok(())
}

/// Returns the directories of a group and of its child groups, the children first.
fn with_children(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = children(path).iter().flat_map(|child| with_children(child)).collect();
    all.push(path.to_owned());
    all
}

#[cfg(test)]
mod tests;
