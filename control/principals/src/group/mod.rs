//! Control group of a principal, or of some threads of the router.

mod branch;
mod realtime;
mod removal;
mod settings;
mod usage;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::controller::{Controller, Version};
use crate::directory::{REMOVAL, create};
use crate::error::GroupError;
use crate::files::write;
use crate::limits::Limits;
use crate::machine::Machine;
use crate::member::Member;
use crate::name::ROUTER;
use crate::processes::parent;
pub(crate) use branch::Branch;
pub(crate) use realtime::RUNTIME;
pub use realtime::RealtimeShare;
pub use settings::block_devices;
pub use usage::Usage;

/// File of a group to which the ids of processes are written that join it.
const PROCESSES: &str = "cgroup.procs";
/// The same file for threads. In version 1 it has another name.
const THREADS: &str = "cgroup.threads";

/// Members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// Processes of a principal, with all resources.
    Processes,
    /// Threads of this process, with processor time alone: the kernel accounts the other resources of a
    /// thread to its process.
    Threads,
}

impl Members {
    fn noun(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Threads => "threads",
        }
    }

    /// Whether groups with such members use the controller.
    fn use_controller(self, controller: Controller) -> bool {
        self == Self::Processes || matches!(controller, Controller::Cpu | Controller::CpuAccounting)
    }
}

/// Control group, with a directory in each hierarchy that it uses. Dropping it removes the group as
/// [`remove`](Self::remove) does, without reporting errors.
#[derive(Debug)]
pub struct Group {
    name: String,
    members: Members,
    machine: Arc<Machine>,
    /// Empty after the removal.
    branches: Vec<Branch>,
    /// Limits that the kernel has.
    limits: Limits,
    /// Numbers of the block devices that have the disk limit.
    devices: Vec<String>,
}

