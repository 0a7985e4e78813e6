//! Control groups of principals: a group for each principal in the router's group.
//!
//! The router's group exists only while at least one principal is configured. So a router without principals
//! needs no control groups and no rights to them. All functions run on the control thread: other threads may
//! not write the kernel's files (`control/confine`).

pub(crate) mod bounds;
mod core_inputs;
mod division;
mod held;
mod limits;
pub(crate) mod links;
pub(crate) mod machine;
mod memory;
mod overload;
mod promises;
mod removed;
mod rounds;
mod shares;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use millrace_config::{Change, Principal, Resource, Router, WorkerPolicy};
use millrace_pipeline::PrincipalCounts;
use millrace_plugin_process::ProcessGroups;
use millrace_principals::{GroupError, Limits, RouterGroup, block_devices, processor_times};
use millrace_units::{Instant, PrincipalId, QueueId};

use crate::ControlError;
use crate::error::Steps;
use crate::model::Model;
use crate::model::principals::payers_of_processes;
use crate::view::{
    LinkView, PrincipalDropsView, PrincipalGroupView, PrincipalUsageView, PrincipalView, ProcessPromiseView,
};
use crate::workers::Workers;
use core_inputs::CoreInputs;
use held::{Held, create, create_router, of_group};
use limits::{GroupLimits, Processors, limits};
use links::LinkPromises;
use machine::{
    NamedProcesses, PayerParts, PluginGroups, ProcessTimes, ThreadGroups, WorkerThreads, parts, shared,
};
use memory::WorkerMemory;
use overload::Overloads;
use promises::Promises;
use removed::RemovedGroups;
use shares::WorkerShares;

/// Control groups of the configured principals.
#[derive(Debug, Default)]
pub(crate) struct Principals {
    /// Groups of the principals, in the order of their creation. They are dropped before the router's group.
    groups: Vec<Held>,
    /// Group of the router; `None` without principals.
    router: Option<RouterGroup>,
    /// Reason why the principals have no groups.
    obstacle: Option<ControlError>,
    /// Groups that the change in progress has removed.
    removed: RemovedGroups,
    /// Processes that principals name.
    named: NamedProcesses,
    /// Names of principals whose `memory` doesn't limit the processes of a plugin, with the plugin, and the reason.
    unlimited_plugins: BTreeMap<(String, String), String>,
    /// Shares at the workers.
    pub shares: WorkerShares,
    /// Limits of memory at the workers.
    memory: WorkerMemory,
    /// What the workers delivered lately.
    pub promises: Promises,
    /// Processor time of core by port.
    pub core_inputs: CoreInputs,
    /// Overloads of core and of principals.
    pub overloads: Overloads,
    /// What the schedulers of ports sent for principals in the last minute.
    pub links: LinkPromises,
    /// Groups of the router's threads.
    pub threads: ThreadGroups,
    /// Groups of plugins without a single payer.
    plugins: PluginGroups,
    /// Processor time of the processes in the groups in the last minute.
    process_times: ProcessTimes,
}

impl Principals {
    /// Returns no groups yet, for a router with so many workers.
    pub fn of(workers: usize) -> Self {
        Self { threads: ThreadGroups::of(workers), ..Self::default() }
    }

    /// Returns the queue of each principal whose processes have a group by which the kernel knows their packets, by the
    /// kernel's id of the group.
    pub fn queues_of_packets(&self, model: &Model) -> BTreeMap<u64, QueueId> {
        let queue = |held: &Held| {
            Some((held.group.id_of_packets()?, model.schedulers.queue_of_principal(held.group.name())))
        };
        self.groups.iter().filter_map(queue).collect()
    }

