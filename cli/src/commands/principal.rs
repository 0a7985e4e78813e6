//! The commands `principal` and `exec`.

use std::path::{Path, PathBuf};
use std::process::Command;

use hyper::Method;
use millrace_principals::Launch;
use nix::unistd::geteuid;
use serde_json::Value;

use crate::arguments::{Exec, Noun, PrincipalAction};
use crate::client::{Client, segment};
use crate::commands::observe::show::show;
use crate::output::{Failure, done, print, rows};
use crate::pairs::changes;

/// Adds, changes, removes and shows principals.
pub fn principal(client: &Client, action: &PrincipalAction, json: bool) -> Result<(), Failure> {
    match action {
        PrincipalAction::Add { name, settings } => {
            let mut body = changes(settings)?;
            if body.insert("name".to_owned(), name.as_str().into()).is_some() {
                return Err(Failure::usage("name is no setting: give it once, before the settings"));
            }
            let value = client.send(Method::POST, "/principals", Some(&Value::Object(body)))?;
            done(&value, &format!("principal {name} added"), json);
        }
        PrincipalAction::Set { name, settings } => {
            let body = Value::Object(changes(settings)?);
            let value = client.send(Method::PATCH, &path(name), Some(&body))?;
            done(&value, &format!("principal {name} changed: {}", settings.join(" ")), json);
        }
        PrincipalAction::Remove { name } => {
            let value = client.send(Method::DELETE, &path(name), None)?;
            let line = match value["usage"]["processes"].as_u64() {
                Some(0) | None => format!("principal {name} removed"),
                Some(_) => format!("principal {name} removed; its processes continue without limits"),
            };
            done(&value, &line, json);
        }
        PrincipalAction::List => show(client, Noun::Principals, json)?,
        PrincipalAction::Show { name } => print(&client.get(&path(name))?, "", json),
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/principals/{}", segment(name))
}

/// Runs a command as a process of a principal, in place of this process: it gets the signals, and its exit
/// status is the exit status of `exec`.
///
/// # Errors
/// The router is remote, the principal is unknown, the control group may not be joined, or the program can't be
/// run. Without an error, this function doesn't return.
pub fn exec(client: &Client, exec: &Exec) -> Failure {
    if client.is_elsewhere() {
        return Failure::usage(
            "exec starts a process on the router's machine: run it there, without --server",
        );
    }
    let found = match client.get(&path(&exec.principal)) {
        Ok(found) => found,
        Err(failure) => return failure,
    };
    let directories = rows(&found["directories"]).iter().filter_map(Value::as_str);
    let files: Vec<PathBuf> = directories.map(|path| Path::new(path).join("cgroup.procs")).collect();
    let (Some(program), false) = (exec.command.first(), files.is_empty()) else {
        let why = found["obstacle"].as_str().map_or_else(String::new, |why| format!(": {why}"));
        return Failure::new(format!("principal {:?} has no control group{why}", exec.principal));
    };
    let mut command = Command::new(program);
    // The command must not act on the router with the caller's API token.
    command.args(exec.command.iter().skip(1)).env_remove("MILLRACE_TOKEN");
    let error = match Launch::by_files(&files, command) {
        Ok(launch) => launch.replace(),
        Err(error) => error,
    };
    match geteuid().is_root() {
        true => Failure::new(error),
        false => Failure::new(format!("exec needs root to join the principal's control group: {error}")),
    }
}
