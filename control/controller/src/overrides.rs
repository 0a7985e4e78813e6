//! What is said beside a configuration when a router is started, and holds whatever configuration runs.

use millrace_config::{Config, Device, OnDeath, PollMode, PortKind};

/// What is said beside a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// How workers wait for packets.
    pub mode: Option<PollMode>,
    /// Threads that forward.
    pub workers: Option<usize>,
    /// What happens to packets when the router has died, for ports that don't say.
    pub on_death: Option<OnDeath>,
    /// How kernel devices are used, for ports that don't say.
    pub driver: Option<Device>,
}

impl Overrides {
    /// Puts it into a configuration.
    pub fn put_into(&self, config: &mut Config) {
        let router = &mut config.router;
        router.mode = self.mode.unwrap_or(router.mode);
        router.workers = self.workers.unwrap_or(router.workers);
        router.on_death = self.on_death.or(router.on_death);
        let Some(driver) = self.driver else { return };
        let devices = config.port.iter_mut().filter(|port| port.kind == PortKind::Device);
        devices.filter(|port| port.driver == Device::Auto).for_each(|port| port.driver = driver);
    }
}
