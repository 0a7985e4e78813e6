//! Results of experiments.

use serde::{Deserialize, Serialize};

use crate::plot::Plot;
use crate::table::Table;

/// Result of an experiment: the paper's figures beside ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Name, such as `vera-table-4.6`.
    pub name: String,
    /// Title.
    pub title: String,
    /// Paper with section, table or figure.
    pub paper: String,
    /// Printed figures.
    pub printed: Table,
    /// Our figures.
    pub ours: Table,
    /// Ours less printed.
    pub difference: Table,
    /// Whether the paper's conclusions show, and the figures lie where they must.
    pub holds: bool,
    /// Exceptions and remarks.
    pub note: String,
    /// Conclusions of the paper's text.
    pub statements: Vec<Statement>,
    /// Choices that the paper leaves open.
    pub choices: Vec<Choice>,
    /// Plot of a figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plot: Option<Plot>,
}

/// Conclusion of a paper's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// Conclusion.
    pub text: String,
    /// Whether our figures show it.
    pub holds: bool,
    /// Our figures.
    pub ours: String,
}

/// Choice that a paper leaves open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Open question.
    pub open: String,
    /// Our answer.
    pub ours: String,
}

/// Results of several experiments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Results.
    pub experiments: Vec<Experiment>,
}

impl Statement {
    /// Returns a statement.
    #[must_use]
    pub fn new(text: &str, holds: bool, ours: String) -> Self {
        Self { text: text.to_owned(), holds, ours }
    }
}

impl Choice {
    /// Returns choices from pairs of question and answer.
    #[must_use]
    pub fn all(pairs: &[(&str, &str)]) -> Vec<Self> {
        let choice =
            |(open, ours): &(&str, &str)| Self { open: (*open).to_owned(), ours: (*ours).to_owned() };
        pairs.iter().map(choice).collect()
    }
}
