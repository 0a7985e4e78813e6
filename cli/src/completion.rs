//! Completion of command lines: commands and options by their definition, names by queries to the running
//! router.
//!
//! Shells call the program with the variable `COMPLETE`, which [`answer`] handles; the command `shell` of
//! [`crate::commands`] calls [`complete`].

use std::ffi::OsString;
use std::sync::OnceLock;

use clap::{Command, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::CompleteEnv;
use serde_json::Value;

use crate::arguments::{Arguments, Connection};
use crate::client::Client;
use crate::output::{plain, rows};

/// Query for names of objects: the resource, and the keys of name and description in each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Names {
    path: &'static str,
    /// Key of a list in each row. The names are in the items of this list. Empty if the row itself has the
    /// name.
    within: &'static str,
    name: &'static str,
    help: &'static str,
}

const fn named(path: &'static str, name: &'static str, help: &'static str) -> Names {
    Names { path, within: "", name, help }
}

const PORTS: Names = named("/ports", "/name", "/device");
const INSTANCES: Names = named("/instances", "/name", "/plugin");
const GATES: Names = named("/gates", "/name", "/position");
const PLUGINS: Names = named("/plugins", "/name", "/version");
const FILTERS: Names = named("/filters", "/id", "/match");
const QUEUES: Names = named("/queues", "/name", "/port");
const NODES: Names = Names { within: "/nodes", ..named("/schedulers", "/name", "/kind") };
const PRINCIPALS: Names = named("/principals", "/name", "/cpu");
const ALLOWANCES: Names = named("/allowances", "/name", "/cpu");
const TOKENS: Names = named("/tokens", "/name", "/role");
const REASONS: Names = named("/drops", "/reason", "/meaning");

/// Arguments that are completed with names of objects. Each item has the queries for the names, and the
/// arguments as command paths, separated by commas.
const ARGUMENTS: [(&[Names], &str); 12] = [
    (&[PORTS, GATES, INSTANCES], "capture place"),
    (
        &[PORTS],
        "port set port, scheduler add port, scheduler set port, scheduler remove port, \
         scheduler show port, queue show port, queue set port, neighbour add port, \
         neighbour remove port, flow reserve port",
    ),
    (&[NODES], "scheduler add under, scheduler set node, scheduler remove node, scheduler remove to"),
    (&[QUEUES], "queue show queue, queue set queue"),
    (
        &[INSTANCES],
        "bind instance, unbind instance, control instance, instance set name, instance move name, instance rename name, \
         instance release name, instance free name, instance map name, flow reserve instance, \
         admission place instance",
    ),
    (
        &[GATES],
        "bind gate, unbind gate, filter add gate, filter list gate, filter remove gate, gate set name, \
         gate remove name, flow reserve gate",
    ),
    (
        &[PLUGINS],
        "instance create plugin, admission place plugin, plugin manual name, plugin upgrade name, plugin rollback name, \
         plugin unload name",
    ),
    (&[FILTERS], "filter remove which"),
    (&[REASONS], "drops reason"),
    (
        &[PRINCIPALS],
        "principal set name, principal remove name, principal resize name, principal show name, exec principal, \
         flow release name, bind principal",
    ),
    (&[ALLOWANCES], "allowance set name, allowance remove name, allowance show name"),
    (&[TOKENS], "token revoke name"),
];

/// Connection to the router that completions query. If unset, completions query the router at the default
/// connection.
static ASKED: OnceLock<Connection> = OnceLock::new();

/// Sets the router that completions query for names.
pub fn ask_at(connection: Connection) {
    // Only the first call has an effect: a process uses one router.
    let _ = ASKED.set(connection);
}

/// Answers a completion request of a shell and exits; otherwise does nothing.
pub fn answer() {
    CompleteEnv::with_factory(command).complete();
}

/// Returns the command-line definition, with completions of names.
pub fn command() -> Command {
    let all = ARGUMENTS.iter().flat_map(|(names, of)| of.split(", ").map(|argument| (*names, argument)));
    all.fold(Arguments::command(), |command, (names, argument)| {
        let words: Vec<&str> = argument.split(' ').collect();
        within(command, &words, &ArgValueCandidates::new(move || candidates(names)))
    })
}

/// Adds completions to one argument. The last of `words` names the argument; the words before it name the
/// command.
fn within(command: Command, words: &[&str], names: &ArgValueCandidates) -> Command {
    match words {
        // Change all arguments at once: changing one of them moves a positional argument to another position.
        [argument] => {
            command.mut_args(|one| if one.get_id() == argument { one.add(names.clone()) } else { one })
        }
        [first, rest @ ..] => command.mut_subcommand(first, |below| within(below, rest, names)),
        [] => command,
    }
}

