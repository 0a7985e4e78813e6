//! The commands `principal` and `exec`.

mod resize;

use std::path::{Path, PathBuf};
use std::process::Command;

use hyper::Method;
use millrace_config::Principal;
use millrace_principals::Launch;
use nix::unistd::geteuid;
use serde_json::Value;

use crate::arguments::{Exec, Noun, PrincipalAction};
use crate::client::{Client, segment};
use crate::commands::admission::{trial, tried};
use crate::commands::forwarding::flow::flows_path;
use crate::commands::observe::show::show;
use crate::output::{self, Failure, done, lines, print, rows, table};
use crate::pairs::{changes, nested};

/// Columns of the flows of a principal.
const FLOWS: &str = "flow | cycles=payments/0/cycles | waiting=payments/0/waiting \
    | bytes=payments/0/waiting_bytes | dropped=payments/0/dropped | worker";

/// Principals that the router itself has.
const BUILT_IN: [&str; 3] = ["core", "control", "default"];

/// Columns of the accounts of built-in principals.
const ACCOUNTS: &str =
    "built in=principal | promised %=promised | used s=used_seconds | packets | waiting | dropped";

/// Adds, changes, removes and shows principals.
pub fn principal(client: &Client, action: &PrincipalAction, json: bool) -> Result<(), Failure> {
    match action {
        PrincipalAction::Add { name, settings, dry_run } => {
            let mut body = nested(changes(settings)?)?;
            if body.insert("name".to_owned(), name.as_str().into()).is_some() {
                return Err(Failure::usage("name is no setting: give it once, before the settings"));
            }
            let path = format!("/principals{}", trial(*dry_run));
            let value = client.send(Method::POST, &path, Some(&Value::Object(body)))?;
            if *dry_run {
                tried(&value, json);
                return Ok(());
            }
            done(&value, &format!("principal {name} added"), json);
        }
        PrincipalAction::Set { name, settings, dry_run } => {
            let body = Value::Object(nested(changes(settings)?)?);
            let path = format!("{}{}", path(name), trial(*dry_run));
            let value = client.send(Method::PATCH, &path, Some(&body))?;
            if *dry_run {
                tried(&value, json);
                return Ok(());
            }
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
        PrincipalAction::Resize { name, over, margin, apply } => {
            let asked = (name.as_str(), over.duration(), f64::from(*margin));
            resize::resize(client, &path(name), asked, *apply, json)?;
        }
        PrincipalAction::List => list(client, json)?,
        PrincipalAction::Show { name, flows: false, .. } if is_built_in(name) => {
            print(&built_in(&client.get("/promises")?, name)?, "", json);
        }
        PrincipalAction::Show { name, flows: false, .. } => print(&client.get(&path(name))?, "", json),
        PrincipalAction::Show { name, flows: true, limit } => show_flows(client, name, *limit, json)?,
    }
    Ok(())
}

/// Shows the configured principals, and below them the built-in ones with an account at the workers.
fn list(client: &Client, json: bool) -> Result<(), Failure> {
    show(client, Noun::Principals, json)?;
    let promises = if json { Value::Null } else { client.get("/promises")? };
    let names = rows(&promises["promises"]).iter().filter_map(|one| one["principal"].as_str());
    let of_services = names.filter(|name| name.starts_with(Principal::SERVICE_PREFIX));
    let all = BUILT_IN.into_iter().chain(of_services);
    let accounts: Vec<Value> = all.filter_map(|name| built_in(&promises, name).ok()).collect();
    if !accounts.is_empty() {
        print(&Value::Array(accounts), ACCOUNTS, false);
    }
    Ok(())
}

/// Whether the router itself has the principal of this name.
fn is_built_in(name: &str) -> bool {
    BUILT_IN.contains(&name) || name.starts_with(Principal::SERVICE_PREFIX)
}

/// Returns the account of a built-in principal at the workers, with the control group of its threads.
///
/// # Errors
/// The workers keep no account of it.
fn built_in(promises: &Value, name: &str) -> Result<Value, Failure> {
    let found = rows(&promises["promises"]).iter().find(|one| one["principal"] == name);
    let group = if name == "core" { "workers" } else { name };
    let group = rows(&promises["thread_groups"]).iter().find(|one| one["group"] == group);
    let with_group = |account: &Value| {
        let mut account = account.clone();
        for key in ["directories", "obstacle"] {
            account[key] = group.map(|group| group[key].clone()).unwrap_or_default();
        }
        account
    };
    found.map(with_group).ok_or_else(|| {
        Failure::new(format!(
            "principal {name:?} is built in and has no account now: {}",
            match name {
                "default" => "no binding without a principal waits for the processor",
                name if name.starts_with(Principal::SERVICE_PREFIX) => "it pays for no binding",
                _ => "workers keep accounts only with principals",
            }
        ))
    })
}

/// Shows a principal with the flows that have a queue for its processor time.
fn show_flows(client: &Client, name: &str, limit: usize, json: bool) -> Result<(), Failure> {
    let mut value = client.get(&path(name))?;
    let flows =
        client.get(&flows_path(None, &format!("principal={}&order=cycles&limit={limit}", segment(name))))?;
    let text = format!("{}\n{}", lines(&value), flows_of(name, rows(&flows["flows"])));
    value["flows"] = flows["flows"].clone();
    output::show(&value, json, || text);
    Ok(())
}

/// Returns the table of a principal's flows, with what each flow has under this principal.
fn flows_of(name: &str, flows: &[Value]) -> String {
    let mut flows = flows.to_vec();
    for payments in flows.iter_mut().filter_map(|flow| flow["payments"].as_array_mut()) {
        payments.retain(|payment| payment["principal"] == name);
    }
    flows.retain(|flow| flow["payments"].as_array().is_some_and(|payments| !payments.is_empty()));
    match flows.is_empty() {
        true => format!("no packet of {name} waits: a flow has an account only while it has a queue\n"),
        false => table(&flows, FLOWS),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn built_in_principals_have_accounts_beside_principals_only() {
        let promises = json!({
            "promises": [{"principal": "control", "used_seconds": 2.5}],
            "thread_groups": [{"group": "workers"}, {"group": "control", "directories": ["/a"]}],
        });
        let account = built_in(&promises, "control").unwrap();
        assert_eq!((&account["used_seconds"], &account["directories"]), (&json!(2.5), &json!(["/a"])));
        let refused = built_in(&promises, "core").unwrap_err().message;
        assert!(
            refused.contains("\"core\" is built in") && refused.contains("only with principals"),
            "{refused}"
        );
        assert!(built_in(&Value::Null, "default").is_err());
        assert!(is_built_in("service:a") && is_built_in("core") && !is_built_in("a"));
        let refused = built_in(&promises, "service:a").unwrap_err().message;
        assert!(refused.contains("it pays for no binding"), "{refused}");
    }

    #[test]
    fn flows_show_their_accounts_at_the_principal() {
        let payment = |principal: &str, cycles: u64| json!({"principal": principal, "cycles": cycles});
        let flow = |payments| json!({"flow": "a", "payments": payments, "worker": 0});
        let both =
            [flow(json!([payment("other", 7), payment("video", 42)])), flow(json!([payment("other", 8)]))];
        let text = flows_of("video", &both);
        assert!(text.contains("42") && !text.contains('7') && !text.contains('8'), "{text}");
        assert!(flows_of("video", &both[1..]).starts_with("no packet of video waits"));
    }
}
