//! The sets of filters that are measured.

use millrace_packet::Family;
use millrace_testkit::classbench::{FilterSet, Style, generate, read};

/// So that every run has the same sets.
const SEED: u64 = 1;

/// A set, and whether the promises are about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// A file of ClassBench's, with its family and size.
    File(&'static str, &'static str),
    /// Made in a style.
    Generated(Style, Family, usize),
}

impl Source {
    /// All there are: the files first.
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

    /// The filters; `None` when the file isn't at hand.
    pub fn load(self) -> Option<FilterSet> {
        match self {
            Self::File(family, size) => read(family, size),
            Self::Generated(style, family, count) => Some(generate(style, family, count, SEED)),
        }
    }

    /// Whether the promises are about this set: those of 10,000, generated ones only where the files are absent.
    pub fn is_judged(self) -> bool {
        match self {
            Self::File(_, size) => size == "10k",
            Self::Generated(_, family, count) => {
                family == Family::V4 && count == 10_000 && read("acl1", "10k").is_none()
            }
        }
    }
}
