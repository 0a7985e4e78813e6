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

impl Boot {
    /// Returns the origin for people.
    fn origin(&self) -> &str {
        self.source.as_ref().map_or("the named devices", |source| source.origin.as_str())
    }
}

/// Configurations for a router that can't start from the first one: older good revisions, the newest first, then the
/// file. They are read one by one.
#[derive(Debug)]
pub struct Fallbacks {
    store: Store,
    revisions: std::vec::IntoIter<Revision>,
    file: Option<Boot>,
}

impl Fallbacks {
    /// Returns no configurations.
    fn none() -> Self {
        Self { store: Store::open(None), revisions: Vec::new().into_iter(), file: None }
    }

    /// Returns the good revisions of the router at a socket.
    ///
    /// # Errors
    /// The store can't be read.
    fn revisions(known: &Config, socket: &Path) -> Result<Self, Failure> {
        let store = revisions(known, socket);
        let revisions = store.good().map_err(Failure::new)?.into_iter();
        Ok(Self { store, revisions, file: None })
    }
}

impl Iterator for Fallbacks {
    type Item = Boot;

    /// Returns the next readable configuration. Prints which revisions are skipped, and why.
    fn next(&mut self) -> Option<Boot> {
        for Revision { number, time, who, .. } in self.revisions.by_ref() {
            match read_revision(&self.store, number) {
                Ok(boot) => {
                    eprintln!("starting from revision {number}, applied {} by {who}", utc(time));
                    return Some(boot);
                }
                Err(Failure { message, .. }) => {
                    eprintln!("can't start from revision {number}, which is skipped: {message}");
                }
            }
        }
        self.file.take()
    }
}

/// Returns the configuration that the arguments select, and those for a router that can't start from it.
///
/// # Errors
/// The file can't be read, or has errors; the text mentions a good revision if there is one.
pub fn boot(arguments: &Run, socket: &Path) -> Result<(Boot, Fallbacks), Failure> {
    let Some(path) = &arguments.config else {
        return match arguments.last_good {
            true => {
                let known = known(Config::default(), arguments, socket);
                let mut revisions = Fallbacks::revisions(&known, socket)?;
                let first = revisions.next().ok_or_else(|| {
                    Failure::new(format!("{}: name a file with --config", none_in(&known, arguments)))
                })?;
                Ok((first, revisions))
            }
            false if arguments.ports.is_empty() => Err(Failure::usage(NOTHING_TO_RUN)),
            false => Ok((Boot { config: ports(&arguments.ports)?, source: None }, Fallbacks::none())),
        };
    };
    let file = read(path);
    let known = known(file.as_ref().map(|boot| boot.config.clone()).unwrap_or_default(), arguments, socket);
    if !arguments.last_good && known.router.boot != From::LastGood {
        let file = file.map_err(|failure| hint(failure, &revisions(&known, socket)))?;
        return Ok((file, Fallbacks::none()));
    }
    let mut revisions = Fallbacks::revisions(&known, socket)?;
    match (revisions.next(), file) {
        (Some(first), file) => Ok((first, Fallbacks { file: file.ok(), ..revisions })),
        (None, Ok(file)) => Ok((file, revisions)),
        (None, Err(failure)) => {
            let message = format!("{}; {}", failure.message, none_in(&known, arguments));
            Err(Failure { message, ..failure })
        }
    }
}

/// Starts a router by `start` from the first configuration that allows it. Logs from which configurations the router
/// can't start, and why.
///
/// # Errors
/// The failure of the last configuration.
pub async fn start_from<T>(
    first: Boot,
    mut fallbacks: impl Iterator<Item = Boot>,
    start: impl AsyncFn(Boot) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut boot = first;
    loop {
        let origin = boot.origin().to_owned();
        let failure = match start(boot).await {
            Ok(started) => return Ok(started),
            Err(failure) => failure,
        };
        let Some(next) = fallbacks.next() else { return Err(failure) };
        tracing::error!("can't start from {origin}, trying {}: {}", next.origin(), failure.message);
        boot = next;
    }
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

/// Reads a revision.
fn read_revision(store: &Store, number: u64) -> Result<Boot, Failure> {
    let (_, text) = store.revision(number).map_err(Failure::new)?;
    let origin = format!("revision {number}");
    let config = Config::parse(&text, &origin)?;
    Ok(Boot { config, source: Some(Source { origin, text }) })
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
    use std::cell::RefCell;

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

    fn from_origin(origin: &str) -> Boot {
        let source = Some(Source { origin: origin.to_owned(), text: String::new() });
        Boot { config: Config::default(), source }
    }

    /// Starts from `first` and then `others`, as far as `startable` allows it. Returns the outcome, and the origins of
    /// the attempts.
    fn started(first: &str, others: &[&str], startable: &str) -> (Result<String, String>, Vec<String>) {
        let tried = RefCell::new(Vec::new());
        let start = async |boot: Boot| {
            let origin = boot.origin().to_owned();
            tried.borrow_mut().push(origin.clone());
            if origin == startable { Ok(origin) } else { Err(Failure::new(format!("{origin} is wrong"))) }
        };
        let others = others.iter().map(|origin| from_origin(origin));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(start_from(from_origin(first), others, start));
        (outcome.map_err(|failure| failure.message), tried.into_inner())
    }

    #[test]
    fn older_revisions_follow_one_that_can_t_start_in_their_order() {
        let others = ["revision 4", "revision 2", "router.toml"];
        let all = ["revision 7", "revision 4", "revision 2", "router.toml"];
        for (index, startable) in all.iter().enumerate() {
            let (outcome, tried) = started("revision 7", &others, startable);
            assert_eq!(outcome.unwrap(), *startable);
            assert_eq!(tried, all[..=index]);
        }
        let (outcome, tried) = started("revision 7", &others, "none");
        assert_eq!(outcome.unwrap_err(), "router.toml is wrong");
        assert_eq!(tried, all);
    }
}
