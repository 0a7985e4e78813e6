//! The command `show`: a noun, or one entry of a list by name.

use serde_json::Value;

use crate::arguments::{Noun, Show};
use crate::client::Client;
use crate::commands::admission;
use crate::commands::configure::configuration::{missing, waits};
use crate::commands::forwarding::{control_plane, place};
use crate::commands::nouns::{PROMISE_TABLES, describe};
use crate::commands::observe::{events, hardware};
use crate::output::{Failure, plain, print, put, rows, say, tables, terminal_width};

/// Maximum number of known names that an error about an unknown name lists.
const NAMED: usize = 10;

impl Show {
    /// Returns the words of the equivalent command, if there is one.
    pub fn words(&self) -> Option<Vec<&str>> {
        let noun = describe(self.noun);
        let command = if self.name.is_some() { noun.command_of_one } else { noun.command };
        Some(command?.split(' ').chain(self.name.as_deref()).collect())
    }
}

/// Queries and prints the resource of a noun.
pub fn show(client: &Client, noun: Noun, json: bool) -> Result<(), Failure> {
    show_value(client.get(describe(noun).path)?, noun, json);
    Ok(())
}

fn show_value(mut value: Value, noun: Noun, json: bool) {
    match noun {
        Noun::Openapi => print(&value, "", true),
        Noun::Configuration if !json => put(value["text"].as_str().unwrap_or_default()),
        Noun::Hardware if !json => put(&hardware::drawn(&value)),
        Noun::Events if !json => put(&events::events_of(&value)),
        Noun::Audit if !json => put(&events::audit_of(&value)),
        Noun::Places if !json => put(&place::listed(&value)),
        Noun::ControlPlane if !json => put(&control_plane::listed(&value)),
        Noun::Allowances if !json => put(&admission::allowance::listed(&value)),
        Noun::Admission if !json => put(&admission::listed(&value)),
        Noun::Rates if !json => print(&value["ports"], describe(noun).columns, false),
        Noun::Promises if !json => {
            put(&promises(&value, terminal_width()));
        }
        Noun::Interface if !json => print(&value["resources"], describe(noun).columns, false),
        Noun::Status if !json => {
            put_units(&mut value);
            if let Some(waits) = waits(&value["pending"]) {
                value["pending"] = waits.into();
            }
            let missing = missing(&value);
            if !missing.is_empty() {
                value["missing_routes"] = missing.join("; ").into();
            }
            print(&value, "", false);
        }
        _ => show_rows(&mut value, noun, json),
    }
}

/// Returns the tables of the promises, at most `width` characters wide. Only the first may have no rows.
fn promises(value: &Value, width: usize) -> String {
    let filled = PROMISE_TABLES
        .iter()
        .enumerate()
        .filter(|(number, (list, ..))| *number == 0 || !rows(&value[*list]).is_empty());
    let texts = filled.map(|(_, (list, columns, keys))| tables(rows(&value[*list]), columns, (*keys, width)));
    texts.collect()
}

/// Values of the status that are printed with a unit: JSON pointer and unit.
const UNITS: [(&str, &str); 6] = [
    ("/uptime", "s"),
    ("/memory/frames", "of 2048 bytes"),
    ("/flow_states/bytes", "bytes"),
    ("/iterations/longest_change", "µs"),
    ("/sleeps", "times"),
    ("/routes", "prefixes"),
];

/// Appends units to the numbers of the status.
fn put_units(status: &mut Value) {
    let with_unit = |value: &mut Value, unit: &str| *value = format!("{} {unit}", plain(value)).into();
    for (place, unit) in UNITS {
        status.pointer_mut(place).into_iter().for_each(|value| with_unit(value, unit));
    }
    let seconds = status.get_mut("worker_cpu").and_then(Value::as_array_mut);
    seconds.into_iter().flatten().for_each(|value| with_unit(value, "s"));
}

/// Shows a list, or an object.
fn show_rows(value: &mut Value, noun: Noun, json: bool) {
    if !json {
        let what = if matches!(noun, Noun::Gates) { "action" } else { "gate" };
        value.as_array_mut().into_iter().flatten().for_each(|row| name_bindings(row, what));
    }
    print(value, describe(noun).columns, json);
    if !json {
        rows(value).iter().filter_map(bypassed).for_each(|line| say!("{line}"));
    }
}

