//! The command `run`: the daemon from start to end.

mod boot;
mod descriptors;
mod dry_run;
mod files;
mod huge_pages;
mod ready;
mod service_manager;
mod signals;

use std::collections::BTreeMap;
use std::path::Path;

use millrace_api::{Entrances, Listener, Remote};
use millrace_config::{Config, Device, OnDeath, PollMode, PortKind, Role, SharedObjects};
use millrace_confine::Privileges;
use millrace_controller::{Overrides, Router, StartOptions};
use millrace_repository::StateLock;
use tokio::sync::oneshot;

use crate::arguments::{self, Run};
use crate::commands::doctor::missing_permissions;
use crate::output::Failure;
use crate::{log, memory};
use boot::{Boot, Fallbacks, boot, name, own_state, start_from};
use ready::Ready;
use service_manager::ServiceManager;
use signals::Signals;

/// Runs a router until SIGTERM or SIGINT; with `--dry-run`, shows the planned changes only.
pub fn run(arguments: &Run, socket: &Path, json: bool) -> Result<(), Failure> {
    if !arguments.dry_run {
        memory::share();
        huge_pages::prefer();
    }
    // Take over the caller's descriptor before opening any file: if the caller passed the number of a closed
    // descriptor, a new file could get that number.
    let ready = arguments.ready_fd.map(Ready::new).transpose()?;
    let (first, fallbacks) = boot(arguments, socket)?;
    // The launcher starts programs for the confined threads, which may not start programs themselves.
    millrace_compiler::begin_launcher().map_err(Failure::new)?;
    if !arguments.dry_run {
        begin_processes(&first.config)?;
    }
    let runtime = files::runtime(|| Privileges::Files.leave_to_thread())?;
    if arguments.dry_run {
        let mut config = first.config;
        let overrides = overrides_of(&config, arguments, socket);
        memory::check_group(&config, &overrides)?;
        overrides.put_into(&mut config);
        return runtime.block_on(dry_run::dry_run(&config, arguments, socket, json));
    }
    let mut ports = first.config.port.iter();
    let kernel_devices = ports.any(|port| matches!(port.kind, PortKind::Device | PortKind::Tap));
    if kernel_devices && let Some(missing) = missing_permissions() {
        return Err(Failure::new(format!(
            "ports on devices need permissions that this process doesn't have: {missing}"
        )));
    }
    log::start()?;
    descriptors::allow();
    runtime.block_on(daemon((first, fallbacks), arguments, socket, ready))
}

/// Starts the keeper of plugin processes, if the configuration allows shared objects.
fn begin_processes(config: &Config) -> Result<(), Failure> {
    if config.plugins.shared_objects == SharedObjects::Allow {
        millrace_plugin_process::ProcessKeeper::of_router().map_err(Failure::new)?;
    }
    Ok(())
}

/// Exit code if the watchdog ends the router because a plugin call did not return.
const HUNG: i32 = 3;

/// Ends the process at once. Skips exit handlers, since they may hang, too.
fn end_at_once() {
    // SAFETY: `_exit` ends the process without running further code of it.
    unsafe { libc::_exit(HUNG) }
}

/// Returns the settings on the command line, and the router's state directory, which override a configuration.
fn overrides_of(config: &Config, arguments: &Run, socket: &Path) -> Overrides {
    let state = own_state(arguments.state.as_deref(), config, socket);
    Overrides { state, ..overrides(arguments) }
}

/// Returns the settings on the command line, which override the configuration.
fn overrides(arguments: &Run) -> Overrides {
    Overrides {
        mode: arguments.mode.map(|mode| match mode {
            arguments::Mode::Poll => PollMode::Poll,
            arguments::Mode::Interrupt => PollMode::Interrupt,
            arguments::Mode::Adaptive => PollMode::Adaptive,
        }),
        workers: arguments.workers.map(usize::from),
        on_death: arguments.on_death.map(|on_death| match on_death {
            arguments::OnDeath::Kernel => OnDeath::Kernel,
            arguments::OnDeath::Drop => OnDeath::Drop,
        }),
        state: arguments.state.clone(),
        driver: arguments.driver.map(|driver| match driver {
            arguments::Driver::Auto => Device::Auto,
            arguments::Driver::AfXdp => Device::AfXdp,
            arguments::Driver::AfXdpGeneric => Device::AfXdpGeneric,
            arguments::Driver::AfPacket => Device::AfPacket,
        }),
        listen: arguments.listen.clone(),
        certificate: arguments.certificate.clone().zip(arguments.key.clone()),
    }
}

/// Router that forwards, with what it holds besides the kernel's devices.
struct Started {
    router: Router,
    groups: BTreeMap<String, Role>,
    remote: Option<Remote>,
    /// Lock of the state directory.
    state: Option<StateLock>,
}

/// Starts a router from a configuration.
///
/// # Errors
/// The router can't start from this configuration. Nothing is left of the start.
async fn start(boot: Boot, arguments: &Run, socket: &Path) -> Result<Started, Failure> {
    let Boot { config, source } = boot;
    begin_processes(&config)?;
    let overrides = overrides_of(&config, arguments, socket);
    memory::check_group(&config, &overrides)?;
    let state = take_state(&config, &overrides, socket)?;
    let groups = config.api.groups.clone();
    let remote = remote(&config, &overrides)?;
    let ignore_kernel_policy = arguments.ignore_kernel_policy || config.router.ignore_kernel_policy;
    let (end, router) = (Some(end_at_once as fn()), Some(name(socket)));
    let options = StartOptions { ignore_kernel_policy, end, overrides, source, router };
    let router = millrace_controller::start(config, options).await.map_err(Failure::from)?;
    Ok(Started { router, groups, remote, state })
}

