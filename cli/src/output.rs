//! Output of commands: text and tables for people, JSON for programs, failures on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use millrace_config::{ConfigError, ConfigErrors, Place};
use millrace_controller::ControlError;
use millrace_port::create_output;
use millrace_units::count;
use serde_json::{Value, json};

/// Failure of a command: message and exit code.
#[derive(Debug)]
pub struct Failure {
    /// Message with place and remedy: one line, or one line for each error in a configuration.
    pub message: String,
    /// Exit code: 1 failure, 2 wrong usage.
    pub code: u8,
    /// Number of wrong entries in a list sent to the router, or of errors in a configuration.
    pub wrong: usize,
    /// First errors. Each has the problem as `detail`, and its place: `entry` in the list (from 0), or
    /// `file`, `line` and `column`.
    pub errors: Vec<Value>,
}

impl Failure {
    /// Prints the failure on standard error. Returns the exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        if json {
            eprintln!("{}", self.json());
        } else {
            self.message.lines().for_each(|line| eprintln!("millrace: {line}"));
        }
        ExitCode::from(self.code)
    }

    /// Creates a failure with exit code 1.
    pub fn new(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: 1, wrong: 0, errors: Vec::new() }
    }

    /// Returns the failure as JSON: `{error, code}`. For several errors, `wrong` is their number, and
    /// `errors` holds the first of them.
    pub fn json(&self) -> Value {
        let mut value = json!({"error": self.message, "code": self.code});
        if self.wrong > 0 {
            value["wrong"] = self.wrong.into();
            value["errors"] = self.errors.clone().into();
        }
        value
    }

    /// Creates a failure with exit code 2, for wrong usage.
    pub fn usage(message: impl ToString) -> Self {
        Self { code: 2, ..Self::new(message) }
    }
}

impl From<ConfigErrors> for Failure {
    fn from(wrong: ConfigErrors) -> Self {
        let error = |ConfigError { place: Place { origin, line, column }, problem }: &ConfigError| {
            let place = (*line > 0).then_some((line, column)).unzip();
            json!({"file": origin, "line": place.0, "column": place.1, "detail": problem.to_string()})
        };
        let errors = wrong.errors().iter().map(error).collect();
        Self { wrong: wrong.wrong(), errors, ..Self::new(wrong) }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Config(wrong) => wrong.into(),
            other => Self::new(other),
        }
    }
}

/// Progress of long work on standard error. A terminal shows one changing line; other outputs get a new line
/// each time.
#[derive(Debug, Default)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Prints the progress in the JSON `{made, of}`.
    pub fn show(&mut self, applying: &Value) {
        let (Some(made), Some(of)) = (applying["made"].as_u64(), applying["of"].as_u64()) else { return };
        if of == 0 {
            return;
        }
        let end = if std::io::stderr().is_terminal() { "\r" } else { "\n" };
        eprint!("{made} of {} made{end}", count(of, "change"));
        self.shown = true;
    }

    /// Ends the changing line, so that further output starts on a new line.
    pub fn end(&self) {
        if self.shown && std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}

/// Maximum width of a column in characters; longer cells shift the rest of their row.
const WIDEST: usize = 200;

