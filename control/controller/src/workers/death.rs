//! `on-death`: treatment of packets after the router has died, and whether it is configured explicitly.

use std::collections::HashMap;

use millrace_config::{Config, OnDeath};
use millrace_units::PortId;

use crate::ControlError;
use crate::model::Model;
use crate::view::OnDeathView;

/// Kind of changes that need an explicit `on-death`, because the changes have no effect on packets after the
/// router has died.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    Bindings,
    Filters,
}

/// `on-death` of each kernel port.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    ports: HashMap<PortId, OnDeath>,
    /// Kernel port whose `on-death` is not configured explicitly. `None` if there is none, or after a call of
    /// [`confirm`](Death::confirm).
    silent: Option<String>,
}

impl Death {
    /// Reads the `on-death` settings from the configuration of the start. The options of `run` must already
    /// be applied to it.
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

    pub fn of_port(&self, port: PortId) -> Option<OnDeath> {
        self.ports.get(&port).copied()
    }

    /// Treats the current settings as explicitly configured from now on.
    pub fn confirm(&mut self) {
        self.silent = None;
    }

    /// Refuses changes of the kind `need` while a kernel port has no explicit `on-death`.
    pub fn refuse_silent(&self, need: Need) -> Result<(), ControlError> {
        let need = match need {
            Need::Bindings => "bindings need",
            Need::Filters => "filters need",
        };
        match &self.silent {
            Some(port) => Err(ControlError::conflict(format!(
                "{need} on-death for port {port:?}, because the kernel ignores them after the router's death: run `millrace router set \
                 on-death=kernel` (then the kernel also forwards packets that they refuse), or start with `millrace run --on-death drop` \
                 or on-death = \"drop\" in [router] (then packets are dropped until a router runs again)"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the view of the settings; `None` if no port is a kernel port.
    pub fn view(&self) -> Option<OnDeathView> {
        let is_any = |on_death| self.ports.values().any(|one| *one == on_death);
        let packets = match (is_any(OnDeath::Kernel), is_any(OnDeath::Drop)) {
            (false, false) => return None,
            (true, false) => "the kernel forwards; filters and instances do not hold",
            (false, true) => "dropped until a router runs again",
            (true, true) => "by port, see `show ports`",
        };
        Some(OnDeathView { packets, is_explicit: self.silent.is_none() })
    }
}
