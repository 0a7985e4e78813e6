//! Controllers of this machine, and the groups of this process.

mod membership;
mod mounts;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, Pid, eaccess};
use serde::Serialize;

use crate::controller::{Controller, Obstacle, Version};
use crate::error::GroupError;
use crate::files::{read, read_if_present};
use crate::name::{PREFIX, ROUTER};
use membership::{Membership, memberships};
use mounts::{Mount, mounts};

/// Place of a controller: its hierarchy, and the own group there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Version of the hierarchy.
    pub version: Version,
    /// Mount point of the hierarchy.
    pub mount: PathBuf,
    /// Directory of the own group: the group in which this process was started.
    pub own: PathBuf,
}

/// State of a controller on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ControllerState {
    /// The controller.
    pub controller: Controller,
    /// Place of the controller; `None` if the own group has no directory.
    pub place: Option<Place>,
    /// Reason why the router can't create groups there; `None` if it can.
    pub obstacle: Option<Obstacle>,
}

impl ControllerState {
    /// Returns the place if the router can create groups there.
    ///
    /// # Errors
    /// The obstacle.
    pub fn usable(&self) -> Result<&Place, Obstacle> {
        match (&self.place, &self.obstacle) {
            (Some(place), None) => Ok(place),
            (_, Some(obstacle)) => Err(obstacle.clone()),
            (None, None) => Err(not_mounted(self.controller)),
        }
    }
}

/// Controllers of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    controllers: Vec<ControllerState>,
}

impl Machine {
    /// Finds the controllers of this machine and the groups of this process, and checks for each controller
    /// that groups can be created. Changes nothing.
    ///
    /// # Errors
    /// `/proc/self/mountinfo` or `/proc/self/cgroup` can't be read.
    pub fn detect() -> Result<Self, GroupError> {
        let mut machine = Self::of_process("self")?;
        machine.leave_routers();
        machine.controllers.iter_mut().for_each(|state| {
            if let (Some(place), None) = (&state.place, &state.obstacle) {
                state.obstacle = probe(state.controller, place);
            }
        });
        Ok(machine)
    }

    /// Replaces groups in which another router has put this process, as [`without_router`] does.
    fn leave_routers(&mut self) {
        for place in self.controllers.iter_mut().filter_map(|state| state.place.as_mut()) {
            if let Some(own) = without_router(&place.own) {
                place.own = own;
            }
        }
    }

    /// Finds the groups of a thread, without checks.
    ///
    /// # Errors
    /// The thread's files in `/proc` can't be read.
    pub(crate) fn of_thread(thread: Pid) -> Result<Self, GroupError> {
        if thread == Pid::from_raw(0) {
            Self::of_process("thread-self")
        } else {
            Self::of_process(&thread.to_string())
        }
    }

    fn of_process(process: &str) -> Result<Self, GroupError> {
        let read = |path: String| fs::read(&path).map_err(GroupError::file("read", Path::new(&path)));
        let mountinfo = read("/proc/self/mountinfo".to_owned())?;
        let membership = read(format!("/proc/{process}/cgroup"))?;
        Ok(Self::located(&mountinfo, &membership))
    }

    /// Finds the place of each controller in the texts of `/proc/self/mountinfo` and `/proc/PID/cgroup`.
    fn located(mountinfo: &[u8], membership: &[u8]) -> Self {
        let (mounts, memberships) = (mounts(mountinfo), memberships(membership));
        let state = |controller| match locate(controller, &mounts, &memberships) {
            Ok((place, obstacle)) => ControllerState { controller, place: Some(place), obstacle },
            Err(obstacle) => ControllerState { controller, place: None, obstacle: Some(obstacle) },
        };
        Self { controllers: Controller::ALL.map(state).into() }
    }

    /// Returns a machine with one usable controller.
    #[cfg(test)]
    pub(crate) fn with(controller: Controller, place: Place) -> Self {
        Self { controllers: vec![ControllerState { controller, place: Some(place), obstacle: None }] }
    }

    /// Returns the state of each controller.
    pub fn controllers(&self) -> &[ControllerState] {
        &self.controllers
    }

