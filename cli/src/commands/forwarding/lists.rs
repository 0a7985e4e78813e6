//! Lists of routes and filters from files, one per line, sent in one atomic request.

use std::path::Path;

use hyper::Method;
use millrace_units::by_number;
use serde_json::{Value, json};

use crate::client::Client;
use crate::output::{Failure, say};

/// Reads a whole file, or standard input for `-`.
pub fn read(file: &Path) -> Result<String, Failure> {
    if file.as_os_str() != "-" {
        return crate::output::read(file);
    }
    let text = std::io::read_to_string(std::io::stdin())
        .map_err(|error| Failure::new(format!("can't read -: {error}")))?;
    if text.is_empty() {
        return Err(Failure::new(
            "standard input is empty: name a file (commands in a script of `millrace shell` have no standard \
             input)",
        ));
    }
    Ok(text)
}

/// Entries of a list file, one per line, without comments and empty lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// Name of the file in messages.
    name: String,
    /// Request bodies of the entries, in the order of the lines.
    entries: Vec<Value>,
    /// Line number of each entry, from 1.
    lines: Vec<usize>,
}

impl Lines {
    /// Reads a list file, or standard input for `-`. `entry` converts a line to a request body, or returns
    /// the problem of the line.
    ///
    /// # Errors
    /// The file can't be read, or some lines are invalid. Invalid lines are reported on standard error.
    pub fn read(
        file: &Path,
        entry: impl Fn(&str) -> Result<Value, String>,
        json: bool,
    ) -> Result<Self, Failure> {
        let name = if file.as_os_str() == "-" { "standard input".into() } else { file.display().to_string() };
        let lines = Self { name, ..Self::default() };
        lines.parse(&read(file)?, entry).map_err(|(lines, wrong)| lines.refused(&wrong, wrong.len(), json))
    }

    fn parse(
        mut self,
        text: &str,
        entry: impl Fn(&str) -> Result<Value, String>,
    ) -> Result<Self, (Self, Vec<(usize, String)>)> {
        let mut wrong = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let words = line.trim();
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            match entry(words) {
                Ok(entry) => {
                    self.entries.push(entry);
                    self.lines.push(number);
                }
                Err(problem) => wrong.push((number, problem)),
            }
        }
        if wrong.is_empty() { Ok(self) } else { Err((self, wrong)) }
    }

    /// Sends all entries in one request. Prints progress on standard error if the request takes long.
    ///
    /// # Errors
    /// The request failed and nothing was changed. Invalid lines are reported on standard error.
    pub fn send(self, client: &Client, method: Method, path: &str, json: bool) -> Result<Value, Failure> {
        if self.entries.is_empty() {
            return Err(Failure::new(format!("{}: the file has only comments and empty lines", self.name)));
        }
        let body = Value::Array(self.entries);
        let lines = Self { entries: Vec::new(), ..self };
        client.send_and_watch(method, path, &body).map_err(|failure| {
            if failure.wrong == 0 {
                return failure;
            }
            let at = |error: &Value| {
                let entry = usize::try_from(error["entry"].as_u64()?).ok()?;
                Some((*lines.lines.get(entry)?, error["detail"].as_str()?.to_owned()))
            };
            let wrong: Vec<_> = failure.errors.iter().filter_map(at).collect();
            lines.refused(&wrong, failure.wrong, json)
        })
    }

    /// Reports invalid lines. `wrong` holds the first of them; `count` is the number of all invalid lines.
    fn refused(&self, wrong: &[(usize, String)], count: usize, json: bool) -> Failure {
        if json {
            let error = |(line, problem): &(usize, String)| json!({"line": line, "detail": problem});
            let errors: Vec<Value> = wrong.iter().map(error).collect();
            say!("{:#}", json!({"file": self.name, "wrong": count, "errors": errors}));
        }
        for (line, problem) in wrong.iter().take(SHOWN).filter(|_| !json) {
            eprintln!("{}:{line}: {problem}", self.name);
        }
        let what =
            format!("{} {}", millrace_units::count(count, "line"), by_number(count, "is wrong", "are wrong"));
        let rest = if count > SHOWN && !json {
            format!(", of which the first {SHOWN} are shown")
        } else {
            String::new()
        };
        Failure::new(format!("{}: {what}{rest}; nothing was changed", self.name))
    }
}

/// Maximum number of invalid lines reported as text.
const SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn number(line: &str) -> Result<Value, String> {
        line.parse().map(|number: u32| json!(number)).map_err(|_| format!("{line:?} is no number"))
    }

    #[test]
    fn comments_and_empty_lines_count_as_lines_only() {
        let lines = Lines::default().parse("# numbers\n7\n\n  8 \n", number).unwrap();
        assert_eq!((lines.entries, lines.lines), (vec![json!(7), json!(8)], vec![2, 4]));
    }

    #[test]
    fn all_wrong_lines_are_found() {
        let (_, wrong) = Lines::default().parse("x\n7\n#\ny\n", number).unwrap_err();
        assert_eq!(wrong, [(1, "\"x\" is no number".into()), (4, "\"y\" is no number".into())]);
    }

    #[test]
    fn failure_reports_the_number_of_wrong_lines_and_no_change() {
        let lines = Lines { name: "routes".into(), ..Lines::default() };
        let failure = lines.refused(&[(3, "x".into())], 1, true);
        assert_eq!((&*failure.message, failure.code), ("routes: 1 line is wrong; nothing was changed", 1));
    }
}
