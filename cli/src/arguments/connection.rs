//! Arguments of the connection to a router.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches as _};

use super::{COMMON, DEFAULT_SOCKET};
use crate::output::Failure;

/// Options that select the router: Unix socket, or remote server with token and certificate check.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Unix socket of the router.
    #[arg(long, global = true, env = "MILLRACE_SOCKET", default_value = DEFAULT_SOCKET, value_name = "PATH", help_heading = COMMON)]
    pub socket: PathBuf,
    /// URL of a remote router, https://HOST:PORT; needs an API token.
    #[arg(long, global = true, env = "MILLRACE_SERVER", value_name = "URL", hide_env_values = true, help_heading = COMMON)]
    pub server: Option<String>,
    /// File with the API token; MILLRACE_TOKEN can hold the token itself.
    #[arg(long, global = true, env = "MILLRACE_TOKEN_FILE", value_name = "FILE", hide_env_values = true, help_heading = COMMON)]
    pub token_file: Option<PathBuf>,
    /// CA certificates in PEM (default: CA certificates of the system).
    #[arg(long, global = true, env = "MILLRACE_CA", value_name = "FILE", hide_env_values = true, help_heading = COMMON)]
    pub ca: Option<PathBuf>,
    /// SHA-256 fingerprint of the router's certificate, instead of --ca.
    #[arg(long, global = true, env = "MILLRACE_FINGERPRINT", value_name = "SHA256", hide_env_values = true, help_heading = COMMON)]
    pub fingerprint: Option<String>,
    /// Change the resource only if its ETag is TAG (see `millrace tag`).
    #[arg(long, global = true, value_name = "TAG", help_heading = COMMON)]
    pub if_match: Option<String>,
}

impl Connection {
    /// Returns the connection that the environment variables select. `None` if their values are invalid.
    pub fn usual() -> Option<Self> {
        let command = Self::augment_args(clap::Command::new("millrace"));
        let matches = command.try_get_matches_from(["millrace"]).ok()?;
        let mut usual = Self::from_arg_matches(&matches).ok()?;
        usual.prefer_said(&matches).ok()?;
        Some(usual)
    }

    /// Lets options on the command line override the environment. `--socket` discards a server that the
    /// environment names. `--ca` discards a fingerprint that the environment names, and `--fingerprint`
    /// discards CA certificates.
    ///
    /// # Errors
    /// CA certificates and a fingerprint are both on the command line, or both in the environment.
    pub fn prefer_said(&mut self, matches: &ArgMatches) -> Result<(), Failure> {
        let is_said = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        if is_said("socket") && !is_said("server") {
            self.server = None;
        }
        if self.ca.is_none() || self.fingerprint.is_none() {
            return Ok(());
        }
        match (is_said("ca"), is_said("fingerprint")) {
            (true, false) => self.fingerprint = None,
            (false, true) => self.ca = None,
            (said, _) => {
                let (one, other) =
                    if said { ("--ca", "--fingerprint") } else { ("MILLRACE_CA", "MILLRACE_FINGERPRINT") };
                let text = format!("{one} and {other} exclude each other: give one of them");
                return Err(Failure::usage(text));
            }
        }
        Ok(())
    }

    /// Returns the command-line options that select this connection, for a child process.
    pub fn arguments(&self) -> Vec<OsString> {
        let Self { socket, server, token_file, ca, fingerprint, if_match: _ } = self;
        let mut arguments = vec!["--socket".into(), socket.into()];
        let mut add = |option: &str, value: Option<OsString>| {
            arguments.extend(value.into_iter().flat_map(|value| [option.into(), value]));
        };
        add("--server", server.as_ref().map(OsString::from));
        add("--token-file", token_file.as_ref().map(OsString::from));
        add("--ca", ca.as_ref().map(OsString::from));
        add("--fingerprint", fingerprint.as_ref().map(OsString::from));
        arguments
    }
}