    /// Creates, changes and removes groups, so that each of the principals `wanted` has its group and limits.
    /// If a step fails, undoes the earlier steps. On a machine without usable control groups, principals that
    /// neither name processes nor limit disk transfer or the number of processes have no groups.
    ///
    /// # Errors
    /// A principal needs a control group and the machine has no usable ones, or lacks the controller of a
    /// limited resource, or the kernel refuses a value, or the removal of a group. Nothing has changed then.
    pub fn follow(&mut self, wanted: &[Principal], router: &Router) -> Result<(), ControlError> {
        self.obstacle = None;
        if wanted.is_empty() {
            return self.release();
        }
        if self.router.is_none() && !wanted.iter().any(needs_group) {
            match create_router() {
                Ok(router) => self.router = Some(router),
                Err(obstacle) => {
                    self.obstacle = Some(obstacle);
                    return Ok(());
                }
            }
        }
        let followed = self.change(wanted, router);
        if self.groups.is_empty() {
            // The error of the change counts.
            let _ = self.release();
        }
        followed
    }

    /// Returns the processor time of the processes in the groups, beside what was promised. Groups whose processes
    /// have used none, and that have none now, are left out.
    pub fn process_promises(&self, model: &Model) -> Vec<ProcessPromiseView> {
        let shares = limits::shares(&model.principals, processors());
        let owned = model.principals.iter().zip(shares).filter_map(|(one, (share, is_reserved))| {
            let held = self.groups.iter().find(|held| *held.group.name() == *one.name)?;
            let share = share / f64::from(limits::parts_of(self.plugins.parts(), &one.name));
            self.process_promise(held, vec![one.name.to_string()], Some((share, is_reserved)))
        });
        let payers = payers_of_processes(model);
        let names = |plugin: &str| {
            let ids = payers.get(plugin).into_iter().flatten();
            ids.map(|id| model.principal_ids.name(*id).to_owned()).collect()
        };
        let shared = self
            .plugins
            .groups()
            .filter_map(|(plugin, held)| self.process_promise(held, names(plugin), None));
        owned.chain(shared).collect()
    }

    fn process_promise(
        &self,
        held: &Held,
        principals: Vec<String>,
        share: Option<(f64, bool)>,
    ) -> Option<ProcessPromiseView> {
        let usage = held.group.usage().ok()?;
        let used = usage.cpu.filter(|used| !used.is_zero() || usage.tasks > Some(0))?;
        let promised = share.map(|(promised, _)| promised);
        Some(ProcessPromiseView {
            group: held.group.name().to_owned(),
            principals,
            promised,
            is_reserved: share.is_some_and(|(_, is_reserved)| is_reserved),
            limit: held.limits.cpu_limit.map(|limit| f64::from(limit.ppm()) / 1e4),
            processes: usage.tasks,
            used_seconds: used.as_secs_f64(),
            windows: self.process_times.windows(held.group.name(), promised),
        })
    }

    /// Keeps the processor time of the processes in the groups. Call this about once a second.
    pub fn sample_processes(&mut self, at: Instant) {
        let all = self.groups.iter().chain(self.plugins.groups().map(|(_, held)| held));
        let usages = all.filter_map(|held| Some((held.group.name().to_owned(), held.group.usage().ok()?)));
        self.process_times.sample(at, usages);
    }

    /// Creates the groups of the router's threads, if the router has a group. `policy`: scheduling policy of the
    /// workers.
    pub fn place_threads(&mut self, workers: &Workers, policy: Option<WorkerPolicy>) {
        let workers = WorkerThreads {
            threads: workers.watched().into_iter().map(|one| one.thread).collect(),
            are_realtime: policy.is_some_and(|policy| !matches!(policy, WorkerPolicy::Other(_))),
        };
        self.threads.follow(self.router.as_ref(), &workers);
    }

    /// Moves the running processes that principals name in `process` into their groups, and applies disk limits to
    /// devices that have appeared. Call this about once a second.
    pub fn take_processes(&mut self, principals: &[Principal]) {
        self.named.take(&self.groups, principals);
        if principals.iter().any(|one| one.disk.is_some()) {
            let devices = block_devices();
            self.groups.iter_mut().for_each(|held| held.limit_devices(&devices));
            self.plugins.limit_devices(&devices);
        }
    }

    /// Forgets the groups that a change has removed. Call this when no change is in progress that may be undone.
    pub fn forget_removed(&mut self) {
        self.removed = RemovedGroups::default();
    }

