//! What is said beside a configuration when a router is started, and holds whatever configuration runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use millrace_config::{Config, ConfigErrors, Device, OnDeath, PollMode, PortKind};

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
    /// Where is remembered what has to outlive the router; `none`: nowhere.
    pub state: Option<PathBuf>,
    /// Where the HTTP interface is served over TLS, instead of where the configuration says; empty: there.
    pub listen: Vec<SocketAddr>,
    /// The interface's certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Overrides {
    /// The configuration that a text is with this beside it, in the form that is compared.
    ///
    /// # Errors
    /// What is wrong with the text, and where. Whether it can run isn't looked at.
    pub(crate) fn read(&self, text: &str, origin: &str) -> Result<Config, ConfigErrors> {
        let mut config = Config::parse(text, origin)?;
        self.put_into(&mut config);
        Ok(config.normalized())
    }

    /// Puts it into a configuration.
    pub fn put_into(&self, config: &mut Config) {
        let router = &mut config.router;
        router.mode = self.mode.unwrap_or(router.mode);
        router.workers = self.workers.unwrap_or(router.workers);
        router.on_death = self.on_death.or(router.on_death);
        if self.state.is_some() {
            config.plugins.state.clone_from(&self.state);
        }
        if !self.listen.is_empty() {
            config.api.listen.clone_from(&self.listen);
        }
        if let Some((certificate, key)) = self.certificate.clone() {
            (config.api.certificate, config.api.key) = (Some(certificate), Some(key));
        }
        let Some(driver) = self.driver else { return };
        let devices = config.port.iter_mut().filter(|port| port.kind == PortKind::Device);
        devices.filter(|port| port.driver == Device::Auto).for_each(|port| port.driver = driver);
    }
}