/// Returns a warning if a port's device has a kernel queueing discipline, which the router's packets bypass.
fn bypassed(port: &Value) -> Option<String> {
    let discipline = port["queueing_discipline"].as_str()?;
    Some(format!(
        "{}: packets of the router bypass the kernel's qdisc {discipline} on this port; use a scheduler \
         instead (millrace scheduler)",
        plain(&port["name"])
    ))
}

/// Maximum number of bindings shown in a row; further ones are counted.
const MOST_BINDINGS: usize = 3;

/// Replaces the bindings in a row by text lines. Each line has the field `what` of a binding, and the
/// binding's filter.
fn name_bindings(row: &mut Value, what: &str) {
    let Some(Value::Array(bindings)) = row.get_mut("bindings") else { return };
    let line = |binding: &Value| format!("{} [{}]", plain(&binding[what]), plain(&binding["filter"]));
    let mut lines: Vec<Value> =
        bindings.iter().take(MOST_BINDINGS).map(|binding| line(binding).into()).collect();
    if bindings.len() > MOST_BINDINGS {
        lines.push(format!("and {} more", bindings.len() - MOST_BINDINGS).into());
    }
    *bindings = lines;
}

/// Shows a noun; with a name, only the list entries of that name.
pub fn show_one(client: &Client, asked: &Show, json: bool) -> Result<(), Failure> {
    let Some(name) = &asked.name else { return show(client, asked.noun, json) };
    let value = named(client.get(describe(asked.noun).path)?, asked.noun, name);
    value.map(|value| show_value(value, asked.noun, json))
}

/// Removes the rows that don't have the name `name`.
fn named(mut value: Value, noun: Noun, name: &str) -> Result<Value, Failure> {
    let (one, several) = noun.names();
    let Some((place, key)) = describe(noun).rows else {
        return Err(Failure::usage(format!("{one} {name:?}: `show {several}` takes no name; omit it")));
    };
    let name_of = |row: &Value| row.pointer(key).map(plain).unwrap_or_default();
    let mut known: Vec<String> = value.pointer(place).map(rows).into_iter().flatten().map(name_of).collect();
    // Drop reasons have underscores; the argument may have hyphens.
    let reason = name.replace('-', "_");
    let name = if matches!(noun, Noun::Drops) { reason.as_str() } else { name };
    if !known.iter().any(|known| known == name) {
        known.sort_unstable();
        known.dedup();
        return Err(unknown(&one, &several, name, &known));
    }
    let rows = value.pointer_mut(place).and_then(Value::as_array_mut);
    rows.into_iter().for_each(|rows| rows.retain(|row| name_of(row) == name));
    Ok(value)
}

