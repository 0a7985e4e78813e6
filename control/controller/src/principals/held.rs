//! Control group of a principal, or of a plugin, with its limits.

use std::sync::Arc;

use millrace_plugin_process::ProcessGroup;
use millrace_principals::{Controller, Group, GroupError, Limits, Members, RouterGroup};

use crate::ControlError;

/// Group of a principal with its limits.
#[derive(Debug)]
pub(super) struct Held {
    pub group: Group,
    pub limits: Limits,
    /// Access of plugin processes to the group.
    pub processes: Arc<ProcessGroup>,
    /// Reason why the group doesn't limit the memory of processes, although the principal limits it.
    pub unlimited: Option<ControlError>,
}

impl Held {
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

/// Creates the group of a principal or plugin in the router's group.
///
/// # Errors
/// The name is taken, or the machine refuses the group.
pub(super) fn create(router: &RouterGroup, name: &str) -> Result<Held, ControlError> {
    let group = router.create_group(name, Members::Processes);
    let of_principal = |error| of_group(error).of(&titled(name));
    let group = group.map_err(of_principal)?;
    let join = group.join_files().map_err(of_principal)?;
    let processes = ProcessGroup::open(&join, &group.leave_files())
        .map_err(|(path, error)| ControlError::system(&format!("open {}", path.display()), error))?;
    Ok(Held { group, limits: Limits::default(), processes: Arc::new(processes), unlimited: None })
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
