//! Filter sets of the benchmark.

use millrace_classify::{Filter, UnknownPort};
use millrace_packet::Family;
use millrace_testkit::classbench::{FilterSet, Style, generate, read};

use super::table::Ranked;
use crate::BenchError;

/// Seed of the generated sets: every run has the same sets.
const SEED: u64 = 1;

/// Compiles the filters of a set; returns them with their priorities.
pub(super) fn ranked(set: &FilterSet) -> Result<Vec<Ranked>, BenchError> {
    let compile = |(place, filter): (usize, &Filter)| Ok((filter.compile(|_| None)?, set.priority(place)));
    let compiled: Result<_, UnknownPort> = set.filters.iter().enumerate().map(compile).collect();
    compiled.map_err(|error| BenchError::measurement("filters", error.to_string()))
}

/// Source of a filter set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// ClassBench file: its style, such as `acl1`, and its size, such as `10k`.
    File(&'static str, &'static str),
    /// Generated set: style, IP version and number of filters.
    Generated(Style, Family, usize),
}

impl Source {
    /// Returns all sources, the files first.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for size in ["1k", "10k"] {
            all.extend(["acl1", "fw1", "ipc1"].map(|family| Self::File(family, size)));
        }
        for count in [10_000, 50_000, 100_000] {
            for family in [Family::V4, Family::V6] {
                all.extend(Style::ALL.map(|style| Self::Generated(style, family, count)));
            }
        }
        all
    }

    /// Returns the filter set; `None` if its file is absent.
    pub fn load(self) -> Option<FilterSet> {
        match self {
            Self::File(family, size) => read(family, size),
            Self::Generated(style, family, count) => Some(generate(style, family, count, SEED)),
        }
    }

    /// Whether the figures of this filter set have promised limits. They have if the set is a ClassBench file
    /// with 10,000 filters. If these files are absent, they have if it is a generated IPv4 set with 10,000
    /// filters.
    pub fn is_judged(self) -> bool {
        match self {
            Self::File(_, size) => size == "10k",
            Self::Generated(_, family, count) => {
                family == Family::V4 && count == 10_000 && read("acl1", "10k").is_none()
            }
        }
    }
}
