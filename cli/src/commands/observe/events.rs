//! The commands `events` and `audit`.

use millrace_units::{by_number, count};
use serde_json::Value;

use crate::arguments::{Audit, Events};
use crate::client::Client;
use crate::commands::observe::messages::{Message, print_messages};
use crate::output::{Failure, is_harmless, plain, rows, show};

/// Prints events; with `--follow`, continues with new ones.
pub fn events(client: &Client, asked: &Events, json: bool) -> Result<(), Failure> {
    if asked.follow {
        return print_messages(client, &path(asked, asked.last.map(Some)), |Message { event, data }| {
            let text = match (&*event, json) {
                (_, true) => data.to_string(),
                ("missed", false) => gap(data["missed"].as_u64().unwrap_or_default()),
                _ => line(&data),
            };
            Some((text + "\n", true))
        });
    }
    let page = client.get(&path(asked, asked.since.is_none().then_some(asked.last)))?;
    show(&page, json, || events_of(&page));
    Ok(())
}

/// Formats the events of a page, one per line.
pub fn events_of(page: &Value) -> String {
    let missed = page["missed"].as_u64().filter(|missed| *missed > 0);
    let all = missed.map(gap).into_iter().chain(rows(&page["events"]).iter().map(line));
    all.map(|line| line + "\n").collect()
}

/// Returns the path of the resource with its query.
fn path(asked: &Events, last: Option<Option<u32>>) -> String {
    let since = asked.since.map(|since| format!("since={since}"));
    let last = last.map(|last| format!("last={}", last.unwrap_or(Events::LAST)));
    let kinds = (!asked.kinds.is_empty()).then(|| format!("kind={}", asked.kinds.join(",")));
    let all: Vec<String> = since.into_iter().chain(last).chain(kinds).collect();
    if all.is_empty() { "/events".to_owned() } else { format!("/events?{}", all.join("&")) }
}

/// Formats an event as a line.
fn line(event: &Value) -> String {
    let several = event["count"].as_u64().filter(|times| *times > 1);
    let times = several.map(|times| format!(" ({})", count(times, "time"))).unwrap_or_default();
    let [number, time, severity, kind, text] =
        ["number", "time", "severity", "kind", "text"].map(|key| plain(&event[key]));
    format!("{number:>6}  {time}  {severity:<11}  {kind:<25}  {text}{times}")
}

fn gap(missed: u64) -> String {
    let are = by_number(missed, "is", "are");
    format!("        {} in between {are} no longer in memory", count(missed, "event"))
}

/// Prints the last lines of the audit log.
pub fn audit(client: &Client, asked: &Audit, json: bool) -> Result<(), Failure> {
    let lines = client.get(&format!("/audit?last={}", asked.last))?;
    show(&lines, json, || audit_of(&lines));
    Ok(())
}

/// Formats lines of the audit log.
pub fn audit_of(lines: &Value) -> String {
    rows(lines).iter().map(|entry| audit_line(entry) + "\n").collect()
}

/// Formats a line of the audit log.
fn audit_line(entry: &Value) -> String {
    let [time, who, outcome, operation] = ["/time", "/who/name", "/outcome", "/operation"]
        .map(|key| entry.pointer(key).map_or_else(String::new, plain));
    let request = entry.get("request").filter(|request| !request.is_null());
    let request = request.map(|request| format!(" {request}")).unwrap_or_default();
    let why = entry["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    let revision = entry["revision"].as_u64().map(|number| format!(" (revision {number})"));
    let revision = revision.unwrap_or_default();
    let line = format!("{time}  {who:<12}  {outcome:<9}  {operation}{request}{revision}{why}");
    // Replace control characters by blanks: the logged request may contain those of terminals.
    line.chars().map(|letter| if is_harmless(letter) { letter } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn audit_line_has_caller_operation_and_reason() {
        let entry = json!({"time": "2026-11-22T15:36:44.123Z", "who": {"uid": 0, "name": "root"}, "pid": 7,
            "operation": "DELETE /filters/9", "request": null, "outcome": "refused", "status": 404,
            "why": "no filter has the id 9"});
        let line = audit_line(&entry);
        assert!(line.contains("root") && line.contains("refused"), "{line}");
        assert!(line.ends_with("DELETE /filters/9: no filter has the id 9"), "{line}");
    }

    #[test]
    fn an_event_is_a_line() {
        let event = json!({"number": 12, "time": "2026-11-22T15:36:44.123Z", "severity": "warning",
            "kind": "plugin-fault", "text": "instance i1 failed", "count": 3});
        let line = line(&event);
        assert!(line.starts_with("    12  2026-11-22T15:36:44.123Z  warning      plugin-fault"), "{line}");
        assert!(line.ends_with("instance i1 failed (3 times)"), "{line}");
    }
}
