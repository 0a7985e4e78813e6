//! The command `filter`.

use hyper::Method;
use millrace_units::{by_number, count};
use serde_json::{Value, json};

use crate::arguments::{FilterAction, Noun};
use crate::client::{Client, segment};
use crate::commands::forwarding::lists::Lines;
use crate::commands::nouns::describe;
use crate::commands::watch;
use crate::output::{Failure, done, plain, rows, say, show};

/// Adds, removes, lists and explains filters.
pub fn filter(client: &Client, action: &FilterAction, json: bool) -> Result<(), Failure> {
    match action {
        FilterAction::Add { from: Some(file), .. } => {
            let value = Lines::read(file, entry, json)?.send(client, Method::POST, "/filters", json)?;
            done(&value, &format!("{} added", count(plain(&value["added"]), "filter")), json);
            warn_never_winning(&value["shadowed"]);
        }
        FilterAction::Add { filter, action, gate, priority, from: None } => {
            let body = json!({"match": filter, "action": action, "gate": gate, "priority": priority});
            let value = client.send(Method::POST, "/filters", Some(&body))?;
            let [id, gate, action, filter] = ["id", "gate", "action", "match"].map(|key| plain(&value[key]));
            done(&value, &format!("filter {id} added at gate {gate}: {action} for {filter}"), json);
            warn_shadowed(&value);
        }
        FilterAction::Remove { which, action, gate, priority } => {
            let body = match action {
                Some(action) => {
                    json!({"match": which.join(" "), "action": action, "gate": gate, "priority": priority})
                }
                None => json!({"ids": ids(which)?}),
            };
            let value = client.send(Method::DELETE, "/filters", Some(&body))?;
            let line = |gone: &Value| {
                let [id, action, filter] = ["id", "action", "match"].map(|key| plain(&gone[key]));
                format!("filter {id} removed: {action} for {filter}")
            };
            let lines: Vec<String> = rows(&value).iter().map(line).collect();
            done(&value, &lines.join("\n"), json);
        }
        FilterAction::List { gate, lines, watch: how } => {
            if let Some(gate) = gate {
                // Check that the gate exists: an unknown gate is an error, not an empty list.
                client.get(&format!("/gates/{}", segment(gate)))?;
            }
            let look = || {
                let mut value = client.get("/filters")?;
                if let (Some(gate), Value::Array(rows)) = (gate, &mut value) {
                    rows.retain(|row| row["gate"] == gate.as_str());
                }
                Ok(value)
            };
            if *lines && !json {
                rows(&look()?).iter().for_each(|filter| say!("{}", line(filter)));
            } else {
                watch::list(how, look, ("id", describe(Noun::Filters).columns), json)?;
            }
        }
        FilterAction::Explain { packet } => {
            let value = client.get(&format!("/filters/explain?packet={}", segment(packet)))?;
            show(&value, json, || explained(&value));
        }
        FilterAction::Check => return check(&client.get("/filters/check")?, json),
    }
    Ok(())
}

fn ids(which: &[String]) -> Result<Vec<u64>, Failure> {
    let id = |text: &String| {
        text.parse::<u64>().map_err(|_| {
            Failure::usage(format!(
                "{text:?} is no filter id (`filter list` shows ids); to remove a filter by its match, add --action"
            ))
        })
    };
    which.iter().map(id).collect()
}

/// Parses a line: `FILTER action ACTION [gate GATE] [priority PRIORITY]`, as `filter list --lines` prints it.
fn entry(line: &str) -> Result<Value, String> {
    const FORM: &str = "write FILTER action ACTION [gate GATE] [priority PRIORITY]";
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words
        .iter()
        .position(|word| *word == "action")
        .ok_or_else(|| format!("the line has no action: {FORM}"))?;
    let (filter, mut action) = (words[..at].join(" "), &words[at + 1..]);
    let (mut gate, mut priority) = (None, None);
    // The action has at least one word, even if that word is `gate` or `priority`.
    while let [before @ .., _, key @ ("gate" | "priority"), value] = action {
        match *key {
            "gate" if gate.replace(*value).is_some() => return Err(format!("gate is given twice: {FORM}")),
            "priority" if priority.is_some() => return Err(format!("priority is given twice: {FORM}")),
            "priority" => {
                let number = value.parse().map_err(|_| format!("priority {value:?} is not a whole number"));
                priority = Some(number?);
            }
            _ => {}
        }
        action = &action[..before.len() + 1];
    }
    if filter.is_empty() || action.is_empty() {
        return Err(format!("the line has no filter or no action: {FORM}; * matches all packets"));
    }
    let priority: i32 = priority.unwrap_or(0);
    Ok(json!({"match": filter, "action": action.join(" "), "gate": gate, "priority": priority}))
}

/// Formats a filter as a line that [`entry`] reads.
fn line(filter: &Value) -> String {
    let [matches, action, gate, priority] =
        ["match", "action", "gate", "priority"].map(|key| plain(&filter[key]));
    format!("{matches} action {action} gate {gate} priority {priority}")
}

/// Formats the answer of `filter explain`: the candidate filters of each gate, with the chosen one marked.
fn explained(value: &Value) -> String {
    let mut text = String::new();
    for gate in rows(value) {
        text += &format!("gate {}, position {}\n", plain(&gate["gate"]), plain(&gate["position"]));
        for candidate in rows(&gate["candidates"]) {
            let mark = if candidate["chosen"] == true { "*" } else { " " };
            let [id, filter, action, priority, outcome] =
                ["id", "match", "action", "priority", "outcome"].map(|key| plain(&candidate[key]));
            text += &format!("{mark} {id:>4}  {action} for {filter}, priority {priority}: {outcome}\n");
        }
        if gate["left_out"] != 0 {
            let more = plain(&gate["left_out"]);
            text += &format!("        {more} more {} not match\n", by_number(&more, "does", "do"));
        }
    }
    or_no_filters(text)
}

