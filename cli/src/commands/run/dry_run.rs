//! `run --dry-run`: prints the changes that a start would make, and the obstacles to it.

use std::path::Path;

use millrace_api::{ApiError, Listener, Remote, Unservable};
use millrace_config::{Config, PortKind, Step};

use crate::arguments::Run;
use crate::commands::doctor::missing_permissions;
use crate::output::{Failure, show};

/// Prints the planned changes of a start. Nothing is changed.
///
/// # Errors
/// The reason why a start would fail, as far as a dry run can detect it.
pub async fn dry_run(config: &Config, arguments: &Run, socket: &Path, json: bool) -> Result<(), Failure> {
    let mut plan = millrace_controller::plan(config).await.map_err(Failure::from)?;
    plan.notes.extend(interface(config, arguments, socket)?);
    let on_devices = config.port.iter().any(|port| matches!(port.kind, PortKind::Device | PortKind::Tap));
    if on_devices && let Some(missing) = missing_permissions() {
        plan.notes
            .push(format!("ports on devices need permissions that this process doesn't have: {missing}"));
    }
    show(&plan, json, || plan.to_string());
    Ok(())
}

/// Checks whether the API could be served. A router that already runs at the same socket is no error: the
/// user will stop this router before the real start.
fn interface(config: &Config, arguments: &Run, socket: &Path) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    let running = match Listener::look(socket) {
        Ok(()) => None,
        Err(error @ ApiError::Occupied { .. }) => Some(error),
        Err(error) => return Err(Failure::new(error)),
    };
    let placed = |key, error: &ApiError| place(config, arguments, key, error);
    let found = Remote::check(&config.api).map_err(|Unservable { key, error }| placed(key, &error))?;
    for error in found {
        match error {
            ApiError::Address { .. } if running.is_none() => return Err(placed("listen", &error)),
            other => notes.push(other.to_string()),
        }
    }
    notes.extend(running.map(|error| format!("a start would fail: {error}")));
    Ok(notes)
}

/// Returns the failure for an invalid API setting. It names the place of the setting: a command-line option,
/// or file and line.
fn place(config: &Config, arguments: &Run, key: &str, error: &ApiError) -> Failure {
    let option = match key {
        "listen" => (!arguments.listen.is_empty()).then_some("--listen"),
        "key" => arguments.key.is_some().then_some("--key"),
        _ => arguments.certificate.is_some().then_some("--certificate"),
    };
    if let Some(option) = option {
        return Failure::new(format!("{option}: {error}"));
    }
    let problem = format!("api.{key}: {error}");
    match config.error_at(&[Step::Key("api"), Step::Key(key)], problem.clone().into()) {
        Some(placed) => Failure::from(placed),
        None => Failure::new(problem),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    #[test]
    fn addresses_in_use_are_reported_with_their_origin() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let busy = listening.local_addr().unwrap();
        let text = format!("[router]\n[api]\nlisten = [\"{busy}\"]\n");
        let config = Config::parse(&text, "router.toml").unwrap();
        let nobody = std::env::temp_dir().join(format!("millrace-nobody-{}.sock", std::process::id()));
        for (words, told) in [(&[][..], "router.toml:3"), (&["--listen", "127.0.0.1:1"], "--listen: ")] {
            let all = [&["millrace", "run", "--config", "router.toml"], words].concat();
            let Command::Run(run) = Arguments::try_parse_from(all).unwrap().command else { panic!() };
            let refused = interface(&config, &run, &nobody).unwrap_err().message;
            assert!(refused.contains(told) && refused.contains(&busy.to_string()), "{refused}");
            // With a router at the same socket, occupied addresses are no error.
            let router = Listener::bind(&nobody).unwrap();
            let notes = interface(&config, &run, &nobody).unwrap();
            assert!(notes.len() == 2 && notes[1].contains("already listens"), "{notes:?}");
            drop(router);
        }
    }
}
