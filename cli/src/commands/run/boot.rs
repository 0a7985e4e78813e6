//! Source of the configuration at the start: a file, named devices, or the last good revision.

use std::path::{Path, PathBuf};

use millrace_config::{Boot as From, Config};
use millrace_controller::{Revision, Source, Store, utc};
use millrace_repository::{state_directory_at, usual_state_directory};
use millrace_units::Message;

use crate::arguments::{DEFAULT_SOCKET, Run};
use crate::output::Failure;

/// Configuration with which the router starts, and its origin.
#[derive(Debug)]
pub struct Boot {
    /// Configuration of the router.
    pub config: Config,
    /// Origin of the configuration; `None` for devices named with `--port`.
    pub source: Option<Source>,
}

/// Error without ports and without a configuration.
const NOTHING_TO_RUN: &str = "no ports: name devices, as in `millrace run --port eth0 --port eth1`, or a file with --config; \
     `millrace init` writes one for this machine";

/// Returns the configuration that the arguments select.
///
/// # Errors
/// The file can't be read, or has errors; the text mentions a good revision if there is one.
pub fn boot(arguments: &Run, socket: &Path) -> Result<Boot, Failure> {
    let Some(path) = &arguments.config else {
        return match arguments.last_good {
            true => {
                let known = known(Config::default(), arguments, socket);
                let found = last_good(&known, socket)?;
                found.ok_or_else(|| {
                    Failure::new(format!("{}: name a file with --config", none_in(&known, arguments)))
                })
            }
            false if arguments.ports.is_empty() => Err(Failure::usage(NOTHING_TO_RUN)),
            false => Ok(Boot { config: ports(&arguments.ports)?, source: None }),
        };
    };
    let file = read(path);
    let known = known(file.as_ref().map(|boot| boot.config.clone()).unwrap_or_default(), arguments, socket);
    if (arguments.last_good || known.router.boot == From::LastGood)
        && let Some(boot) = last_good(&known, socket)?
    {
        return Ok(boot);
    }
    file.map_err(|failure| match arguments.last_good {
        true => {
            Failure { message: format!("{}; {}", failure.message, none_in(&known, arguments)), ..failure }
        }
        false => hint(failure, &revisions(&known, socket)),
    })
}

/// Returns `config` with the state directory of [`own_state`], if there is one. The result is not validated
/// yet.
fn known(mut config: Config, arguments: &Run, socket: &Path) -> Config {
    if let Some(state) = own_state(arguments.state.as_deref(), &config, socket) {
        config.plugins.state = Some(state);
    }
    config
}

/// Returns the state directory that overrides the configuration: `--state`. Without this option, a router at
/// a non-default socket has a directory for this socket, unless the configuration sets a directory. `None` if
/// the configured or default directory applies.
pub fn own_state(said: Option<&Path>, config: &Config, socket: &Path) -> Option<PathBuf> {
    match (said, &config.plugins.state) {
        (Some(said), _) => Some(said.to_owned()),
        (None, Some(_)) => None,
        (None, None) => {
            let own = state_directory_at(socket, Path::new(DEFAULT_SOCKET));
            own.filter(|own| Some(own) != usual_state_directory().as_ref())
        }
    }
}

/// Returns the store with the revisions of the router at a socket.
fn revisions(known: &Config, socket: &Path) -> Store {
    millrace_controller::revisions(known, Some(name(socket)))
}

/// Returns the router's name in records that several routers may share: the absolute path of its socket.
pub fn name(socket: &Path) -> String {
    std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned()).display().to_string()
}

/// Returns the message that a directory holds no revision. The message names the option that selects another
/// directory.
fn none_in(known: &Config, arguments: &Run) -> String {
    let state = if arguments.state.is_some() { "" } else { "; --state DIR searches another directory" };
    match millrace_controller::state_directory(known) {
        Some(directory) => format!("no revision to start from in {}{state}", directory.display()),
        None => format!(
            "no revision to start from, because the router keeps none without a state directory{state}"
        ),
    }
}

fn read(path: &Path) -> Result<Boot, Failure> {
    let text = crate::output::read(path)?;
    let config = Config::parse_further(&text, &path.display().to_string(), millrace_controller::check_rest)?;
    let origin = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    Ok(Boot { config, source: Some(Source { origin, text }) })
}

/// Adds a hint to the failure of reading a file, if a good revision is available.
fn hint(failure: Failure, store: &Store) -> Failure {
    let good = store.good().ok().and_then(|good| good.into_iter().next());
    let Some(Revision { number, time: applied, who, .. }) = good else { return failure };
    let (message, applied) = (failure.message, utc(applied));
    Failure {
        message: format!("{message}; --last-good starts from revision {number}, applied {applied} by {who}"),
        ..failure
    }
}

/// Returns the newest readable good revision.
fn last_good(known: &Config, socket: &Path) -> Result<Option<Boot>, Failure> {
    let store = revisions(known, socket);
    for Revision { number, .. } in store.good().map_err(Failure::new)? {
        let (revision, text) = store.revision(number).map_err(Failure::new)?;
        let origin = format!("revision {number}");
        match Config::parse(&text, &origin) {
            Ok(config) => {
                eprintln!(
                    "starting from revision {number}, applied {} by {}",
                    utc(revision.time),
                    revision.who
                );
                return Ok(Some(Boot { config, source: Some(Source { origin, text }) }));
            }
            Err(error) => {
                eprintln!("can't start from revision {number}, trying the previous revision: {error}")
            }
        }
    }
    Ok(None)
}

/// Returns a configuration with a port for each device, named after the device.
fn ports(devices: &[String]) -> Result<Config, Failure> {
    let mut text = String::new();
    for (index, device) in devices.iter().enumerate() {
        if devices[..index].contains(device) {
            return Err(Failure::usage(format!(
                "--port {device} is given twice: each device can be only one port"
            )));
        }
        // Quote the name as a JSON string, which is also a valid TOML string.
        let quoted = serde_json::Value::from(device.as_str());
        text += &format!("[[port]]\nname = {quoted}\ndevice = {quoted}\n");
    }
    Config::parse(&text, "--port").map_err(|wrong| {
        let problems = Message::join(wrong.errors().iter().map(|error| error.problem.clone()), "; ");
        Failure::usage(format!("--port: {problems}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    #[test]
    fn another_directory_is_offered_unless_one_is_given() {
        let config = Config::parse("[plugins]\nstate = \"/somewhere\"", "f").unwrap();
        for (words, told) in [
            (
                &["--last-good"][..],
                "no revision to start from in /somewhere; --state DIR searches another directory",
            ),
            (&["--last-good", "--state", "/elsewhere"], "no revision to start from in /elsewhere"),
        ] {
            let Command::Run(run) =
                Arguments::try_parse_from([&["millrace", "run"], words].concat()).unwrap().command
            else {
                panic!("{words:?}")
            };
            assert_eq!(none_in(&known(config.clone(), &run, Path::new(DEFAULT_SOCKET)), &run), told);
        }
    }
}