/// Returns `text`, or a note that no gate has filters if `text` is empty.
fn or_no_filters(text: String) -> String {
    if text.is_empty() { "no gate has filters\n".to_owned() } else { text }
}

/// Formats a filter for the findings of `check`.
fn named(filter: &Value) -> String {
    let [id, filter, action, priority] = ["id", "match", "action", "priority"].map(|key| plain(&filter[key]));
    format!("filter {id} ({action} for {filter}, priority {priority})")
}

/// Warns on standard error if a new filter or binding matches no packet, or if preceding filters cover it.
pub fn warn_shadowed(value: &Value) {
    if let Some(why) = value["unreached"].as_str() {
        eprintln!("warning: no packet matches the filter: {why}");
    }
    let by = rows(&value["shadowed_by"]);
    if !by.is_empty() {
        eprintln!(
            "warning: the filter never wins: {}; raise its --priority, or remove the preceding filters",
            before(by)
        );
    }
}

/// Maximum number of shadowed filters that warnings name; the rest is only counted.
const WARNED: usize = 20;

/// Warns on standard error of each filter and binding in a list that never wins, because preceding filters
/// match all its packets.
pub fn warn_never_winning(shadowed: &Value) {
    let all = rows(shadowed);
    for finding in all.iter().take(WARNED) {
        eprintln!("warning: {} never wins: {}", named(&finding["filter"]), before(rows(&finding["by"])));
    }
    if all.len() > WARNED {
        let more = all.len() - WARNED;
        eprintln!("warning: {more} more never {}: `millrace filter check`", by_number(more, "wins", "win"));
    }
}

/// Formats the filters that together shadow another filter; often this is a single filter.
fn before(by: &[Value]) -> String {
    match by {
        [one] => format!("{} precedes it", named(one)),
        several => {
            let named: Vec<String> = several.iter().map(named).collect();
            format!("{} precede it and together match all of its packets", named.join(", "))
        }
    }
}

/// Prints the findings of `filter check`. Returns an error if there are any, for the exit code.
fn check(value: &Value, json: bool) -> Result<(), Failure> {
    show(value, json, || findings(value));
    let lists = ["shadowed", "ambiguous", "below_routes"];
    let found = |gate: &Value| lists.iter().map(|list| rows(&gate[list]).len()).sum::<usize>();
    match rows(value).iter().map(found).sum() {
        0 => Ok(()),
        findings => Err(Failure::new(format!("{}: see above", count(findings, "finding")))),
    }
}

/// Formats the findings about the filters of each gate.
fn findings(value: &Value) -> String {
    let mut text = String::new();
    for gate in rows(value) {
        let [name, filters, pairs] = ["gate", "filters", "ambiguous_pairs"].map(|key| plain(&gate[key]));
        let shadowed = rows(&gate["shadowed"]);
        text += &format!(
            "gate {name}: {}, {} never {}, {}\n",
            count(filters, "filter"),
            shadowed.len(),
            by_number(shadowed.len(), "wins", "win"),
            count(pairs, "ambiguous pair")
        );
        let never = |finding: &Value| {
            format!("  {} never wins: {}\n", named(&finding["filter"]), before(rows(&finding["by"])))
        };
        let undecided = |filter: &Value| {
            let what = "the check could not decide whether other filters together match all of its packets";
            format!("  {}: {what}\n", named(filter))
        };
        let ambiguous = |pair: &Value| {
            let [winner, loser] = ["winner", "loser"].map(|key| named(&pair[key]));
            let by = plain(&pair["decided_by"]);
            format!("  {winner} wins over {loser} by {by}: give the filters different priorities\n")
        };
        let below =
            |filter: &Value| format!("  {} loses against every route: raise its priority\n", named(filter));
        text.extend(shadowed.iter().map(never));
        text.extend(rows(&gate["undecided"]).iter().map(undecided));
        text.extend(rows(&gate["ambiguous"]).iter().map(ambiguous));
        text.extend(rows(&gate["below_routes"]).iter().map(below));
    }
    or_no_filters(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_filter_lines_parse() {
        for (filter, action, gate, priority) in [
            ("*", "drop", "route", 0),
            ("proto tcp dport 25", "port wan via 10.2.0.77", "firewall", -5),
            ("src 10.1.0.0/16", "instance gate", "monitor", 7),
        ] {
            let entry_of = json!({"match": filter, "action": action, "gate": gate, "priority": priority});
            assert_eq!(entry(&line(&entry_of)).unwrap(), entry_of);
        }
        let short = entry("proto udp action copy-to probe").unwrap();
        assert_eq!(
            (&short["action"], &short["gate"], &short["priority"]),
            (&json!("copy-to probe"), &Value::Null, &json!(0))
        );
    }

    #[test]
    fn preceding_filters_are_named_singly_or_together() {
        let one = |id: u64| json!({"id": id, "match": "proto udp", "action": "drop", "priority": 2});
        let named = |id| format!("filter {id} (drop for proto udp, priority 2)");
        assert_eq!(before(&[one(7)]), format!("{} precedes it", named(7)));
        let several = before(&[one(7), one(8)]);
        assert_eq!(
            several,
            format!("{}, {} precede it and together match all of its packets", named(7), named(8))
        );
    }

    #[test]
    fn invalid_filter_line_is_refused() {
        for line in [
            "proto udp",
            "proto udp action",
            "action drop",
            "* action drop priority x",
            "* action drop gate a gate b",
            "* action drop priority 1 priority 2",
        ] {
            assert!(entry(line).is_err(), "{line}");
        }
    }
}
