//! Control group of a running router, which contains the groups of its principals and threads.

mod delegation;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::controller::{Controller, Version};
use crate::directory::{Claim, REMOVAL, children, clear, create, remove_dead};
use crate::error::GroupError;
use crate::files::write;
use crate::group::{Branch, Group, Members};
use crate::limits::CpuWeight;
use crate::machine::Machine;
use crate::name;
use delegation::Delegation;

/// Control group of a running router: `millrace-NAME` in the group in which the router was started, in each
/// hierarchy. It is locked while the router lives. Dropping it removes it as [`remove`](Self::remove) does,
/// without reporting errors.
#[derive(Debug)]
pub struct RouterGroup {
    machine: Arc<Machine>,
    /// Empty after the removal.
    branches: Vec<Branch>,
    claims: Vec<Claim>,
    delegation: Option<Delegation>,
}

impl RouterGroup {
    /// Creates the group of a router, and removes the groups of dead routers beside it, if their names are a
    /// process id, or a process id, a hyphen and a number. Their processes move to the group in which this
    /// router was started. In version 2 these, and all processes of this router, move into the group `router`.
    ///
    /// # Errors
    /// The name is invalid, a running router has it, no controller can be used, or a directory can't be
    /// created. In version 2 also: the group in which the router was started contains processes of others.
    pub fn create(machine: &Machine, name: &str) -> Result<Self, GroupError> {
        name::check(name)?;
        let directory = format!("{}{name}", name::PREFIX);
        name::check(&directory)?;
        let branches = branches(machine, &directory)?;
        let machine = Arc::new(machine.clone());
        let mut router = Self { machine, branches: Vec::new(), claims: Vec::new(), delegation: None };
        for branch in branches {
            router.claims.push(Claim::take(&branch.path)?);
            router.branches.push(branch.clone());
            let home = match branch.version {
                Version::V1 => branch.home.clone(),
                Version::V2 => {
                    let home = branch.path.join(name::ROUTER);
                    create(&home)?;
                    home
                }
            };
            remove_dead(branch.version, &branch.home, &home);
            let deadline = Instant::now() + REMOVAL;
            for leftover in children(&branch.path).into_iter().filter(|child| *child != home) {
                clear(branch.version, &leftover, &home, deadline)?;
            }
            if branch.version == Version::V2 && branch.has_limits() {
                router.delegation = Some(Delegation::begin(&branch, home, deadline)?);
            }
        }
        Ok(router)
    }

    /// Returns the directories of the router's group, one per hierarchy; none after its removal.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.branches.iter().map(|branch| branch.path.as_path())
    }

    /// Creates a group in the router's group.
    ///
    /// # Errors
    /// The name is invalid or taken, or a directory can't be created.
    pub fn create_group(&self, name: &str, members: Members) -> Result<Group, GroupError> {
        name::check_in_router(name)?;
        if self.branches.is_empty() {
            return Err(GroupError::Removed { name: name.to_owned() });
        }
        let mut parents = self.branches.clone();
        if let Some(delegation) = &self.delegation {
            // Version 2 forbids processes in the group in which the router was started.
            let of_second_version = parents.iter_mut().filter(|branch| branch.version == Version::V2);
            of_second_version.for_each(|branch| branch.home = delegation.router().to_owned());
        }
        Group::create(&self.machine, name, members, &parents)
    }

    /// Sets the weight of the router's group beside other groups, and that of the router's own threads beside the groups
    /// of principals. Does nothing without the controller.
    ///
    /// # Errors
    /// The kernel refuses a weight. A group of threads must exist.
    pub fn set_weights(&self, whole: CpuWeight, threads: CpuWeight) -> Result<(), GroupError> {
        for branch in self.branches.iter().filter(|branch| branch.has(Controller::Cpu)) {
            for (path, weight) in [(branch.path.clone(), whole), (branch.path.join(name::ROUTER), threads)] {
                let (file, value) = match branch.version {
                    Version::V1 => (path.join("cpu.shares"), weight.shares()),
                    Version::V2 => (path.join("cpu.weight"), weight.get().into()),
                };
                write(&file, &value.to_string()).map_err(GroupError::file("write", &file))?;
            }
        }
        Ok(())
    }

    /// Removes the router's group with all groups in it. Their processes move to the group in which the
    /// router was started. Waits for at most [`REMOVAL`]. Does nothing if it was removed before.
    ///
    /// # Errors
    /// A process can't be moved; in version 2 also: a successor, which this router has started, distributes
    /// the resources of the group in which both were started. The group can be removed again later. The next
    /// router removes it, too.
    pub fn remove(&mut self) -> Result<(), GroupError> {
        let mut result = Ok(());
        let delegation = &mut self.delegation;
        let deadline = Instant::now() + REMOVAL;
        self.branches.retain(|branch| {
            let ended = match (branch.version, &*delegation) {
                (Version::V2, Some(delegation)) => delegation.end(deadline),
                _ => Ok(()),
            };
            match ended.and_then(|()| branch.remove(deadline)) {
                Ok(()) => false,
                Err(error) => {
                    result = Err(error);
                    true
                }
            }
        });
        if self.branches.is_empty() {
            *delegation = None;
            self.claims.clear();
        }
        result
    }
}

impl Drop for RouterGroup {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Returns the branches of the usable hierarchies, each with its controllers.
fn branches(machine: &Machine, directory: &str) -> Result<Vec<Branch>, GroupError> {
    let mut branches: Vec<Branch> = Vec::new();
    let mut first = None;
    for controller in Controller::ALL {
        let place = match machine.usable(controller) {
            Ok(place) => place,
            Err(obstacle) => {
                first.get_or_insert(obstacle);
                continue;
            }
        };
        match branches.iter_mut().find(|branch| branch.home == place.own) {
            Some(branch) => branch.controllers.push(controller),
            None => branches.push(Branch {
                version: place.version,
                controllers: vec![controller],
                path: place.own.join(directory),
                home: place.own.clone(),
            }),
        }
    }
    match first {
        Some(obstacle) if !branches.iter().any(Branch::has_limits) => {
            Err(GroupError::NoController { obstacle })
        }
        _ => Ok(branches),
    }
}

#[cfg(test)]
mod tests;