    /// Gives the workers the shares of all principals, and their limits of memory. Call this before the workers
    /// get a binding that a principal pays for, after each change of principals, and about once a second.
    ///
    /// # Errors
    /// A worker doesn't answer, or refuses a setting.
    pub fn tell(&mut self, model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
        let mut steps = Steps::default();
        steps.note(self.shares.follow(model, workers))?;
        // A group that someone has removed has no processes.
        let used = |name: &str| {
            let held = self.groups.iter().find(|held| held.group.name() == name);
            held.and_then(|held| held.group.usage().ok()?.memory).unwrap_or_default()
        };
        steps.note(self.memory.follow(model, used, workers))?;
        steps.end()
    }

    /// Returns the reason why nothing limits the memory of processes of a principal; `None` if its group does.
    fn unlimited(&self, name: &str) -> Option<&ControlError> {
        match self.groups.iter().find(|held| held.group.name() == name) {
            Some(held) => held.unlimited.as_ref(),
            None => self.obstacle.as_ref(),
        }
    }

    fn change(&mut self, wanted: &[Principal], settings: &Router) -> Result<(), ControlError> {
        let processors = self.processors(settings);
        let router = match self.router.take() {
            Some(router) => self.router.insert(router),
            None => self.router.insert(create_router()?),
        };
        // Names of the changed groups, with their earlier limits; `None` for a new group.
        let mut undo: Vec<(&str, Option<Limits>)> = Vec::new();
        let groups = &mut self.groups;
        let has_processes =
            |name: &str| wanted.iter().any(|one| *one.name == *name && !one.process.is_empty());
        let GroupLimits { principals, threads, .. } = limits(wanted, processors, self.plugins.parts());
        let done = principals.into_iter().try_for_each(|(name, limits)| {
            match groups.iter_mut().find(|held| held.group.name() == name) {
                Some(held) if held.limits == limits => Ok(()),
                Some(held) => {
                    held.set(limits, has_processes(name)).map(|before| undo.push((name, Some(before))))
                }
                None => {
                    let mut held = create(router, name)?;
                    held.set(limits, has_processes(name))?;
                    undo.push((name, None));
                    groups.push(held);
                    Ok(())
                }
            }
        });
        let is_gone = |held: &Held| !wanted.iter().any(|one| *one.name == *held.group.name());
        let done = done.and_then(|()| self.removed.remove(groups, router, is_gone));
        if done.is_err() {
            for (name, before) in undo.into_iter().rev() {
                let Some(before) = before else {
                    groups.retain(|held| held.group.name() != name);
                    continue;
                };
                for held in groups.iter_mut().filter(|held| held.group.name() == name) {
                    // The kernel accepted these limits before.
                    let _ = held.set(before, false);
                }
            }
        } else {
            let new = undo.iter().filter(|(_, before)| before.is_none());
            new.for_each(|(name, _)| self.removed.put_back(groups, name));
            self.threads.set_weight(router, threads);
        }
        done
    }

    fn processors(&self, router: &Router) -> Processors {
        Processors { all: processors(), workers: self.threads.workers(), core: router.core_ceiling.ppm() }
    }

    /// Removes the groups of principals, and the router's group with them.
    ///
    /// # Errors
    /// A process can't be moved: the groups are as before.
    fn release(&mut self) -> Result<(), ControlError> {
        if let Some(router) = &self.router {
            self.removed.remove(&mut self.groups, router, |_| true)?;
        }
        self.end().or_else(|error| {
            // The next router of this name takes it over.
            tracing::warn!("the control group of the router is left: {error}");
            Ok(())
        })
    }

    /// Removes all groups. Their processes continue in the group in which the router was started.
    ///
    /// # Errors
    /// A process can't be moved.
    pub fn end(&mut self) -> Result<(), ControlError> {
        self.threads.end();
        self.plugins.end();
        let groups = self.groups.drain(..).map(|mut held| held.group.remove().map(drop));
        let removed = groups.fold(Ok(()), Result::and);
        let router = self.router.take().map_or(Ok(()), |mut router| router.remove());
        removed.and(router).map_err(of_group)
    }

