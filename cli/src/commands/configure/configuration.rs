//! The commands for the whole configuration: `apply`, `diff`, `confirm`, `history`, `rollback`, `save`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hyper::Method;
use millrace_controller::utc;
use millrace_units::{by_number, count};
use serde_json::{Value, json};

use crate::arguments::{Apply, Confirm, Diff, History, HistoryAction, Rollback, Save};
use crate::client::Client;
use crate::commands::forwarding::lists::read;
use crate::output::{Failure, done, plain, print, rows, say, show};

const COLUMNS: &str = "revision=number | time=shown | who=who/name | state=shown_state | changes \
    | from=origin | comment";

/// Returns the origin that the router records for a file: its absolute path. For a remote router, this
/// machine's host name precedes the path.
fn origin(client: &Client, file: &Path) -> String {
    if file.as_os_str() == "-" {
        return "standard input".to_owned();
    }
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).display().to_string();
    match client.is_elsewhere() {
        true => {
            let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            format!("{}:{path}", name.trim())
        }
        false => path,
    }
}

/// Sends a configuration file to the router, which applies it, and prints the result.
pub fn apply(client: &Client, apply: &Apply, json: bool) -> Result<(), Failure> {
    let mut body = json!(apply.revision);
    body["text"] = read(&apply.file)?.into();
    body["origin"] = origin(client, &apply.file).into();
    applied(&client.send_and_watch(Method::POST, "/configuration", &body)?, json);
    warn_of_missing(client);
    Ok(())
}

/// Warns on standard error of configured routes that the kernel lacks.
fn warn_of_missing(client: &Client) {
    // The change is already made, so a failed query is ignored.
    let status = client.get("/status").unwrap_or_default();
    missing(&status).iter().for_each(|line| eprintln!("warning: {line}"));
}

/// Prints the router's answer to `apply` or `rollback`.
fn applied(value: &Value, json: bool) {
    let changes = rows(&value["changes"]);
    let lines: String = changes.iter().map(|change| format!("  {}\n", plain(change))).collect();
    let (what, origin) = (count(changes.len(), "change"), plain(&value["origin"]));
    let line = match (value["revision"].as_u64(), value["confirm"].as_str()) {
        (None, _) if changes.is_empty() => {
            format!("{origin} equals the running configuration: nothing changed")
        }
        (Some(revision), None) if changes.is_empty() => {
            format!(
                "{origin} equals the running configuration: nothing changed; it is revision {revision} now"
            )
        }
        (None, _) => format!("{lines}reverted to {origin}: {what}"),
        (Some(revision), None) => format!("{lines}revision {revision} runs: {what}"),
        (Some(revision), Some(time)) => format!(
            "{lines}revision {revision} runs: {what}; the router reverts it in {time} unless you run `millrace confirm`"
        ),
    };
    done(value, &line, json);
    crate::commands::forwarding::filter::warn_never_winning(&value["shadowed"]);
}

/// Returns a line for each configured route that the kernel lacks.
pub fn missing(status: &Value) -> Vec<String> {
    let named = rows(&status["missing_routes"]["first"]);
    let line =
        |route: &Value| format!("the route to {} is missing: {}", plain(&route["to"]), plain(&route["why"]));
    let mut lines: Vec<String> = named.iter().map(line).collect();
    let all = status["missing_routes"]["count"].as_u64().unwrap_or(0);
    let more = all.saturating_sub(lines.len() as u64);
    let are = by_number(more, "is", "are");
    lines.extend(
        (more > 0).then(|| format!("{} {are} missing: `millrace route list`", count(more, "more route"))),
    );
    lines
}

/// Returns a line about a revision that awaits confirmation, if there is one.
pub fn waits(pending: &Value) -> Option<String> {
    let (revision, seconds) = (pending["revision"].as_u64()?, pending["seconds"].as_u64()?);
    Some(format!(
        "revision {revision} is unconfirmed; the router reverts it in {seconds} s unless you run `millrace confirm`"
    ))
}

/// Returns the failure with exit code 2, since 1 means that `diff` found differences.
fn trouble(failure: Failure) -> Failure {
    Failure { code: 2, ..failure }
}

