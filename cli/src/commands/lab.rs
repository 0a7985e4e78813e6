//! The command `lab`.

use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;

use millrace_lab::{DEFAULT_RUNTIME_DIRECTORY, LabFile, NodeKind, NodeState, Options, State};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::arguments::LabAction;
use crate::output::{Failure, put, say, show, table};

/// Builds, removes and lists labs, and runs commands in them.
pub fn lab(action: &LabAction, json: bool) -> Result<ExitCode, Failure> {
    match action {
        LabAction::Up { file } => up(file, json)?,
        LabAction::Down { name } => down(name, json)?,
        LabAction::List { name } => list(name.as_deref(), json)?,
        LabAction::Exec { name, node, command } => return exec(name, node, command),
    }
    Ok(ExitCode::SUCCESS)
}

fn runtime_directory() -> &'static Path {
    Path::new(DEFAULT_RUNTIME_DIRECTORY)
}

fn up(path: &Path, json: bool) -> Result<(), Failure> {
    let file = LabFile::read(path).map_err(Failure::new)?;
    let binary = std::env::current_exe().map_err(|error| {
        Failure::new(format!("can't determine the path of the running millrace binary: {error}"))
    })?;
    let options = Options::new(binary);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&options.interrupted))
            .map_err(|error| Failure::new(format!("can't set up signal handlers: {error}")))?;
    }
    let state = millrace_lab::Lab::up(&file, &options).map_err(Failure::new)?.keep();
    if json {
        say!("{:#}", described(&state));
        return Ok(());
    }
    say!("lab {} is up:", state.name);
    put(&nodes(&state));
    if let Some(node) = state.nodes.first() {
        say!("run a command:        millrace lab exec {} {} -- COMMAND", state.name, node.name);
    }
    if let Some(socket) = state.nodes.iter().find_map(|node| node.socket.as_deref()) {
        say!("query a router:       millrace --socket {} show ports", socket.display());
    }
    say!("remove the lab:       millrace lab down {}", state.name);
    Ok(())
}

fn down(word: &str, json: bool) -> Result<(), Failure> {
    let name = LabFile::name_of(word).map_err(Failure::new)?;
    let removed = millrace_lab::down(&name, runtime_directory()).map_err(Failure::new)?;
    let Some(removed) = removed else { return Err(Failure::new(not_up(&name)?)) };
    let ended = removed.ended.iter().map(|(name, pid)| json!({"name": name, "pid": pid}));
    let value = json!({"name": name, "removed": true, "ended": Value::from_iter(ended)});
    let line = |(name, pid): &(_, _)| format!("ended {name} (process {pid}), which ran in the lab\n");
    show(&value, json, || {
        removed.ended.iter().map(line).collect::<String>() + &format!("lab {name} removed\n")
    });
    Ok(())
}

/// Returns the message that no lab `name` is up, with the names of the labs that are up.
fn not_up(name: &str) -> Result<String, Failure> {
    let states = millrace_lab::list(runtime_directory()).map_err(Failure::new)?;
    let known: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
    Ok(match known.is_empty() {
        true => format!("lab {name:?} is not up, and no other lab is"),
        false => format!("lab {name:?} is not up{}", millrace_units::remedy("lab", name, known)),
    })
}

fn list(word: Option<&str>, json: bool) -> Result<(), Failure> {
    let mut states = millrace_lab::list(runtime_directory()).map_err(Failure::new)?;
    if let Some(word) = word {
        let name = LabFile::name_of(word).map_err(Failure::new)?;
        states.retain(|state| state.name == name);
        if states.is_empty() {
            return Err(Failure::new(not_up(&name)?));
        }
    }
    let lab = |state: &State| {
        let file = state.file.as_ref().map(|file| format!(", from {}", file.display())).unwrap_or_default();
        format!("{}{file}\n{}", state.name, nodes(state))
    };
    let all = Value::from_iter(states.iter().map(described));
    show(&all, json, || states.iter().map(lab).collect());
    Ok(())
}

fn exec(word: &str, node: &str, command: &[String]) -> Result<ExitCode, Failure> {
    let name = LabFile::name_of(word).map_err(Failure::new)?;
    let status = millrace_lab::exec(&name, node, command, runtime_directory()).map_err(Failure::new)?;
    Ok(ExitCode::from(exit_code(status)))
}

/// Returns the exit code of a command. If a signal ended the command, returns 128 plus the signal number, as
/// shells do.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn described(state: &State) -> Value {
    let nodes = state.nodes.iter().map(|node| {
        let mut value = json!(node);
        value["running"] = node.is_running().into();
        value
    });
    json!({"name": state.name, "file": state.file, "nodes": Value::from_iter(nodes)})
}

fn nodes(state: &State) -> String {
    let rows: Vec<Value> = state.nodes.iter().flat_map(rows_of).collect();
    table(&rows, "  node=node | kind | namespace | device | addresses")
}

/// Returns one row for each device of a node; one row without a device if there are none.
fn rows_of(node: &NodeState) -> Vec<Value> {
    let kind = match (node.kind, node.is_running()) {
        (NodeKind::Host, _) => "host",
        (NodeKind::Kernel, _) => "kernel router",
        (NodeKind::Millrace, true) => "millrace router",
        (NodeKind::Millrace, false) => "millrace router, ended",
    };
    let row = |device: &str, addresses: Value| {
        json!({
            "node": format!("  {}", node.name),
            "kind": kind,
            "namespace": node.namespace,
            "device": device,
            "addresses": addresses,
        })
    };
    if node.devices.is_empty() {
        return vec![row("-", Value::Null)];
    }
    node.devices.iter().map(|device| row(&device.name, json!(device.addresses))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn exec_exits_like_its_command() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(libc::SIGKILL)), 137);
    }
}