    /// Puts the processes of each plugin into the group of the principal that pays for all bindings of the
    /// plugin. Without such a principal, or without its group, the plugin gets a group of its own. Without a group
    /// of the router, the processes stay where they are.
    /// `None` for `groups`: the router runs no plugin processes.
    ///
    /// If the machine can't limit the memory of a plugin's processes, although their principal has a limit, the
    /// log says so once.
    pub fn place_plugins(&mut self, model: &Model, groups: Option<&ProcessGroups>) {
        let Some(groups) = groups else { return self.divide(model, Default::default()) };
        let limits_memory = model.principals.iter().any(|one| one.memory.is_some());
        let is_needed = !self.groups.is_empty() || limits_memory;
        let payers = if is_needed { payers_of_processes(model) } else { Default::default() };
        let plugins = payers.iter().filter_map(|(plugin, payers)| {
            let payer = payers.first().filter(|_| payers.len() == 1)?;
            Some((*plugin, model.principal_ids.name(*payer)))
        });
        let unlimited = plugins.filter_map(|(plugin, name)| {
            let principal = model.principals.iter().find(|one| *one.name == *name)?;
            let obstacle = principal.memory.and_then(|_| self.unlimited(name))?;
            Some(((name.to_owned(), plugin.to_owned()), obstacle.to_string()))
        });
        let unlimited: BTreeMap<_, _> = unlimited.collect();
        for ((name, plugin), obstacle) in &unlimited {
            if !self.unlimited_plugins.contains_key(&(name.clone(), plugin.clone())) {
                tracing::warn!(
                    principal = name,
                    plugin,
                    "the principal's `memory` doesn't limit the processes of the plugin: {obstacle}"
                );
            }
        }
        self.unlimited_plugins = unlimited;
        let name = |payer: &PrincipalId| model.principal_ids.name(*payer);
        let shared = shared(&payers, |payer| self.held(name(payer)).is_some());
        let (default, wanted) = (PrincipalId::default(), shared.clone());
        self.divide(model, parts(wanted.into_values(), |payer| name(payer).to_owned()));
        let of_default =
            limits(&model.principals, self.processors(&model.router), self.plugins.parts()).default;
        let parts_of = |payers: &BTreeSet<PrincipalId>| PayerParts {
            principals: payers
                .iter()
                .filter(|payer| **payer != default)
                .map(|payer| self.held(name(payer)).map(|held| held.limits).unwrap_or_default())
                .collect(),
            default: payers.contains(&default).then_some(of_default),
        };
        let wanted = shared.into_iter().map(|(plugin, payers)| (plugin, parts_of(payers))).collect();
        self.plugins.follow(self.router.as_ref(), &wanted);
        let group_of = |(plugin, payers): (&&str, &BTreeSet<PrincipalId>)| {
            if wanted.contains_key(plugin) {
                return Some(((*plugin).to_owned(), self.plugins.of(plugin)?));
            }
            let held = self.held(name(payers.first()?))?;
            held.processes.set_patience(limits::slowdown(&held.limits));
            Some(((*plugin).to_owned(), held.processes.clone()))
        };
        groups.set(payers.iter().filter_map(group_of).collect());
    }

    fn held(&self, name: &str) -> Option<&Held> {
        self.groups.iter().find(|held| held.group.name() == name)
    }

    /// Gives each principal's own group its part of the principal's limits, and sets the weight of the router's threads.
    fn divide(&mut self, model: &Model, parts: limits::Parts) {
        self.plugins.set_parts(parts);
        let Some(router) = self.router.as_ref().filter(|_| !self.groups.is_empty()) else { return };
        let processors = self.processors(&model.router);
        let GroupLimits { principals, threads, .. } =
            limits(&model.principals, processors, self.plugins.parts());
        for ((name, limits), principal) in principals.into_iter().zip(&model.principals) {
            let held = self.groups.iter_mut().find(|held| held.group.name() == name);
            held.into_iter().for_each(|held| held.follow(limits, !principal.process.is_empty()));
        }
        self.threads.set_weight(router, threads);
    }