impl Group {
    /// Creates a group below a router's group. The caller has checked the name.
    ///
    /// # Errors
    /// A directory exists already or can't be created.
    pub(crate) fn create(
        machine: &Arc<Machine>,
        name: &str,
        members: Members,
        parents: &[Branch],
    ) -> Result<Self, GroupError> {
        let (name, machine) = (name.to_owned(), machine.clone());
        let (branches, limits, devices) = Default::default();
        let mut group = Self { name, members, machine, branches, limits, devices };
        for parent in parents {
            let mut branch = parent.clone();
            branch.controllers.retain(|controller| members.use_controller(*controller));
            if branch.controllers.is_empty() {
                continue;
            }
            if members == Members::Threads {
                branch = branch.child(Path::new(ROUTER));
                create(&branch.path)?;
            }
            let branch = branch.child(Path::new(&group.name));
            match fs::create_dir(&branch.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(GroupError::Exists { path: branch.path });
                }
                result => result.map_err(GroupError::file("create", &branch.path))?,
            }
            group.branches.push(branch.clone());
            if members == Members::Threads && branch.version == Version::V2 {
                make_threaded(&branch)?;
            }
        }
        Ok(group)
    }

    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of members.
    pub fn members(&self) -> Members {
        self.members
    }

    /// Returns the directories of the group, one per hierarchy; none after its removal.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.branches.iter().map(|branch| branch.path.as_path())
    }

    /// Returns the kernel's id of the group in the hierarchy of version 2, by which it knows the sender of a packet;
    /// `None` without such a hierarchy.
    pub fn id_of_packets(&self) -> Option<u64> {
        let branch = self.branches.iter().find(|branch| branch.has(Controller::Packets))?;
        fs::metadata(&branch.path).ok().map(|metadata| metadata.ino())
    }

    /// Returns the files that a process joins the group by: it writes its process id to each. See
    /// [`Launch::by_files`](crate::Launch::by_files).
    ///
    /// # Errors
    /// The group holds threads, or was removed.
    pub fn join_files(&self) -> Result<Vec<PathBuf>, GroupError> {
        self.require(Members::Processes)?;
        self.require_present()?;
        Ok(self.branches.iter().map(|branch| branch.file(PROCESSES)).collect())
    }

    /// Returns the files that a process leaves the group by: it then is in the group to which
    /// [`remove`](Self::remove) moves processes.
    pub fn leave_files(&self) -> Vec<PathBuf> {
        self.branches.iter().map(|branch| branch.home.join(PROCESSES)).collect()
    }

    /// Sets all limits. If the kernel refuses a limit, restores the earlier limits.
    ///
    /// # Errors
    /// A limited resource has no usable controller, or the kernel refuses a value. A memory limit below the
    /// memory in use is refused in version 1; in version 2 the kernel kills processes of the group.
    pub fn set(&mut self, limits: &Limits) -> Result<(), GroupError> {
        self.require_present()?;
        let devices = if limits.disk.is_some() { block_devices() } else { Vec::new() };
        let before = settings::of(&self.limits, self, &self.devices)?;
        let mut wanted = settings::of(limits, self, &devices)?;
        wanted.retain(|setting| !before.contains(setting));
        settings::apply(&wanted)?;
        (self.limits, self.devices) = (*limits, devices);
        Ok(())
    }

    /// Applies the disk limit to the block devices that have appeared since the latest limit. `devices`: numbers of all
    /// devices ([`block_devices`](crate::block_devices)).
    ///
    /// # Errors
    /// The kernel refuses the limit of a device.
    pub fn limit_devices(&mut self, devices: &[String]) -> Result<(), GroupError> {
        if self.limits.disk.is_none() || devices == self.devices {
            return Ok(());
        }
        let is_new = |setting: &settings::Setting| {
            setting.device.as_ref().is_some_and(|device| !self.devices.contains(device))
        };
        let branch = self.branch(Controller::Disk).into_iter();
        let all = branch.flat_map(|branch| settings::disk(self.limits.disk, branch, devices));
        settings::apply(&all.filter(is_new).collect::<Vec<_>>())?;
        self.devices = devices.to_vec();
        Ok(())
    }

    /// Lets threads of the group run with a real-time policy for a share of each processor's time. A kernel
    /// with such shares (`CONFIG_RT_GROUP_SCHED`) refuses the policies to groups without a share, as every
    /// new group is. Version 2 has no shares, and other kernels need none: there this sets nothing.
    ///
    /// # Errors
    /// The share exceeds the rest of the share of the group in which the router was started.
    pub fn allow_realtime(&mut self, share: RealtimeShare) -> Result<(), GroupError> {
        let branch = self.branch(Controller::Cpu).filter(|branch| branch.version == Version::V1);
        branch
            .map_or(Ok(()), |branch| settings::apply(&realtime::settings(&branch.path, &branch.home, share)?))
    }

    /// Whether this kernel gives real-time policies only to threads of groups with a share (version 1).
    pub fn has_realtime_shares(&self) -> bool {
        self.branches.iter().any(|branch| branch.file(RUNTIME).exists())
    }

    /// Moves a process with all its threads into the group.
    ///
    /// # Errors
    /// The process has ended, may not be moved, or the group holds threads. The process is then in the group
    /// in which the router was started.
    pub fn add_process(&self, process: Pid) -> Result<(), GroupError> {
        self.require(Members::Processes)?;
        self.add("process", process, PROCESSES)
    }

    /// Moves a process into the group as [`add_process`](Self::add_process) does, unless it has ended and another one has
    /// its id.
    ///
    /// # Errors
    /// As for `add_process`.
    pub fn add_member(&self, member: Member) -> Result<(), GroupError> {
        self.require(Members::Processes)?;
        if !member.has_its_id() {
            return Err(self.no_such_process(member.id()));
        }
        self.confirm(member, self.join("process", member.id(), PROCESSES))
    }

    /// Returns the outcome of a process's attempt to join. Undoes the attempt if it failed, or if another process has
    /// the id by now: the kernel moves processes by their ids alone.
    fn confirm(&self, member: Member, joined: Result<(), (usize, GroupError)>) -> Result<(), GroupError> {
        match (member.has_its_id(), joined) {
            (true, Ok(())) => Ok(()),
            (true, Err((joined, error))) => {
                self.go_home(joined, member.id(), PROCESSES);
                Err(error)
            }
            (false, _) => {
                self.release_stranger(member.id());
                Err(self.no_such_process(member.id()))
            }
        }
    }

    /// Moves the process that has got the id of an ended one back to the groups of its parent. It has just been
    /// started, so it was started there. A process that is not in this group stays where it is, and so does one whose
    /// parent is in this group.
    fn release_stranger(&self, id: Pid) {
        let (Some(stranger), Ok(machine)) = (Member::of(id), Machine::of_thread(id)) else { return };
        // The parent is 0 if it is outside the namespace of process ids.
        let parent = parent(&Path::new("/proc").join(id.to_string())).filter(|parent| *parent > 0);
        let origin = parent.and_then(|parent| Machine::of_thread(Pid::from_raw(parent.cast_signed())).ok());
        for branch in &self.branches {
            let group = |machine: &Machine| Some(machine.place(*branch.controllers.first()?)?.own.clone());
            let origin = origin.as_ref().and_then(group).unwrap_or_else(|| branch.home.clone());
            let is_here = group(&machine).is_some_and(|group| group == branch.path);
            if !is_here || origin == branch.path || !stranger.has_its_id() {
                continue;
            }
            // The group of its parent may take no processes, as that in which the router was started.
            if write(&origin.join(PROCESSES), &id.to_string()).is_err() {
                let _ = write(&branch.home.join(PROCESSES), &id.to_string());
            }
        }
    }

    fn no_such_process(&self, id: Pid) -> GroupError {
        let (member, path) = ("process", self.directories().next().map_or_else(PathBuf::new, Path::to_owned));
        GroupError::Join { member, id: id.as_raw(), path, source: Errno::ESRCH.into() }
    }

    /// Moves a thread of this process into the group.
    ///
    /// # Errors
    /// The thread has ended, or the group holds processes. In version 1 a thread with a real-time policy
    /// needs a share first ([`allow_realtime`](Self::allow_realtime)).
    pub fn add_thread(&self, thread: Pid) -> Result<(), GroupError> {
        self.require(Members::Threads)?;
        self.add("thread", thread, THREADS)
    }

    fn add(&self, member: &'static str, id: Pid, file: &'static str) -> Result<(), GroupError> {
        self.join(member, id, file).map_err(|(joined, error)| {
            self.go_home(joined, id, file);
            error
        })
    }

    /// Moves a member into the group in all hierarchies, one after the other.
    ///
    /// # Errors
    /// The first refusal, after the number of hierarchies in which the member has joined.
    fn join(&self, member: &'static str, id: Pid, file: &'static str) -> Result<(), (usize, GroupError)> {
        self.require_present().map_err(|error| (0, error))?;
        for (joined, branch) in self.branches.iter().enumerate() {
            if let Err(source) = write(&branch.file(entry(branch.version, file)), &id.to_string()) {
                let path = branch.path.clone();
                return Err((joined, GroupError::Join { member, id: id.as_raw(), path, source }));
            }
        }
        Ok(())
    }

    /// Moves a member out of the group in the first `joined` hierarchies. A member in some hierarchies only would
    /// have only some limits.
    fn go_home(&self, joined: usize, id: Pid, file: &'static str) {
        for branch in self.branches.iter().take(joined) {
            let _ = write(&branch.home.join(entry(branch.version, file)), &id.to_string());
        }
    }

    fn require(&self, given: Members) -> Result<(), GroupError> {
        if self.members == given {
            return Ok(());
        }
        let path = self.directories().next().map_or_else(|| PathBuf::from(&self.name), Path::to_owned);
        Err(GroupError::Members { path, holds: self.members.noun(), given: given.noun() })
    }

    fn require_present(&self) -> Result<(), GroupError> {
        match self.branches.iter().any(|branch| branch.path.is_dir()) {
            true => Ok(()),
            false => Err(GroupError::Removed { name: self.name.clone() }),
        }
    }

    /// Returns the usage of the group since its creation.
    ///
    /// # Errors
    /// The group was removed.
    pub fn usage(&self) -> Result<Usage, GroupError> {
        self.require_present()?;
        Ok(usage::of(&self.branches))
    }

    /// Removes the group, and returns its members. They move to the group in which the router was started, in
    /// version 2 to the router's own group. Tries for [`REMOVAL`], and somewhat longer if moves of stopped processes take
    /// long. Does nothing if the group was removed before.
    ///
    /// # Errors
    /// A member can't be moved, or ends too late. The group is as before, and can be removed again later.
    pub fn remove(&mut self) -> Result<Vec<Member>, GroupError> {
        self.remove_until(Instant::now() + REMOVAL)
    }

    fn remove_until(&mut self, deadline: Instant) -> Result<Vec<Member>, GroupError> {
        let mut evacuation = removal::evacuate(&self.branches, self.members, deadline)?;
        let remove = |branch: &Branch| removal::remove_directory(&branch.path, deadline);
        match self.branches.iter().try_for_each(remove) {
            Ok(()) => {
                self.branches.clear();
                Ok(evacuation.members())
            }
            Err(error) => {
                self.restore();
                evacuation.undo();
                Err(error)
            }
        }
    }

    /// Creates the directories again that a removal has removed before it failed.
    fn restore(&self) {
        let created = self.branches.iter().filter(|branch| fs::create_dir(&branch.path).is_ok()).count();
        if created > 0
            && let Ok(settings) = settings::of(&self.limits, self, &block_devices())
        {
            // The kernel accepted these limits before.
            let _ = settings::apply(&settings);
        }
    }

    /// Returns the branch in the hierarchy of a controller.
    fn branch(&self, controller: Controller) -> Option<&Branch> {
        self.branches.iter().find(|branch| branch.has(controller))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Returns the name of the file by which members join a group.
fn entry(version: Version, file: &'static str) -> &'static str {
    match version {
        Version::V1 if file == THREADS => "tasks",
        _ => file,
    }
}

/// Makes a new version-2 group a group of threads, and enables processor time there. The parent, the group of
/// the router's processes, may have processes in spite of its child groups, since they hold only threads.
fn make_threaded(branch: &Branch) -> Result<(), GroupError> {
    let kind = branch.file("cgroup.type");
    write(&kind, "threaded").map_err(GroupError::file("write", &kind))?;
    let Some(parent) = branch.path.parent().filter(|_| branch.has(Controller::Cpu)) else { return Ok(()) };
    let enabled = parent.join("cgroup.subtree_control");
    write(&enabled, "+cpu").map_err(GroupError::file("write", &enabled))
}

#[cfg(test)]
mod tests;
