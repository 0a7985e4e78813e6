//! The papers' experiments, one file each, and their report: printed figures beside ours.
//!
//! [`run`] runs an experiment, or takes its result from the cache: a file whose name is a digest of everything that
//! the result depends on.
#![forbid(unsafe_code)]

mod cache;
mod exceptions;
mod experiment;
mod machine;
pub mod page;
mod plot;
mod srishti;
mod table;
#[cfg(test)]
mod tests;
mod vera;

use std::path::Path;

pub use cache::CacheError;
pub use experiment::{Choice, Experiment, Report, Statement};
pub use plot::{Plot, Series};
pub use table::{Row, Table};

/// Experiment that can be run.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Name, such as `vera-table-4.6`.
    pub name: &'static str,
    /// Contents in a few words.
    pub title: &'static str,
    /// Whether the experiment measures this machine. Its result is then not kept.
    measures: bool,
    /// Runs the experiment.
    run: fn(&mut Run) -> Experiment,
}

/// Run of an experiment: its size, and the receiver of its progress.
pub struct Run<'a> {
    /// Sets of five workloads.
    pub sets: u64,
    /// Receives the finished share of the experiment, from 0 to 1.
    pub progress: &'a mut dyn FnMut(f64),
}

/// Sets of five workloads over which intervals are computed.
pub const SETS: u64 = 1_000;

impl Entry {
    /// Returns an experiment that computes its figures.
    const fn computed(name: &'static str, title: &'static str, run: fn(&mut Run) -> Experiment) -> Self {
        Self { name, title, measures: false, run }
    }

    /// Returns an experiment that measures this machine.
    const fn measured(name: &'static str, title: &'static str, run: fn(&mut Run) -> Experiment) -> Self {
        Self { name, title, measures: true, run }
    }
}

/// Returns all experiments in the order of the papers, and those on this machine.
#[must_use]
pub fn experiments() -> Vec<Entry> {
    [vera::EXPERIMENTS, srishti::EXPERIMENTS, machine::EXPERIMENTS].concat()
}

/// Returns the experiments of a name: one, or all that begin with the name and a hyphen.
#[must_use]
pub fn named(name: &str) -> Vec<Entry> {
    let begins = |entry: &Entry| entry.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    experiments().into_iter().filter(|entry| entry.name == name || begins(entry)).collect()
}

/// Runs an experiment, or reads its result from the folder `cache`. `content` stands for the program that runs: a
/// result of another program is not used. Results of measurements are neither read nor kept. The second value tells
/// whether the result is kept.
pub fn run(
    entry: &Entry,
    cache: Option<&Path>,
    content: &[u8],
    progress: &mut dyn FnMut(f64),
) -> (Experiment, Result<(), CacheError>) {
    let cache = cache.filter(|_| !entry.measures);
    let file = cache.map(|folder| cache::file(folder, entry.name, SETS, content));
    if let Some(known) = file.as_deref().and_then(cache::read) {
        return (known, Ok(()));
    }
    let experiment = (entry.run)(&mut Run { sets: SETS, progress });
    let kept = file.map_or(Ok(()), |file| cache::write(&file, &experiment));
    (experiment, kept)
}