/// Returns completions of the last of `words`, which exclude the program name.
pub fn complete(words: Vec<String>) -> Vec<CompletionCandidate> {
    let mut all: Vec<OsString> = vec!["millrace".into()];
    all.extend(words.into_iter().map(OsString::from));
    let last = all.len() - 1;
    clap_complete::engine::complete(&mut command(), all, last, None).unwrap_or_default()
}

/// Returns names of a running router; none without a router.
fn candidates(names: &[Names]) -> Vec<CompletionCandidate> {
    let Some(asked) = ASKED.get().cloned().or_else(Connection::usual) else { return Vec::new() };
    let Ok(client) = Client::hasty(&asked) else { return Vec::new() };
    let known = |names: &Names| client.get(names.path).map(|answer| names.of(&answer)).unwrap_or_default();
    names.iter().flat_map(known).collect()
}

impl Names {
    fn of(self, answer: &Value) -> Vec<CompletionCandidate> {
        let mut all: Vec<&Value> = rows(answer).iter().collect();
        if !self.within.is_empty() {
            all = all.into_iter().filter_map(|row| row.pointer(self.within)).flat_map(rows).collect();
        }
        let candidate = |row: &&Value| {
            let help = row.pointer(self.help).filter(|help| !help.is_null()).map(|help| plain(help).into());
            Some(CompletionCandidate::new(plain(row.pointer(self.name)?)).help(help))
        };
        all.iter().filter_map(candidate).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(words: &[&str]) -> Vec<String> {
        let candidates = complete(words.iter().map(|word| (*word).to_owned()).collect());
        candidates.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn commands_options_and_their_values_are_known() {
        assert_eq!(values(&["sched"]), ["scheduler"]);
        assert!(values(&["filter", ""]).contains(&"explain".to_owned()));
        assert!(values(&["trace", "--"]).contains(&"--every".to_owned()));
        assert!(values(&["flow", "list", "--order", ""]).contains(&"rate".to_owned()));
    }

    #[test]
    fn every_argument_that_is_a_name_is_there() {
        command().debug_assert();
        for words in ARGUMENTS.iter().flat_map(|(_, all)| all.split(", ")) {
            let (path, argument) = words.rsplit_once(' ').unwrap();
            let whole = Arguments::command();
            let mut at = &whole;
            for word in path.split(' ') {
                at = at.find_subcommand(word).unwrap_or_else(|| panic!("{path}"));
            }
            assert!(at.get_arguments().any(|one| one.get_id() == argument), "{words}");
        }
    }

    #[test]
    fn every_argument_that_is_there_is_a_name_that_is_known() {
        /// Names of arguments that denote an existing object of a router. The exceptions below denote new
        /// objects, labs, or are switches.
        const NOUNS: [&str; 8] = ["port", "gate", "instance", "place", "queue", "node", "plugin", "reason"];
        const OTHERS: [&str; 4] = ["bind queue", "run port", "scheduler add node", "lab exec node"];
        fn walk(command: &Command, path: &mut Vec<String>, missing: &mut Vec<String>) {
            for one in command.get_arguments().filter(|one| NOUNS.contains(&one.get_id().as_str())) {
                let place = format!("{} {}", path.join(" "), one.get_id());
                let is_known =
                    ARGUMENTS.iter().flat_map(|(_, all)| all.split(", ")).any(|known| known == place);
                if !is_known && !OTHERS.contains(&place.as_str()) {
                    missing.push(place);
                }
            }
            for below in command.get_subcommands() {
                path.push(below.get_name().to_owned());
                walk(below, path, missing);
                path.pop();
            }
        }
        let mut missing = Vec::new();
        walk(&Arguments::command(), &mut Vec::new(), &mut missing);
        assert!(missing.is_empty(), "{missing:#?}");
    }

    #[test]
    fn names_are_read_out_of_rows_and_of_lists_in_rows() {
        let names = |names: Names, answer: Value| {
            names.of(&answer).iter().map(|one| one.get_value().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(PORTS, json!([{"name": "lan", "device": "eth1"}, {"name": "wan"}])), ["lan", "wan"]);
        assert_eq!(names(FILTERS, json!([{"id": 7, "match": "proto udp"}])), ["7"]);
        assert_eq!(
            names(NODES, json!([{"port": "wan", "nodes": [{"name": "voice"}, {"name": "rest"}]}])),
            ["voice", "rest"]
        );
        assert_eq!(names(QUEUES, json!([{"port": "wan", "name": "voice"}])), ["voice"]);
    }
}
