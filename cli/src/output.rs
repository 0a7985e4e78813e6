//! How commands end: text and tables for people, JSON for programs, one line for what failed.

use std::io::IsTerminal as _;

use serde_json::{Value, json};

/// Why a command failed: what to say, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// One line: what, where, what would be right.
    pub message: String,
    /// 1 failed, 2 wrong usage.
    pub code: u8,
    /// How many entries of a list are wrong that was sent.
    pub wrong: usize,
    /// The first of them: their numbers, from 0, and what is wrong.
    pub entries: Vec<(usize, String)>,
}

impl Failure {
    /// A failure.
    pub fn new(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: 1, wrong: 0, entries: Vec::new() }
    }

    /// The failure as programs read it: `{error, code}`, and for a list that was refused `wrong`, how many of its entries are,
    /// and `errors`, the first of them.
    pub fn json(&self) -> Value {
        let mut value = json!({"error": self.message, "code": self.code});
        if self.wrong > 0 {
            let entry = |(entry, detail): &(usize, String)| json!({"entry": entry, "detail": detail});
            value["wrong"] = self.wrong.into();
            value["errors"] = self.entries.iter().map(entry).collect();
        }
        value
    }

    /// A wrong usage.
    pub fn usage(message: impl ToString) -> Self {
        Self { code: 2, ..Self::new(message) }
    }
}

/// How far long work is, on standard error: one line that changes on a terminal, else a line each time.
#[derive(Debug, Default)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Says how far it is, by the JSON `{made, of}`.
    pub fn show(&mut self, applying: &Value) {
        let (Some(made), Some(of)) = (applying["made"].as_u64(), applying["of"].as_u64()) else { return };
        if of == 0 {
            return;
        }
        let end = if std::io::stderr().is_terminal() { "\r" } else { "\n" };
        eprint!("{made} of {of} changes made{end}");
        self.shown = true;
    }

    /// Ends the line.
    pub fn end(&self) {
        if self.shown && std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}

/// A column of a table: its heading, and where in a row's JSON its value stands (`/` separates levels).
pub type Column = (&'static str, &'static str);

/// Renders rows as a table, numbers to the right.
pub fn table(rows: &[Value], columns: &[Column]) -> String {
    let mut cells: Vec<Vec<String>> =
        vec![columns.iter().map(|(heading, _)| (*heading).to_owned()).collect()];
    cells.extend(rows.iter().map(|row| columns.iter().map(|(_, key)| cell(row, key)).collect()));
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let numeric: Vec<bool> = (0..columns.len())
        .map(|column| {
            rows.iter().any(|row| row.pointer(&pointer(columns[column].1)).is_some_and(Value::is_number))
        })
        .collect();
    let mut text = String::new();
    for row in &cells {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .zip(&numeric)
            .map(
                |((cell, width), numeric)| {
                    if *numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
                },
            )
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn pointer(key: &str) -> String {
    format!("/{key}")
}

fn cell(row: &Value, key: &str) -> String {
    row.pointer(&pointer(key)).map_or_else(String::new, plain)
}

/// A JSON value as a person would write it.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => scaled(number.as_f64().unwrap_or(0.0)),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Object(fields) if fields.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| format!("{key} {}", plain(value))).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

fn scaled(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{:.2} G", value / 1e9),
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.2} k", value / 1e3),
        // Four digits behind the point, without zeros at their end.
        v if v > 0.0 && v < 1.0 => format!("{}", (value * 1e4).round() / 1e4),
        _ => format!("{value:.1}"),
    }
}

/// The items of a list; none of what is no list.
pub fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Renders one object as lines of key and value.
pub fn lines(object: &Value) -> String {
    let Value::Object(fields) = object else { return format!("{}\n", plain(object)) };
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    fields.iter().map(|(key, value)| format!("{key:<width$}  {}\n", plain(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_json_for_programs() {
        assert_eq!(Failure::new("no").json(), json!({"error": "no", "code": 1}));
        let list = Failure { wrong: 3, entries: vec![(7, "twice".to_owned())], ..Failure::usage("no") };
        let errors = json!([{"entry": 7, "detail": "twice"}]);
        assert_eq!(list.json(), json!({"error": "no", "code": 2, "wrong": 3, "errors": errors}));
    }

    #[test]
    fn numbers_stand_to_the_right_and_text_to_the_left() {
        let rows = [json!({"name": "lan", "n": 5}), json!({"name": "w", "n": 12345})];
        assert_eq!(table(&rows, &[("port", "name"), ("rx", "n")]), "port     rx\nlan       5\nw     12345\n");
    }

    #[test]
    fn values_read_as_people_write_them() {
        assert_eq!(plain(&json!({"a": [1, 2], "b": null})), "a 1, 2, b -");
        assert_eq!(plain(&json!(2_500_000.0)), "2.50 M");
        assert_eq!((&*plain(&json!({})), &*plain(&json!([]))), ("-", "-"));
    }
}