    /// Returns the view of a principal of the model, with its usage. A group that someone else has removed is an
    /// obstacle. `counts`: counters of all principals at the workers.
    ///
    /// # Errors
    /// The usage can't be read.
    pub fn view(
        &self,
        principal: &Principal,
        model: &Model,
        counts: &[(PrincipalId, PrincipalCounts)],
    ) -> Result<PrincipalView, ControlError> {
        let id = model.principal_ids.id(&principal.name);
        let counts = counts.iter().find(|(known, _)| Some(*known) == id);
        let counts = counts.map(|(_, counts)| *counts).unwrap_or_default();
        let drops = PrincipalDropsView::of(&counts.drops, self.links.dropped(&principal.name));
        let held = self.groups.iter().find(|held| *held.group.name() == *principal.name);
        let (usage, obstacle) = match held.map(|held| held.group.usage()).transpose() {
            Err(removed @ GroupError::Removed { .. }) => (None, Some(removed.to_string())),
            usage => (usage.map_err(of_group)?, self.obstacle.as_ref().map(ToString::to_string)),
        };
        let obstacle = obstacle.or_else(|| held.and_then(|held| held.processes.obstacle()));
        let obstacle = obstacle.or_else(|| self.named.obstacle(&principal.name).map(str::to_owned));
        let obstacle = obstacle.or_else(|| held.and_then(|held| held.refused.clone()));
        let mut plugins = self.unlimited_plugins.keys().filter(|(name, _)| *name == *principal.name);
        let obstacle = match (plugins.next(), self.unlimited(&principal.name)) {
            (Some((_, plugin)), Some(reason)) => {
                Some(format!("`memory` doesn't limit the processes of plugin {plugin:?}: {reason}"))
            }
            _ => obstacle,
        };
        let directories = held.into_iter().flat_map(|held| held.group.directories());
        Ok(PrincipalView {
            name: principal.name.to_string(),
            owner: principal.owner.clone(),
            cpu: principal.reserved_cpu(),
            same_as: principal.same_as(Resource::Cpu).map(|other| (**other).to_owned()),
            weight: principal.weight.or(principal.cpu.is_none().then_some(Principal::USUAL_WEIGHT)),
            cpu_limit: principal.cpu_limit,
            deadline: principal.deadline,
            link: principal.link.iter().map(|(port, link)| (port.clone(), LinkView::of(link))).collect(),
            queue: principal.queue,
            memory: principal.memory,
            disk: principal.disk,
            processes: principal.processes,
            process: principal.process.clone(),
            usage: PrincipalUsageView::of(&usage.unwrap_or_default(), &counts, drops),
            group: PrincipalGroupView {
                obstacle,
                directories: directories.map(|path| path.display().to_string()).collect(),
            },
        })
    }
}

/// Whether only a control group can enforce a limit of the principal. Workers limit `memory` themselves, except
/// that of processes.
fn needs_group(principal: &Principal) -> bool {
    let has_limit = principal.disk.is_some() || principal.processes.is_some();
    has_limit || !principal.process.is_empty()
}

/// Returns the principals after a change.
pub(crate) fn after(principals: &[Principal], change: &Change) -> Vec<Principal> {
    let mut after = principals.to_vec();
    match change {
        Change::AddPrincipal(principal) => after.push(principal.clone()),
        Change::RemovePrincipal(principal) | Change::ReleasePrincipal(principal) => {
            after.retain(|one| one.name != principal.name);
        }
        Change::SetPrincipal { to, .. } => {
            after.iter_mut().filter(|one| one.name == to.name).for_each(|one| one.clone_from(to));
        }
        _ => {}
    }
    after
}

/// Returns the number of processors of this machine.
pub(crate) fn processors() -> usize {
    processor_times().map_or(1, |times| times.len().max(1))
}

#[cfg(test)]
mod tests;