/// Formats rows as a table with right-aligned numbers. `columns` lists the columns, separated by `|`. The
/// column `rx=rx_packets` has the heading `rx`, and shows the value `rx_packets` of each row. `mtu` has the
/// heading and value `mtu`. In values, `/` separates levels of JSON.
pub fn table(rows: &[Value], columns: &str) -> String {
    let columns: Vec<(&str, &str)> =
        columns.split(" | ").map(|column| column.split_once('=').unwrap_or((column, column))).collect();
    let mut cells: Vec<Vec<String>> =
        vec![columns.iter().map(|(heading, _)| (*heading).to_owned()).collect()];
    cells.extend(rows.iter().map(|row| columns.iter().map(|(_, key)| cell(row, key)).collect()));
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(WIDEST))
        .collect();
    let is_number =
        |key: &str| rows.iter().any(|row| row.pointer(&pointer(key)).is_some_and(Value::is_number));
    let numeric: Vec<bool> = columns.iter().map(|(_, key)| is_number(key)).collect();
    let mut text = String::new();
    for row in &cells {
        let padded = |((cell, width), numeric): ((&String, &usize), &bool)| match numeric {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        };
        let line: Vec<String> = row.iter().zip(&widths).zip(&numeric).map(padded).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Formats rows as [`table`] does, in as many tables below each other as fit into `width` characters. Each begins with the
/// first `keys` columns, which name the row.
pub fn tables(rows: &[Value], columns: &str, (keys, width): (usize, usize)) -> String {
    let columns: Vec<&str> = columns.split(" | ").collect();
    let (keys, others) = columns.split_at(keys.min(columns.len()));
    let fits = |columns: &[&str]| {
        let text = table(rows, &columns.join(" | "));
        text.lines().all(|line| line.chars().count() <= width)
    };
    let mut blocks: Vec<Vec<&str>> = vec![keys.to_vec()];
    for column in others {
        let block = blocks.last().map_or(&[][..], Vec::as_slice);
        let longer = [block, &[*column]].concat();
        match block.len() > keys.len() && !fits(&longer) {
            true => blocks.push([keys, &[*column]].concat()),
            false => _ = blocks.last_mut().map(|last| *last = longer),
        }
    }
    let texts = blocks.iter().map(|block| table(rows, &block.join(" | ")));
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the width of the terminal in characters; without a terminal, no width limits a table.
pub fn terminal_width() -> usize {
    match std::io::stdout().is_terminal() {
        true => ratatui::crossterm::terminal::size().map_or(usize::MAX, |(width, _)| width.into()),
        false => usize::MAX,
    }
}

fn pointer(key: &str) -> String {
    format!("/{key}")
}

/// Formats a cell on one line.
fn cell(row: &Value, key: &str) -> String {
    row.pointer(&pointer(key)).map_or_else(String::new, plain).replace(['\n', '\t'], " ")
}

/// Whether a character is harmless on a terminal. Control characters, and characters that change the
/// direction of text, are not.
pub fn is_harmless(letter: char) -> bool {
    let moves = matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !letter.is_control() && !moves
}

/// Replaces harmful characters of text from outside ([`is_harmless`]) by blanks; line ends and tabs stay.
fn shown(text: &str) -> String {
    let letter =
        |letter: char| if is_harmless(letter) || matches!(letter, '\n' | '\t') { letter } else { ' ' };
    text.chars().map(letter).collect()
}

/// Formats a JSON value for people.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => shown(text),
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
        // Up to four decimal places, without trailing zeros.
        v if v > 0.0 && v < 1.0 => format!("{}", (value * 1e4).round() / 1e4),
        _ => format!("{value:.1}"),
    }
}

/// Returns the items of a list; none for any other value.
pub fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Formats an object as lines of key and value.
pub fn lines(object: &Value) -> String {
    let Value::Object(fields) = object else { return format!("{}\n", plain(object)) };
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    fields.iter().map(|(key, value)| format!("{key:<width$}  {}\n", plain(value))).collect()
}

/// Returns the key of a setting in the spelling of files and commands: hyphens for JSON's underscores.
pub fn command_key(key: &str) -> String {
    key.replace('_', "-")
}

/// Returns settings in the spelling of files and commands.
pub fn as_in_file(settings: Value) -> Value {
    match settings {
        Value::Object(keys) => keys.into_iter().map(|(key, value)| (command_key(&key), value)).collect(),
        other => other,
    }
}

/// Prints JSON, a table, or an object line by line.
pub fn print(value: &Value, columns: &str, json: bool) {
    show(value, json, || match value {
        Value::Array(rows) => table(rows, columns),
        object => lines(object),
    });
}

/// Prints the result of a change: as JSON, or as a line.
pub fn done(value: &Value, line: &str, json: bool) {
    show(value, json, || format!("{line}\n"));
}