/// Shows the changes that a file would make. As with diff(1), the exit code is 1 for differences, and 2 for
/// errors.
pub fn diff(client: &Client, diff: &Diff, json: bool) -> Result<ExitCode, Failure> {
    let body = match &diff.file {
        Some(file) => json!({"text": read(file).map_err(trouble)?, "origin": origin(client, file)}),
        None => json!({}),
    };
    let mut value = client.send(Method::POST, "/configuration/diff", Some(&body)).map_err(trouble)?;
    let status = client.get("/status").map_err(trouble)?;
    let pending = status["pending"].clone();
    if !status["missing_routes"].is_null() {
        value["missing_routes"] = status["missing_routes"].clone();
    }
    if pending.is_object() {
        value["pending"] = pending.clone();
    }
    let (changes, restart) = (rows(&value["changes"]), rows(&value["restart"]));
    let (same, origin) = (changes.is_empty() && restart.is_empty(), plain(&value["origin"]));
    show(&value, json, || {
        let notes = waits(&pending).into_iter().chain(missing(&status)).map(|note| format!("# {note}\n"));
        let mut text: String = notes.collect();
        if same {
            return text + &format!("# {origin} equals the running configuration\n");
        }
        if diff.file.is_none() {
            text += &format!("# changes that would restore {origin}, as last applied or saved:\n");
        }
        text.extend(changes.iter().map(|change| plain(change) + "\n"));
        text.extend(restart.iter().map(|sentence| format!("# needs a restart: {}\n", plain(sentence))));
        text
    });
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Confirms the unconfirmed revision, so that the router does not revert it.
pub fn confirm(client: &Client, confirm: &Confirm, json: bool) -> Result<(), Failure> {
    let body = confirm.number.map(|number| json!({"revision": number}));
    let value = client.send(Method::POST, "/configuration/confirm", body.as_ref())?;
    done(&value, &format!("revision {} confirmed", plain(&value["revision"])), json);
    Ok(())
}

/// Lists revisions, or shows one.
pub fn history(client: &Client, history: &History, json: bool) -> Result<(), Failure> {
    if let Some(HistoryAction::Show { number }) = history.action {
        let value = client.get(&format!("/revisions/{number}"))?;
        show(&value, json, || text_of(&value));
        return Ok(());
    }
    let mut value = client.get("/revisions")?;
    if json {
        print(&value, "", true);
        return Ok(());
    }
    let pending = client.get("/status")?["pending"].clone();
    for revision in value.as_array_mut().into_iter().flatten() {
        revision["shown"] = utc(revision["time"].as_u64().unwrap_or(0)).into();
        let runs = revision["runs"].as_bool().unwrap_or_default();
        let shown = match pending["seconds"].as_u64() {
            Some(seconds) if pending["revision"] == revision["number"] => {
                format!("waiting, {seconds} s").into()
            }
            _ if runs => "runs".into(),
            _ => revision["state"].clone(),
        };
        revision["shown_state"] = shown;
    }
    if rows(&value).is_empty() {
        say!("no revisions yet");
        return Ok(());
    }
    print(&value, COLUMNS, false);
    Ok(())
}

/// Returns the text of a configuration. Keeps control characters, because a configuration may contain any
/// character.
fn text_of(value: &Value) -> String {
    value["text"].as_str().unwrap_or_default().to_owned()
}

/// Rolls back to an earlier revision, or reverts the unconfirmed one.
pub fn rollback(client: &Client, rollback: &Rollback, json: bool) -> Result<(), Failure> {
    let mut body = json!(rollback.revision);
    body["revision"] = json!(rollback.number);
    applied(&client.send_and_watch(Method::POST, "/configuration/rollback", &body)?, json);
    warn_of_missing(client);
    Ok(())
}

/// Writes the running configuration to a file, and stores it as a revision.
pub fn save(client: &Client, save: &Save, json: bool) -> Result<(), Failure> {
    let written = |body| client.send(Method::POST, "/configuration/save", Some(&body));
    let file = match &save.file {
        Some(file) if file.as_os_str() == "-" => {
            let value = written(json!({}))?;
            show(&value, json, || text_of(&value));
            return Ok(());
        }
        Some(file) => file.clone(),
        None => known_file(client)?,
    };
    let name = file.display().to_string();
    let before = match fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.map_err(|error| Failure::new(format!("can't read {name}: {error}")))?,
    };
    let origin = origin(client, &file);
    let value = written(json!({"text": before, "origin": origin, "force": save.force}))?;
    let text = value["text"].as_str().unwrap_or_default();
    // The order is: write the temporary file, store the revision, rename the file. So there is no revision if
    // the file can't be written, and the file stays as it is if the router refuses the revision.
    let failed = |error| Failure::new(format!("can't write {name}: {error}"));
    let beside = (text != before).then(|| Beside::write(&file, text)).transpose().map_err(failed)?;
    let kept = json!({"text": text, "origin": origin, "comment": save.comment});
    let revision = client.send(Method::POST, "/revisions", Some(&kept))?["number"].clone();
    if let Some(beside) = beside {
        beside.replace().map_err(failed)?;
    }
    let line = match text == before {
        true => format!("{name} equals the running configuration: nothing changed"),
        false => format!("saved the running configuration to {name} as revision {revision}"),
    };
    done(&json!({"file": name, "changed": text != before, "revision": revision}), &line, json);
    Ok(())
}