async fn daemon(
    (first, fallbacks): (Boot, Fallbacks),
    arguments: &Run,
    socket: &Path,
    ready: Option<Ready>,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    // Bind the socket before any device is changed: if another router owns it, this start must change
    // nothing.
    let local = Listener::bind(socket).map_err(Failure::new)?;
    let begin = async |boot| start(boot, arguments, socket).await;
    let started = tokio::select! {
        started = start_from(first, fallbacks, begin) => started?,
        signal = signals.first() => {
            tracing::info!("stopped by {signal} before the router forwarded packets");
            return Ok(());
        }
    };
    let Started { router, groups, remote, state: _state } = started;
    let entrances = Entrances { local, groups, remote };
    tracing::info!("listening at {}", socket.display());
    let server = match millrace_api::start(entrances, router.clone()) {
        Ok(server) => server,
        Err(error) => {
            router.shutdown().await.map_err(Failure::new)?;
            return Err(Failure::new(error));
        }
    };
    // Start a first file thread now, while memory is available.
    tokio::task::spawn_blocking(|| ()).await.map_err(Failure::new)?;
    router.guard_memory(memory::keep_back());
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    if let Some(ready) = ready {
        ready.announce();
    }
    let manager = ServiceManager::from_environment();
    manager.ready();
    let stopping = || {
        manager.stopping();
        drop(stop);
    };
    let result = tokio::select! {
        result = forward(&router, &mut signals, stopping) => result,
        never = manager.keep_up(&router) => match never {},
    };
    let served = served.await;
    router.flush_audit().await;
    served.map_err(|error| Failure::new(format!("the API server failed: {error}")))?;
    if result.is_ok() {
        tracing::info!("stopped");
    }
    result
}

/// Locks the router's state directory until the process ends.
fn take_state(config: &Config, overrides: &Overrides, socket: &Path) -> Result<Option<StateLock>, Failure> {
    let mut config = config.clone();
    overrides.put_into(&mut config);
    let Some(directory) = millrace_controller::state_directory(&config) else { return Ok(None) };
    StateLock::take(&directory, socket).map_err(Failure::new)
}

/// Opens the API listeners for remote clients, at the TLS addresses of configuration and command line.
fn remote(config: &Config, overrides: &Overrides) -> Result<Option<Remote>, Failure> {
    let mut config = config.clone();
    overrides.put_into(&mut config);
    let state = millrace_controller::state_directory(&config);
    Remote::open(&config.api, state).map_err(Failure::new)
}

/// Runs the router until a signal, then calls `stopping` and shuts the router down.
async fn forward(router: &Router, signals: &mut Signals, stopping: impl FnOnce()) -> Result<(), Failure> {
    let mut running = std::pin::pin!(router.run());
    let ended = tokio::select! {
        ended = &mut running => Some(ended),
        signal = signals.first() => {
            tracing::info!("{signal}: draining; a second signal ends the router at once");
            None
        }
    };
    stopping();
    let (ended, stopped) = match ended {
        Some(ended) => (ended, router.shutdown().await),
        None => tokio::join!(running, router.shutdown()),
    };
    ended.and(stopped).map_err(Failure::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command, DEFAULT_SOCKET};
    use clap::Parser;

    fn parsed(line: &str) -> Result<Config, Failure> {
        let words = ["millrace", "run"].into_iter().chain(line.split(' '));
        match Arguments::try_parse_from(words).unwrap().command {
            Command::Run(run) => boot(&run, Path::new(DEFAULT_SOCKET)).map(|(boot, _)| {
                let mut config = boot.config;
                overrides(&run).put_into(&mut config);
                config
            }),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn where_no_revision_is_the_directory_is_named() {
        let folder = std::env::temp_dir().join(format!("millrace-no-revision-{}", std::process::id()));
        let folder = folder.display();
        for line in [
            format!("--last-good --state {folder}"),
            format!("--config /nowhere.toml --last-good --state {folder}"),
        ] {
            let refused = parsed(&line).unwrap_err().message;
            assert!(refused.contains(&format!("no revision to start from in {folder}")), "{refused}");
        }
        assert_eq!(parsed("--port eth1 --state none").unwrap().plugins.state, Some("none".into()));
    }

    #[test]
    fn devices_become_ports_of_the_same_name() {
        let config =
            parsed("--port eth1 --port eth0.10 --mode poll --on-death drop --driver af_packet").unwrap();
        let ports: Vec<_> =
            config.port.iter().map(|port| (&*port.name, port.device.as_deref(), port.driver)).collect();
        let expected =
            [("eth1", Some("eth1"), Device::AfPacket), ("eth0.10", Some("eth0.10"), Device::AfPacket)];
        assert_eq!(ports, expected);
        assert_eq!((config.router.mode, config.router.on_death), (PollMode::Poll, Some(OnDeath::Drop)));
    }

    #[test]
    fn wrong_devices_are_wrong_usage() {
        for line in ["--port a --port a", "--port a\"b", "--port a\u{7f}b"] {
            let failure = parsed(line).unwrap_err();
            assert_eq!(failure.code, 2, "{}", failure.message);
            assert!(!failure.message.contains('\n'), "{}", failure.message);
        }
    }
}