    /// Returns the place of a controller if the router can create groups there.
    ///
    /// # Errors
    /// The obstacle.
    pub fn usable(&self, controller: Controller) -> Result<&Place, Obstacle> {
        let state = self.controllers.iter().find(|state| state.controller == controller);
        state.map_or_else(|| Err(not_mounted(controller)), ControllerState::usable)
    }

    /// Returns the place of a controller, also if groups can't be created there.
    pub(crate) fn place(&self, controller: Controller) -> Option<&Place> {
        self.controllers.iter().find(|state| state.controller == controller)?.place.as_ref()
    }
}

fn not_mounted(controller: Controller) -> Obstacle {
    Obstacle::NotMounted { controller: controller.name(Version::V1) }
}

/// Returns the place of a controller, with an obstacle that the mount itself shows.
fn locate(
    controller: Controller,
    mounts: &[Mount],
    memberships: &[Membership],
) -> Result<(Place, Option<Obstacle>), Obstacle> {
    let of_first_version =
        |controller: Controller| memberships.iter().find(|one| one.has(controller.name(Version::V1)));
    let membership = match of_first_version(controller) {
        Some(membership) => membership,
        // Groups of version 2 account processor time only beside the version-2 controller.
        None if controller == Controller::CpuAccounting && of_first_version(Controller::Cpu).is_some() => {
            return Err(not_mounted(controller));
        }
        None => {
            let of_second_version = memberships.iter().find(|one| one.version == Version::V2);
            of_second_version.ok_or_else(|| not_mounted(controller))?
        }
    };
    let version = membership.version;
    let fitting: Vec<&Mount> =
        mounts.iter().filter(|mount| mount.has(version, controller.name(version))).collect();
    let directories = fitting.iter().filter_map(|mount| Some((mount, mount.directory(&membership.group)?)));
    // A hierarchy may be mounted several times, as in containers.
    let Some((mount, own)) = directories.min_by_key(|(mount, _)| mount.is_read_only) else {
        let outside = |mount: &&Mount| Obstacle::OutsideMount {
            mount: mount.point.clone(),
            group: membership.group.clone(),
        };
        return Err(fitting.first().map_or_else(|| not_mounted(controller), outside));
    };
    let own = if version == Version::V2 { without_router(&own).unwrap_or(own) } else { own };
    let obstacle = mount.is_read_only.then(|| Obstacle::ReadOnly { mount: mount.point.clone() });
    Ok((Place { version, mount: mount.point.clone(), own }, obstacle))
}

/// Returns the group in which a router was started, for the group into which the router moved its processes
/// (`millrace-NAME/router`), or for a group of its threads below that. A process that a router starts for an upgrade
/// begins there.
fn without_router(group: &Path) -> Option<PathBuf> {
    let router = [Some(group), group.parent()].into_iter().flatten().find(|path| path.ends_with(ROUTER))?;
    let parent = router.parent()?;
    let is_router = parent.file_name()?.to_str()?.starts_with(PREFIX);
    parent.parent().filter(|_| is_router).map(Path::to_owned)
}

/// Checks that groups with the controller can be created in the own group.
fn probe(controller: Controller, place: &Place) -> Option<Obstacle> {
    let own = &place.own;
    if let Err(error) = eaccess(own, AccessFlags::W_OK | AccessFlags::X_OK) {
        let error = io::Error::from(error).to_string();
        return Some(Obstacle::NotWritable { directory: own.clone(), error });
    }
    if place.version == Version::V1 {
        return None;
    }
    if read_if_present(&own.join("cgroup.type")).is_some_and(|kind| kind != "domain") {
        return Some(Obstacle::Threaded { directory: own.clone() });
    }
    if controller.is_in_every_group() {
        return None;
    }
    let name = controller.name(Version::V2);
    let has = |directory: &Path| {
        read(&directory.join("cgroup.controllers")).is_ok_and(|text| text.split(' ').any(|word| word == name))
    };
    if has(own) {
        None
    } else if has(&place.mount) {
        Some(Obstacle::NotDelegated { controller: name, directory: own.clone() })
    } else {
        Some(Obstacle::Absent { controller: name, mount: place.mount.clone() })
    }
}

#[cfg(test)]
mod tests;
