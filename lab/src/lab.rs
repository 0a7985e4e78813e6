//! Running labs: construction, use and removal.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use nix::unistd::Uid;

use crate::build::{Builder, Options};
use crate::error::LabError;
use crate::ip_command::ip;
use crate::namespace;
use crate::process::{Process, end_all};
use crate::state::{NodeState, Records, State};
use crate::topology::LabFile;

/// Running lab. Dropping it removes the lab, even during a panic, unless [`Lab::keep`] was called.
#[derive(Debug)]
pub struct Lab {
    state: State,
    records: Records,
    children: Vec<Child>,
    is_ours: bool,
}

impl Lab {
    /// Builds a lab and waits until its routers forward.
    ///
    /// # Errors
    /// A step fails. All earlier steps are undone, and the error names the failed step.
    pub fn up(file: &LabFile, options: &Options) -> Result<Self, LabError> {
        require_root()?;
        let records = Records::new(&options.runtime_directory);
        let state = State { name: file.name.clone(), file: file.path.clone(), nodes: Vec::new() };
        records.create(&state)?;
        let mut lab = Self { state, records, children: Vec::new(), is_ours: true };
        let built = Builder {
            file,
            options,
            records: &lab.records,
            state: &mut lab.state,
            children: &mut lab.children,
        }
        .build();
        match built {
            Ok(()) => Ok(lab),
            Err(first) => Err(match lab.undo() {
                Ok(_) => first,
                Err(undo) => LabError::Undo { first: Box::new(first), undo: Box::new(undo) },
            }),
        }
    }

    /// Keeps the lab running after this value is dropped; [`down`] removes the lab.
    pub fn keep(mut self) -> State {
        self.is_ours = false;
        self.state.clone()
    }

    /// Removes the lab.
    ///
    /// # Errors
    /// A part of the lab can't be removed. The record then stays, so that [`down`] can try again.
    pub fn down(mut self) -> Result<Removed, LabError> {
        self.undo()
    }

    /// Returns the record of the lab.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the record of a node: its namespace, devices, process and socket.
    ///
    /// # Errors
    /// No such node exists.
    pub fn node(&self, name: &str) -> Result<&NodeState, LabError> {
        self.state.node(name)
    }

    /// Returns a command that runs at a node. The lab's removal also ends the processes that the command
    /// starts.
    ///
    /// # Errors
    /// No such node exists.
    pub fn command(&self, node: &str, program: &str) -> Result<Command, LabError> {
        Ok(command_at(self.state.node(node)?, program))
    }

    fn undo(&mut self) -> Result<Removed, LabError> {
        self.is_ours = false;
        let result = undo(&self.state, &self.records);
        for child in &mut self.children {
            // The process has ended; `try_wait` removes it from the process table.
            let _ = child.try_wait();
        }
        result
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.is_ours {
            // Ignore errors, which a drop can't report. If a part could not be removed, the record stays.
            let _ = self.undo();
        }
    }
}

/// Removes a lab that any process has built, and ends all processes in its namespaces. Returns `None` if no
/// such lab exists.
///
/// # Errors
/// A part of the lab can't be removed.
pub fn down(name: &str, runtime_directory: &Path) -> Result<Option<Removed>, LabError> {
    let records = Records::new(runtime_directory);
    let Some(state) = records.load(name)? else { return Ok(None) };
    require_root()?;
    undo(&state, &records).map(Some)
}

/// Returns all running labs, sorted by name.
///
/// # Errors
/// The records can't be read.
pub fn list(runtime_directory: &Path) -> Result<Vec<State>, LabError> {
    let records = Records::new(runtime_directory);
    let states = records.names()?.into_iter().map(|name| records.load(&name));
    Ok(states.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Runs a command at a node of a running lab, with the caller's input and output, and waits for its end.
///
/// # Errors
/// No such lab or node exists, or the command can't be started.
pub fn exec(
    lab: &str,
    node: &str,
    command: &[String],
    runtime_directory: &Path,
) -> Result<ExitStatus, LabError> {
    let state = Records::new(runtime_directory).load(lab)?.ok_or_else(|| LabError::NotUp(lab.to_owned()))?;
    let node = state.node(node)?;
    require_root()?;
    let Some((program, arguments)) = command.split_first() else {
        let message = "give a command after --".to_owned();
        return Err(LabError::Command { command: format!("exec {}", node.name), stderr: message });
    };
    let started = command_at(node, program).args(arguments).status();
    started.map_err(|source| LabError::Program { program: program.clone(), source })
}

fn command_at(node: &NodeState, program: &str) -> Command {
    // Use `nsenter`, since with `ip netns exec` /sys lacks the BPF file system.
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace::path(&node.namespace).display())).arg("--").arg(program);
    command
}

fn require_root() -> Result<(), LabError> {
    if Uid::effective().is_root() {
        return Ok(());
    }
    let words: Vec<String> = std::env::args().collect();
    Err(LabError::NotRoot(words.join(" ")))
}

/// Result of removing a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Name and process id of each process that still ran in the lab's namespaces after its routers and
    /// routing daemons were stopped.
    pub ended: Vec<(String, i32)>,
}

/// Removes as many recorded parts as possible. Deletes the record if nothing is left. Returns the first
/// failure.
fn undo(state: &State, records: &Records) -> Result<Removed, LabError> {
    let ours = |node: &NodeState| node.daemons.iter().rev().copied().chain(node.process).collect::<Vec<_>>();
    let processes = state.nodes.iter().rev().flat_map(ours).map(Process::stop);
    let stopped: Result<(), LabError> = first_failure(processes);
    let mut ended = Vec::new();
    for node in state.nodes.iter().rev() {
        ended.extend(end_all(&namespace::path(&node.namespace)));
    }
    let removed = first_failure(state.nodes.iter().rev().map(remove_node));
    stopped.and(removed)?;
    records.remove(&state.name)?;
    Ok(Removed { ended })
}

/// Runs through all results, and returns the first failure.
fn first_failure(results: impl Iterator<Item = Result<(), LabError>>) -> Result<(), LabError> {
    let failures: Vec<LabError> = results.filter_map(Result::err).collect();
    failures.into_iter().next().map_or(Ok(()), Err)
}

fn remove_node(node: &NodeState) -> Result<(), LabError> {
    if !namespace::path(&node.namespace).exists() {
        return Ok(());
    }
    // Remove the devices first: a namespace ends only with its last process, and its devices some time later.
    // Ignore errors: a device may have ended with its peer, or may not exist yet.
    for device in &node.devices {
        let _ = ip(&["-n", &node.namespace, "link", "delete", &device.name]);
    }
    ip(&["netns", "delete", &node.namespace])
}