/// Prints `value` as JSON, or prints the result of `text`, which includes its line end.
pub fn show(value: &impl serde::Serialize, json: bool, text: impl FnOnce() -> String) {
    if json {
        say!("{:#}", json!(value));
    } else {
        put(&text());
    }
}

/// Prints a formatted line on standard output, as [`put`].
macro_rules! say {
    ($($part:tt)*) => { $crate::output::put(&(format!($($part)*) + "\n")) };
}
pub(crate) use say;

/// First failure to print, for instance on a full disk.
static UNPRINTED: OnceLock<Failure> = OnceLock::new();

/// Prints a text on standard output in one piece. [`unprinted`] returns the failure if the output takes no more.
pub fn put(text: &str) {
    if UNPRINTED.get().is_none()
        && let Err(failure) = write(text.as_bytes())
    {
        UNPRINTED.get_or_init(|| failure);
    }
}

/// Returns the first failure of [`put`].
pub fn unprinted() -> Option<&'static Failure> {
    UNPRINTED.get()
}

/// Writes a text to standard output, and flushes it. Returns false if the reader has closed the output.
///
/// # Errors
/// The text can't be written for another reason.
pub fn write(text: &[u8]) -> Result<bool, Failure> {
    let mut out = std::io::stdout();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("can't write to standard output: {error}"))),
    }
}

/// Writes a file, and says so on standard error. `what` is the kind of its content.
///
/// # Errors
/// The file can't be written.
pub fn write_file(what: &str, file: &Path, text: &str) -> Result<(), Failure> {
    let problem = |error| Failure::new(format!("can't write {}: {error}", file.display()));
    let written = create_output(file).and_then(|mut output| output.write_all(text.as_bytes()));
    written.map_err(problem)?;
    eprintln!("{what}: {}", file.display());
    Ok(())
}

/// Reads a text file.
///
/// # Errors
/// The file can't be read.
pub fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("can't read {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_forges_no_rows_and_moves_no_cursor() {
        let rows = [json!({"why": "a\n9  root\t\u{1b}[31m\u{202e}x"}), json!({"why": "y".repeat(70_000)})];
        let text = table(&rows, "why");
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.lines().nth(1), Some("a 9  root  [31m x"));
        assert_eq!(plain(&json!("a\nb\t\u{7}")), "a\nb\t ");
    }

    #[test]
    fn failures_are_json_for_programs() {
        assert_eq!(Failure::new("no").json(), json!({"error": "no", "code": 1}));
        let errors = json!([{"entry": 7, "detail": "twice"}]);
        let told = errors.as_array().cloned().unwrap_or_default();
        let list = Failure { wrong: 3, errors: told, ..Failure::usage("no") };
        assert_eq!(list.json(), json!({"error": "no", "code": 2, "wrong": 3, "errors": errors}));
    }

    #[test]
    fn all_that_is_wrong_with_a_file_is_a_list_for_programs() {
        let wrong = millrace_config::Config::parse("[router]\nworkers = 0\nframes = 1\n", "f").unwrap_err();
        let json = Failure::from(wrong).json();
        assert_eq!(
            (&json["wrong"], &json["errors"][0]["line"], &json["errors"][1]["line"]),
            (&json!(2), &json!(2), &json!(3))
        );
        assert_eq!((&json["errors"][1]["file"], &json["errors"][1]["column"]), (&json!("f"), &json!(10)));
        assert!(json["error"].as_str().unwrap().starts_with("f:2:11: router.workers must"), "{json}");
    }

    #[test]
    fn numbers_stand_to_the_right_and_text_to_the_left() {
        let rows = [json!({"name": "lan", "n": 5}), json!({"name": "w", "n": 12345})];
        assert_eq!(table(&rows, "port=name | rx=n"), "port     rx\nlan       5\nw     12345\n");
    }

    #[test]
    fn values_are_formatted_for_people() {
        assert_eq!(plain(&json!({"a": [1, 2], "b": null})), "a 1, 2, b -");
        assert_eq!(plain(&json!(2_500_000.0)), "2.50 M");
        assert_eq!((&*plain(&json!({})), &*plain(&json!([]))), ("-", "-"));
    }
}
