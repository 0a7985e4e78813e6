//! Expectation: a file with the expected effect of a plugin on the packets of a capture. `plugin test` writes
//! it (`--save`) and compares with it (`--expect`).

use std::fs;
use std::io::Write as _;
use std::path::Path;

use millrace_port::create_output;
use serde::{Deserialize, Serialize};

use crate::{Change, Outcome, Trial, WorkbenchError};

/// Expected verdicts and changed bytes of all packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Name of the plugin; only information for people.
    pub plugin: String,
    /// Expected results of the packets, in the order of their numbers.
    pub packets: Vec<Expected>,
}

/// Expected effect of a plugin on one packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Number of the packet, from 1.
    pub number: usize,
    /// Expected verdict.
    pub verdict: String,
    /// Expected changes of the packet's bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl From<&Outcome> for Expected {
    fn from(outcome: &Outcome) -> Self {
        let Outcome { number, verdict, changes, .. } = outcome.clone();
        Self { number, verdict, changes }
    }
}

impl Expectation {
    /// Creates an expectation from the results of a trial.
    pub fn of(trial: &Trial) -> Self {
        Self { plugin: trial.plugin.clone(), packets: trial.packets.iter().map(Expected::from).collect() }
    }

    /// Reads an expectation file.
    pub fn read(file: &Path) -> Result<Self, WorkbenchError> {
        let text = fs::read(file).map_err(WorkbenchError::io(file))?;
        serde_json::from_slice(&text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let place = format!("error in line {line}, column {column}");
            let problem = format!("no expectation file of `millrace plugin test --save` ({place})");
            WorkbenchError::Expectation { file: file.to_owned(), problem }
        })
    }

    /// Writes an expectation file; replaces an existing file.
    pub fn save(&self, file: &Path) -> Result<(), WorkbenchError> {
        let text = serde_json::to_string_pretty(self);
        let mut text = text.map_err(|error| WorkbenchError::io(file)(error.into()))?;
        text.push('\n');
        let written = create_output(file).and_then(|mut output| output.write_all(text.as_bytes()));
        written.map_err(WorkbenchError::io(file))
    }

    /// Returns the differences between a trial and the expectation, one line per packet.
    pub fn differences(&self, trial: &Trial) -> Vec<String> {
        let mut lines = Vec::new();
        if self.packets.len() != trial.packets.len() {
            let (expected, found) = (self.packets.len(), trial.packets.len());
            lines.push(format!(
                "{}, expected {expected}: use the same capture as with --save",
                millrace_units::count(found, "packet")
            ));
        }
        for (expected, outcome) in self.packets.iter().zip(&trial.packets) {
            let found = Expected::from(outcome);
            if *expected != found {
                let number = outcome.number;
                lines.push(format!("packet {number}: {}, expected {}", told(&found), told(expected)));
            }
        }
        lines
    }
}

/// Formats an expected verdict with its changes.
fn told(expected: &Expected) -> String {
    let change = |change: &Change| format!("at {} {} -> {}", change.offset, change.before, change.after);
    let changes: Vec<String> = expected.changes.iter().map(change).collect();
    match changes.as_slice() {
        [] => expected.verdict.clone(),
        some => format!("{} with {}", expected.verdict, some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready::test_modules::{WRITE, Written, for_each, module};
    use crate::{Module, ObjectRuntime, TrialOptions, try_out};

    fn trial(wasm: &[u8]) -> Trial {
        let written = Written::new(wasm);
        let options = TrialOptions { batch: 8, ..TrialOptions::default() };
        try_out(&Module::read(written.path()).unwrap(), &options, ObjectRuntime::InProcess).unwrap()
    }

    #[test]
    fn recorded_result_is_accepted_as_expectation() {
        let first = trial(&module("", ""));
        let file = Written::new(b"");
        Expectation::of(&first).save(file.path()).unwrap();
        let expected = Expectation::read(file.path()).unwrap();
        assert_eq!(expected.differences(&first), Vec::<String>::new());
        let other = trial(&for_each(WRITE));
        let lines = expected.differences(&other);
        assert_eq!(lines.len(), first.packets.len());
        assert_eq!(lines[0], "packet 1: pass with at 1 00 -> 99, expected pass");
        let fewer = Trial { packets: other.packets[..2].to_vec(), ..other };
        assert!(expected.differences(&fewer)[0].contains("use the same capture"));
    }

    #[test]
    fn invalid_expectation_is_refused() {
        let file = Written::new(b"{}");
        let error = Expectation::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("no expectation"), "{error}");
    }
}
