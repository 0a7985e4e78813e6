//! Committed instruction counts, and their differences from new counts.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::BenchError;

/// Relative increase over the baseline that a path is allowed.
pub(super) const TOLERANCE: f64 = 0.02;

/// Method of counting instructions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Counter {
    /// Valgrind's callgrind. It hides the widest vector instructions from the program, so it counts the
    /// portable code.
    Callgrind,
    /// Processor's counter. It counts the code that this machine runs.
    Processor,
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Callgrind => "callgrind",
            Self::Processor => "the processor",
        })
    }
}

/// Instruction counts of all paths by one method, with the compiler and the vector instructions that were
/// used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counts {
    /// Compiler of the counted binary.
    pub compiler: String,
    /// Widest vector instructions available to the binary during the count.
    pub vectors: String,
    /// Instructions of each path, per packet or call.
    pub instructions: BTreeMap<String, f64>,
}

/// Instruction counts by counter.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Baseline(pub BTreeMap<Counter, Counts>);

impl Baseline {
    /// Reads a file; returns `None` if it doesn't exist.
    pub fn read(file: &Path) -> Result<Option<Self>, BenchError> {
        match fs::read_to_string(file) {
            Ok(text) => {
                let wrong = |error| BenchError::measurement(&file.display().to_string(), format!("{error}"));
                serde_json::from_str(&text).map(Some).map_err(wrong)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BenchError::system(format!("read {}", file.display()))(error)),
        }
    }

    /// Writes the baseline to a file.
    pub fn write(&self, file: &Path) -> Result<(), BenchError> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        fs::write(file, text).map_err(BenchError::system(format!("write {}", file.display())))
    }
}

/// Count of a path in the baseline and in this run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Change {
    pub path: String,
    pub before: Option<f64>,
    pub after: Option<f64>,
}

impl Change {
    /// Returns the new count divided by the count in the baseline.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.after? / self.before.filter(|before| *before > 0.0)?)
    }

    /// Whether the count exceeds the baseline by more than the tolerance, or only one of the baseline and
    /// this run has the path.
    pub fn fails(&self) -> bool {
        self.ratio().is_none_or(|ratio| ratio > 1.0 + TOLERANCE)
    }

    /// Whether the count fell so much that the baseline should be renewed.
    pub fn is_cheaper(&self) -> bool {
        self.ratio().is_some_and(|ratio| ratio < 1.0 - TOLERANCE)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match (self.before, self.after, self.ratio()) {
            (Some(before), Some(after), Some(ratio)) => {
                write!(f, "{before:.1} before, {after:.1} now, {:+.1} %", (ratio - 1.0) * 100.0)
            }
            (_, Some(after), _) => write!(f, "not in the baseline, {after:.1} now"),
            (Some(before), ..) => write!(f, "{before:.1} before, not counted any more"),
            (None, None, _) => write!(f, "never counted"),
        }
    }
}

impl Counts {
    /// Returns the reason why two counts are not comparable: different compilers or vector instructions.
    /// `None` if they are comparable.
    pub fn made_otherwise(&self, before: &Self) -> Option<String> {
        if self.compiler != before.compiler {
            return Some(format!(
                "the baseline was built by {}, this build by {}",
                before.compiler, self.compiler
            ));
        }
        let vectors =
            || format!("the baseline was counted with {}, this build with {}", before.vectors, self.vectors);
        (self.vectors != before.vectors).then(vectors)
    }

    /// Returns the changes of all paths in the baseline or in the new counts, sorted by name.
    pub fn changes(&self, before: &Self) -> Vec<Change> {
        let mut paths: Vec<&String> = before.instructions.keys().chain(self.instructions.keys()).collect();
        paths.sort();
        paths.dedup();
        let change = |path: &String| Change {
            path: path.clone(),
            before: before.instructions.get(path).copied(),
            after: self.instructions.get(path).copied(),
        };
        paths.into_iter().map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(paths: &[(&str, f64)]) -> Counts {
        Counts {
            compiler: "rustc 1".to_owned(),
            vectors: "AVX2".to_owned(),
            instructions: paths.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect(),
        }
    }

    #[test]
    fn counts_beyond_tolerance_or_in_only_one_file_fail() {
        let before = counts(&[("a", 100.0), ("b", 100.0), ("c", 100.0), ("gone", 7.0)]);
        let now = counts(&[("a", 102.0), ("b", 102.1), ("c", 97.0), ("new", 5.0)]);
        let changes = now.changes(&before);
        let seen: Vec<_> =
            changes.iter().map(|change| (&*change.path, change.fails(), change.is_cheaper())).collect();
        let expected = [
            ("a", false, false),
            ("b", true, false),
            ("c", false, true),
            ("gone", true, false),
            ("new", true, false),
        ];
        assert_eq!(seen, expected);
        assert_eq!(changes[1].to_string(), "b: 100.0 before, 102.1 now, +2.1 %");
        assert_eq!(changes[3].to_string(), "gone: 7.0 before, not counted any more");
        assert_eq!(changes[4].to_string(), "new: not in the baseline, 5.0 now");
    }

    #[test]
    fn another_compiler_or_other_vectors_are_reported() {
        let before = counts(&[]);
        assert_eq!(before.made_otherwise(&before), None);
        let other = Counts { compiler: "rustc 2".to_owned(), ..before.clone() };
        assert_eq!(
            other.made_otherwise(&before).unwrap(),
            "the baseline was built by rustc 1, this build by rustc 2"
        );
        let other = Counts { vectors: "AVX-512".to_owned(), ..before.clone() };
        assert_eq!(
            other.made_otherwise(&before).unwrap(),
            "the baseline was counted with AVX2, this build with AVX-512"
        );
    }

    #[test]
    fn baseline_file_round_trips() {
        let scratch = crate::testbed::scratch::Scratch::new().unwrap();
        let file = scratch.file("baseline.json");
        assert_eq!(Baseline::read(&file).unwrap(), None);
        let baseline = Baseline([(Counter::Callgrind, counts(&[("a", 100.5)]))].into());
        baseline.write(&file).unwrap();
        assert_eq!(Baseline::read(&file).unwrap(), Some(baseline));
        fs::write(&file, "{").unwrap();
        assert!(Baseline::read(&file).unwrap_err().to_string().contains("baseline.json"));
    }
}
