//! Control group of a principal, or of a plugin, with its limits.

use std::sync::Arc;

use millrace_plugin_process::ProcessGroup;
use millrace_principals::{Controller, Group, GroupError, Limits, Machine, Member, Members, RouterGroup};

use crate::ControlError;

/// Largest number of routers of one process, such as a test program.
const ROUTERS: u32 = 1_000;

/// Group of a principal with its limits.
#[derive(Debug)]
pub(super) struct Held {
    pub group: Group,
    pub limits: Limits,
    /// Access of plugin processes to the group.
    pub processes: Arc<ProcessGroup>,
    /// Reason why the group doesn't limit the memory of processes, although the principal limits it.
    pub unlimited: Option<ControlError>,
    /// Refusal of limits that the group should have.
    pub refused: Option<String>,
}

impl Held {
    /// Sets the limits of the group if they differ. Logs a refusal once, and keeps it: the earlier limits hold.
    pub fn follow(&mut self, limits: Limits, has_processes: bool) {
        if self.limits == limits {
            self.refused = None;
            return;
        }
        let refused = self.set(limits, has_processes).err().map(|error| error.to_string());
        self.note(refused);
    }

    /// Applies the disk limit to devices that have appeared. Logs a refusal once, and keeps it.
    pub fn limit_devices(&mut self, devices: &[String]) {
        if let Err(error) = self.group.limit_devices(devices) {
            self.note(Some(error.to_string()));
        }
    }

    fn note(&mut self, refused: Option<String>) {
        if let Some(error) = refused.as_ref().filter(|error| self.refused.as_ref() != Some(error)) {
            tracing::warn!(group = self.group.name(), "the group keeps its earlier limits: {error}");
        }
        self.refused = refused;
    }

    /// Removes the group, and returns its processes.
    ///
    /// # Errors
    /// A process can't be moved. The group is as before.
    pub fn remove(&mut self) -> Result<Vec<Member>, ControlError> {
        self.group.remove().map_err(|error| {
            // The directories may be new ones.
            if let Ok(processes) = open(&self.group) {
                self.processes = processes;
            }
            of_group(error)
        })
    }

    /// Sets the limits of the group, and returns the earlier ones. On a machine that can't limit the memory of
    /// processes, the other limits apply, unless the principal names processes (`has_processes`). A machine without
    /// weights divides the processors among processes by itself: the share holds at the workers nevertheless.
    pub fn set(&mut self, limits: Limits, has_processes: bool) -> Result<Limits, ControlError> {
        let title = titled(self.group.name());
        let of_principal = |error| of_group(error).of(&title);
        let (mut possible, mut without_memory) = (limits, None);
        loop {
            match self.group.set(&possible) {
                Ok(()) => break,
                Err(error @ GroupError::Unavailable { controller: Controller::Memory, .. })
                    if !has_processes && possible.memory.is_some() =>
                {
                    possible.memory = None;
                    without_memory = Some(error);
                }
                Err(GroupError::Unavailable { controller: Controller::Cpu, .. })
                    if possible.cpu_weight.is_some() =>
                {
                    possible.cpu_weight = None;
                }
                Err(error) => return Err(of_principal(error)),
            }
        }
        self.unlimited = without_memory.map(of_group);
        Ok(std::mem::replace(&mut self.limits, limits))
    }
}

/// Creates the group of this router. Its name is the process id, with a number if this process has several
/// routers.
pub(super) fn create_router() -> Result<RouterGroup, ControlError> {
    let machine = Machine::detect().map_err(of_group)?;
    let id = std::process::id();
    let mut number = 1;
    loop {
        let name = if number == 1 { id.to_string() } else { format!("{id}-{number}") };
        match RouterGroup::create(&machine, &name) {
            Err(GroupError::InUse { .. }) if number < ROUTERS => number += 1,
            created => return created.map_err(|error| of_group(error).of("principals")),
        }
    }
}

/// Creates the group of a principal or plugin in the router's group.
///
/// # Errors
/// The name is taken, or the machine refuses the group.
pub(super) fn create(router: &RouterGroup, name: &str) -> Result<Held, ControlError> {
    let group = router.create_group(name, Members::Processes);
    let group = group.map_err(|error| of_group(error).of(&titled(name)))?;
    let processes = open(&group)?;
    Ok(Held { group, limits: Limits::default(), processes, unlimited: None, refused: None })
}

/// Opens the files by which plugin processes join and leave a group.
fn open(group: &Group) -> Result<Arc<ProcessGroup>, ControlError> {
    let join = group.join_files().map_err(|error| of_group(error).of(&titled(group.name())))?;
    let opened = ProcessGroup::open(&join, &group.leave_files());
    opened
        .map(Arc::new)
        .map_err(|(path, error)| ControlError::system(&format!("open {}", path.display()), error))
}

/// Returns the title of a group in errors.
fn titled(name: &str) -> String {
    format!("principal {name:?}")
}

/// Returns the error of a control group as an error of control. A machine that lacks something conflicts with
/// the request; its text names obstacle and remedy.
pub(super) fn of_group(error: GroupError) -> ControlError {
    match error {
        GroupError::File { .. } | GroupError::NotEmpty { .. } | GroupError::Removed { .. } => {
            ControlError::refused(error)
        }
        other => ControlError::conflict(other.to_string()),
    }
}
