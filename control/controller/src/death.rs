//! What becomes of packets when the router has died, and whether somebody decided it.

use std::collections::HashMap;

use millrace_config::{Config, OnDeath};
use millrace_units::PortId;

use crate::ControlError;
use crate::model::Model;
use crate::view::OnDeathView;

/// Additions that hold only while the router lives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// Bindings of instances.
    Bindings,
    /// Filters.
    Filters,
}

/// What holds for each port of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    ports: HashMap<PortId, OnDeath>,
    /// A port for which nobody said it.
    silent: Option<String>,
}

impl Death {
    /// As the configuration of a start says, options of `run` included.
    pub fn of(config: &Config, model: &Model) -> Self {
        let kernel_ports = || model.ports.iter().filter(|plan| plan.is_kernel());
        let silent = kernel_ports().find(|plan| plan.config.on_death.is_none());
        Self {
            ports: kernel_ports().map(|plan| (plan.id, config.on_death(&plan.config))).collect(),
            silent: silent
                .filter(|_| config.router.on_death.is_none())
                .map(|plan| plan.settings.name.to_string()),
        }
    }

    /// What holds for a port.
    pub fn of_port(&self, port: PortId) -> Option<OnDeath> {
        self.ports.get(&port).copied()
    }

    /// Somebody says that what holds is meant.
    pub fn confirm(&mut self) {
        self.silent = None;
    }

    /// Refuses bindings or filters, as `need` says, while nobody said whether the kernel may forward packets when the router has
    /// died: a file with any is asked the same.
    ///
    /// # Errors
    /// Which port nothing is said for, and how to say it.
    pub fn refuse_silent(&self, need: Need) -> Result<(), ControlError> {
        let need = match need {
            Need::Bindings => "bindings need",
            Need::Filters => "filters need",
        };
        match &self.silent {
            Some(port) => Err(ControlError::Conflict(format!(
                "{need} a word on what happens to port {port:?} when the router dies, for the kernel knows none of them: \
                 `millrace router set on-death=kernel` lets the kernel forward then what they refuse; \
                 `millrace run --on-death drop` (or on-death = \"drop\" in [router]) lets nothing through until a router runs again"
            ))),
            None => Ok(()),
        }
    }

    /// As people are shown it; nothing where no port is the kernel's.
    pub fn view(&self) -> Option<OnDeathView> {
        let is_any = |on_death| self.ports.values().any(|one| *one == on_death);
        let packets = match (is_any(OnDeath::Kernel), is_any(OnDeath::Drop)) {
            (false, false) => return None,
            (true, false) => "the kernel forwards; filters and instances do not hold",
            (false, true) => "dropped until a router runs again",
            (true, true) => "by port, see `show ports`",
        };
        Some(OnDeathView { packets, is_said: self.silent.is_none() })
    }
}