/// Returns the error for an unknown name, with the known names.
fn unknown(one: &str, several: &str, name: &str, known: &[String]) -> Failure {
    let more = known.len().saturating_sub(NAMED);
    // Suggest no numbers: one number is hardly a typo of another.
    let words = known.iter().map(String::as_str).filter(|known| known.parse::<u64>().is_err());
    let hint = match millrace_units::nearest(name, words) {
        Some(near) => format!("did you mean {near:?}?"),
        None if known.is_empty() => format!("{several} here: none"),
        None => {
            let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
            format!("{several} here: {}{rest}", known[..known.len() - more].join(", "))
        }
    };
    Failure::new(format!("{one} {name:?}: no such {one}; {hint}"))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_selected_by_name_and_unknown_names_get_suggestions() {
        let filters = json!([{"id": 3, "match": "dport 1"}, {"id": 4, "match": "dport 2"}]);
        let shown = named(filters.clone(), Noun::Filters, "3").unwrap();
        assert_eq!(shown, json!([{"id": 3, "match": "dport 1"}]));
        let events = json!({"events": [{"number": 5}, {"number": 6}], "missed": 0});
        assert_eq!(
            named(events, Noun::Events, "6").unwrap(),
            json!({"events": [{"number": 6}], "missed": 0})
        );
        let drops = json!([{"reason": "new_flows"}, {"reason": "no_route"}]);
        assert_eq!(named(drops, Noun::Drops, "new-flows").unwrap(), json!([{"reason": "new_flows"}]));
        let refused = |value, noun, name| named(value, noun, name).unwrap_err();
        let unknown = refused(filters, Noun::Filters, "77");
        assert_eq!(
            (&*unknown.message, unknown.code),
            ("filter \"77\": no such filter; filters here: 3, 4", 1)
        );
        let near = refused(json!([{"name": "lan"}]), Noun::Ports, "lam");
        assert_eq!(near.message, "port \"lam\": no such port; did you mean \"lan\"?");
        let none = refused(json!([]), Noun::Tokens, "ci");
        assert_eq!(none.message, "token \"ci\": no such token; tokens here: none");
        let many: Vec<Value> = (10..30).map(|id| json!({"id": id})).collect();
        assert!(refused(many.into(), Noun::Bindings, "x").message.ends_with("18, 19, and 10 more"));
        let single = refused(json!({}), Noun::Status, "x");
        assert_eq!(
            (&*single.message, single.code),
            ("status \"x\": `show status` takes no name; omit it", 2)
        );
    }

    #[test]
    fn lists_have_keys_and_every_noun_command_parses() {
        // Connections are named by a filter of `connection list`.
        const WITHOUT_KEY: [&str; 7] =
            ["hardware", "summary", "status", "router", "configuration", "openapi", "connections"];
        for noun in Noun::value_variants() {
            let (_, several) = noun.names();
            let described = describe(*noun);
            let has_key = described.rows.is_some() || described.command_of_one.is_some();
            assert_eq!(has_key, !WITHOUT_KEY.contains(&&*several), "{several}");
            for name in [None, Some("7".to_owned())] {
                let show = Show { noun: *noun, name };
                if let Some(words) = show.words() {
                    crate::arguments::command(words.iter().copied()).unwrap();
                }
            }
        }
    }

    #[test]
    fn promises_show_deadlines_losses_and_idle_shares_also_on_narrow_terminals() {
        let window = json!({"delivered": 7.5, "entitled": 8.5, "idle": 1.25, "kept": false});
        let value = json!({
            "promises": [{"principal": "video", "promised": 10.0, "deadlines_met": 41, "deadlines_missed": 42,
                          "drops": {"cpu_queue": 43, "memory": 44, "core_ceiling": 45, "handover": 47, "link_queue": 46},
                          "windows": [window, window, window]}],
            "links": [{"principal": "video", "port": "wan", "windows": [
                {"delivered": 1001, "entitled": 1002, "idle": 1003, "kept": true},
                {"delivered": 1011, "entitled": 1012, "idle": 1013, "kept": true},
                {"delivered": 1021, "entitled": 1022, "idle": 1023, "kept": true}]}],
            "processes": [{"group": "plugin=scan", "promised": null, "processes": 3, "windows": [{"delivered": 30.5}]}],
            "thread_groups": [{"group": "workers", "threads": 2, "weight": 200, "obstacle": null}],
        });
        let wide = promises(&value, usize::MAX);
        assert_eq!(wide.lines().count(), 8, "{wide}");
        let narrow = promises(&value, 80);
        for text in [&wide, &narrow] {
            for number in (41..=47).chain([1001, 1002, 1012, 1013, 1022]) {
                assert!(text.contains(&number.to_string()), "{number}: {text}");
            }
            for word in [
                "met",
                "missed",
                "idle % 10 s",
                "ceiling",
                "kept",
                "processes of",
                "plugin=scan",
                "threads of",
            ] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        let named = narrow.lines().filter(|line| line.starts_with("video")).count();
        assert!(named > 3, "each table names its rows: {narrow}");
        // A column that is too wide alone stands alone.
        assert!(promises(&value, 5).contains("46"));
    }

    #[test]
    fn numbers_of_the_status_have_units() {
        let mut status = json!({"uptime": 1.44, "memory": {"used": 3, "frames": 32768}, "worker_cpu": [0.5, 2.0], "pid": 7});
        put_units(&mut status);
        let expected = json!({
            "uptime": "1.4 s",
            "memory": {"used": 3, "frames": "32768 of 2048 bytes"},
            "worker_cpu": ["0.5 s", "2.0 s"],
            "pid": 7
        });
        assert_eq!(status, expected);
    }

    #[test]
    fn bindings_read_as_lines() {
        let binding = |port: u16| json!({"gate": "monitor", "action": "drop", "filter": format!("dport {port}"), "packets": 5});
        let shown = |count: u16, what| {
            let mut row = json!({"bindings": (1..=count).map(binding).collect::<Vec<_>>()});
            name_bindings(&mut row, what);
            plain(&row["bindings"])
        };
        assert_eq!(shown(0, "gate"), "-");
        assert_eq!(shown(2, "gate"), "monitor [dport 1], monitor [dport 2]");
        assert_eq!(shown(5, "action"), "drop [dport 1], drop [dport 2], drop [dport 3], and 2 more");
        let mut port = json!({"name": "lan"});
        name_bindings(&mut port, "gate");
        assert_eq!(port, json!({"name": "lan"}));
    }
}
