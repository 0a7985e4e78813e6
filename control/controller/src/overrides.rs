//! Overrides: command-line options of the start. They apply to every configuration that the router runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use millrace_config::{Config, ConfigErrors, Device, OnDeath, PollMode, PortKind};

/// Command-line options that override the configuration. `None` or an empty list leaves a setting as
/// configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Poll mode of the workers.
    pub mode: Option<PollMode>,
    /// Number of worker threads.
    pub workers: Option<usize>,
    /// Treatment of packets after the router has died, for ports without their own `on-death`.
    pub on_death: Option<OnDeath>,
    /// Driver of kernel devices, for ports whose driver is `auto`.
    pub driver: Option<Device>,
    /// State directory; `none` for no directory.
    pub state: Option<PathBuf>,
    /// Addresses at which the HTTP API listens over TLS.
    pub listen: Vec<SocketAddr>,
    /// Files of the HTTP API's certificate and of its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Overrides {
    /// Parses a configuration and applies the overrides. Returns the configuration in normal form.
    ///
    /// # Errors
    /// Returns the errors of the text, with their positions. Doesn't check whether the configuration can run.
    pub(crate) fn read(&self, text: &str, origin: &str) -> Result<Config, ConfigErrors> {
        let mut config = Config::parse(text, origin)?;
        self.put_into(&mut config);
        Ok(config.normalized())
    }

    /// Removes the overrides from the running configuration. A value that still equals its override is
    /// replaced by the value of the base configuration, `said`. `on-death` keeps the value of its override,
    /// because a configuration with bindings must set `on-death`.
    pub(crate) fn taken_out(&self, mut runs: Config, said: &Config) -> Config {
        let (router, api) = (&mut runs.router, &mut runs.api);
        if self.mode == Some(router.mode) {
            router.mode = said.router.mode;
        }
        if self.workers == Some(router.workers) {
            router.workers = said.router.workers;
        }
        if self.state.is_some() && self.state == runs.plugins.state {
            runs.plugins.state.clone_from(&said.plugins.state);
        }
        if !self.listen.is_empty() && self.listen == api.listen {
            api.listen.clone_from(&said.api.listen);
        }
        if self.certificate.is_some() && self.certificate == api.certificate.clone().zip(api.key.clone()) {
            api.certificate.clone_from(&said.api.certificate);
            api.key.clone_from(&said.api.key);
        }
        for port in runs.port.iter_mut().filter(|port| Some(port.driver) == self.driver) {
            if let Some(own) = said.port.iter().find(|own| own.name == port.name) {
                port.driver = own.driver;
            }
        }
        runs
    }

    /// Applies the overrides to a configuration.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_not_saved_into_the_file() {
        let text = "[router]\nworkers = 2\n[[port]]\nname = \"a\"\ndevice = \"a\"\n\
                    [[port]]\nname = \"b\"\ndevice = \"b\"\ndriver = \"af_packet\"\n";
        let said = Config::parse(text, "f").unwrap().normalized();
        let overrides = Overrides {
            mode: Some(PollMode::Interrupt),
            workers: Some(4),
            on_death: Some(OnDeath::Drop),
            driver: Some(Device::AfPacket),
            state: Some("none".into()),
            listen: vec!["127.0.0.1:8443".parse().unwrap()],
            certificate: Some(("/c".into(), "/k".into())),
        };
        let runs = overrides.read(text, "f").unwrap();
        assert_ne!(runs, said);
        let saved = overrides.taken_out(runs.clone(), &said);
        let router = millrace_config::Router { on_death: Some(OnDeath::Drop), ..said.router.clone() };
        assert_eq!(saved, Config { router, ..said.clone() });
        assert_eq!(overrides.read(&saved.to_text().unwrap(), "g").unwrap(), runs);
        // A value that a command has changed since the start is kept.
        let mut other = runs.clone();
        other.router.mode = PollMode::Poll;
        assert_eq!(overrides.taken_out(other, &said).router.mode, PollMode::Poll);
        assert_eq!(Overrides::default().taken_out(runs.clone(), &said), runs);
    }
}