/// Returns the file of the running configuration. If a revision was restored, that is the revision's file.
fn known_file(client: &Client) -> Result<PathBuf, Failure> {
    if client.is_elsewhere() {
        return Err(Failure::usage(
            "the router is remote: name a file on this machine, or - for standard output",
        ));
    }
    let mut origin = plain(&client.get("/configuration")?["origin"]);
    while let Some(number) = origin.strip_prefix("revision ").and_then(|number| number.parse::<u64>().ok()) {
        origin = plain(&client.get(&format!("/revisions/{number}"))?["origin"]);
    }
    let file = PathBuf::from(&origin);
    match file.is_absolute() {
        true => Ok(file),
        false => Err(Failure::usage(format!(
            "the running configuration comes from {origin}, which is not a file: name a file"
        ))),
    }
}

/// Temporary file with the new text, beside the file to replace. Dropping this removes the temporary file,
/// unless [`Beside::replace`] has renamed it.
struct Beside {
    file: PathBuf,
    new: Option<PathBuf>,
}

impl Beside {
    /// Writes and syncs the temporary file, with the mode and owner of the file to replace.
    fn write(file: &Path, text: &str) -> io::Result<Self> {
        // If `file` is a symbolic link, replace its target.
        let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let new = file.with_added_extension("new");
        let known = fs::metadata(&file).ok();
        let mode = known.as_ref().map_or(0o644, |known| known.permissions().mode() & 0o7777);
        // Remove an existing file of this name, which may be left over or belong to another user, instead of
        // writing into it.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut made = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        let beside = Self { file, new: Some(new) };
        made.write_all(text.as_bytes())?;
        if let Some(known) = &known {
            made.set_permissions(fs::Permissions::from_mode(mode))?;
            std::os::unix::fs::fchown(&made, Some(known.uid()), Some(known.gid()))?;
        }
        made.sync_all()?;
        Ok(beside)
    }

    /// Replaces the file atomically.
    fn replace(mut self) -> io::Result<()> {
        if let Some(new) = &self.new {
            fs::rename(new, &self.file)?;
        }
        self.new = None;
        let parent = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(new) = &self.new {
            // A failed removal is harmless: no program reads the leftover.
            drop(fs::remove_file(new));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_with_its_permissions_and_no_leftovers() {
        let folder = std::env::temp_dir().join(format!("millrace-cli-save-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("router.toml");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        drop(Beside::write(&file, "never").unwrap());
        // Another user's file may be linked under the temporary name. Its content must stay.
        let (other, new) = (folder.join("other"), folder.join("router.toml.new"));
        fs::write(&other, "kept").unwrap();
        fs::hard_link(&other, &new).unwrap();
        drop(Beside::write(&file, "never").unwrap());
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        fs::remove_file(&other).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        Beside::write(&file, "new").unwrap().replace().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
