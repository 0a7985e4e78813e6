//! `solvers`: the largest numbers of services of random workloads, proved by each solver.
//!
//! All mixes of table 4.5 of VERA, 53 workloads of each. It takes an hour or more, so it runs only if it is named. HiGHS
//! needs a program that was built with the feature `highs`.

use std::time::Instant as Clock;

use millrace_admission::exact::{self, ExactError, Proof, Solver};
use millrace_admission::hardware::{Hardware, known};
use millrace_admission::placement::prices;
use millrace_admission::workload::{MIXES, Workload};

use super::failed;
use crate::interrupt::check;
use crate::statistics::{extremes, median};
use crate::{BenchError, Bound, Measurement, Options};

/// Number of workloads: 53 of each mix.
const WORKLOADS: u64 = 53 * MIXES.len() as u64;
/// Mix of the first workload, 9/45/45/1: solvers need a second for it, so that a run with one workload is quick.
const FIRST: usize = 3;
/// Most seconds of a solver for a workload.
const SECONDS: f64 = 60.0;
/// Promised minimum: percent of the workloads that a solver proves.
const PROVED: f64 = 95.0;

/// Answers of a solver.
#[derive(Debug)]
pub struct SolverAnswers {
    /// Name of the solver.
    pub name: &'static str,
    /// Answers in the order of the workloads.
    pub answers: Vec<Result<SolverAnswer, ExactError>>,
}

/// Answer for a workload.
#[derive(Clone, Copy, Debug)]
pub struct SolverAnswer {
    /// Number of services.
    pub placed: usize,
    /// Whether the solver proved within 60 s that no placement has more.
    pub is_proved: bool,
    /// Time of the solver.
    pub seconds: f64,
}

impl SolverAnswers {
    fn answered(&self) -> impl Iterator<Item = &SolverAnswer> {
        self.answers.iter().flatten()
    }

    /// Returns the proved part of the workloads in percent.
    #[must_use]
    pub fn proved(&self) -> f64 {
        let proved = self.answered().filter(|answer| answer.is_proved).count();
        proved as f64 * 100.0 / self.answers.len().max(1) as f64
    }

    /// Returns the times of all answers, in seconds.
    #[must_use]
    pub fn seconds(&self) -> Vec<f64> {
        self.answered().map(|answer| answer.seconds).collect()
    }

    /// Returns the mean number of services.
    #[must_use]
    pub fn services(&self) -> f64 {
        let sum: usize = self.answered().map(|answer| answer.placed).sum();
        sum as f64 / self.answered().count().max(1) as f64
    }

    /// Returns the number of answers that contradict the bound by prices.
    #[must_use]
    pub fn contradictions(&self) -> usize {
        let contradicts = |answer: &&Result<_, _>| matches!(answer, Err(ExactError::Contradiction { .. }));
        self.answers.iter().filter(contradicts).count()
    }

    /// Returns the number of workloads that two solvers prove, and for how many of these they agree.
    #[must_use]
    pub fn agreements(&self, other: &Self) -> (usize, usize) {
        let pairs = self.answers.iter().zip(&other.answers);
        let pairs = pairs.filter_map(|(one, other)| one.as_ref().ok().zip(other.as_ref().ok()));
        let both: Vec<_> = pairs.filter(|(one, other)| one.is_proved && other.is_proved).collect();
        (both.len(), both.iter().filter(|(one, other)| one.placed == other.placed).count())
    }
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let progress = &mut options.progress;
    let mut done = 0;
    let solved = solved_workloads(WORKLOADS, &mut |answers| {
        check()?;
        done += 1;
        if done % MIXES.len() == 0 {
            let parts = answers.iter().map(|solver| format!("{} {:.1} %", solver.name, solver.proved()));
            let parts = parts.collect::<Vec<_>>().join(", ");
            progress(&format!("solvers: {done} of {WORKLOADS} workloads; proved within 60 s: {parts}"));
        }
        Ok(())
    })?;
    Ok(results(&solved))
}

fn results(solved: &[SolverAnswers]) -> Vec<Measurement> {
    let mut results = Vec::new();
    for solver in solved {
        let seconds = solver.seconds();
        let named = |what: &str| format!("solvers, {}, {what}", solver.name);
        results.push(
            Measurement::of(named("proved within 60 s"), solver.proved(), "%")
                .promising(Bound::AtLeast, PROVED),
        );
        results.push(Measurement::of(named("median time"), median(&seconds), "s"));
        results.push(Measurement::of(named("longest time"), extremes(&seconds).1, "s"));
        let contradictions = solver.contradictions() as f64;
        results.push(
            Measurement::of(named("answers beyond the bound by prices"), contradictions, "workloads")
                .promising(Bound::AtMost, 0.0),
        );
    }
    if let [first, second] = solved {
        let (both, same) = first.agreements(second);
        results.push(
            Measurement::of("solvers, different answers that both prove", (both - same) as f64, "workloads")
                .promising(Bound::AtMost, 0.0),
        );
    }
    results
}

/// Solves workloads by each solver of this program. `progress` receives the answers so far after each workload, and may
/// end the run.
///
/// # Errors
/// The error of `progress`.
pub fn solved_workloads(
    workloads: u64,
    progress: &mut dyn FnMut(&[SolverAnswers]) -> Result<(), BenchError>,
) -> Result<Vec<SolverAnswers>, BenchError> {
    let hardware = Hardware::parse(known("ixp1200").unwrap_or_default()).map_err(failed)?;
    let new = |solver: &Solver| SolverAnswers { name: solver.name(), answers: Vec::new() };
    let mut all: Vec<SolverAnswers> = Solver::ALL.iter().map(new).collect();
    for number in 0..workloads {
        let mix = MIXES[(number as usize + FIRST) % MIXES.len()];
        let problem = Workload::generate(&hardware, mix, number / MIXES.len() as u64).problem;
        let known = prices::place(&problem);
        for (solver, own) in Solver::ALL.iter().zip(&mut all) {
            let start = Clock::now();
            let exact = exact::solve(&problem, &known, *solver, SECONDS);
            let seconds = start.elapsed().as_secs_f64();
            own.answers.push(exact.map(|exact| SolverAnswer {
                placed: exact.placement.count(),
                is_proved: exact.proof == Proof::Solver && seconds <= SECONDS,
                seconds,
            }));
        }
        progress(&all)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_differ_or_contradict_are_counted() {
        let answer = |placed, is_proved| Ok(SolverAnswer { placed, is_proved, seconds: 1.0 });
        let contradiction = || Err(ExactError::Contradiction { placed: 9, bound: 8 });
        let one = SolverAnswers {
            name: "one",
            answers: vec![answer(5, true), answer(6, true), answer(7, false), contradiction()],
        };
        let other = SolverAnswers {
            name: "other",
            answers: vec![answer(5, true), answer(7, true), answer(7, true), answer(8, true)],
        };
        assert_eq!((one.agreements(&other), one.proved(), one.services()), ((2, 1), 50.0, 6.0));
        let results = results(&[one, other]);
        let broken: Vec<&str> = results
            .iter()
            .filter(|result| result.holds == Some(false))
            .map(|result| result.case.as_str())
            .collect();
        let expected = [
            "solvers, one, proved within 60 s",
            "solvers, one, answers beyond the bound by prices",
            "solvers, different answers that both prove",
        ];
        assert_eq!(broken, expected);
    }

    #[test]
    fn run_ends_when_progress_asks_for_it() {
        let mut seen = 0;
        let ended = solved_workloads(3, &mut |answers| {
            seen = answers[0].answers.len();
            Err(failed("enough"))
        });
        assert!(ended.is_err() && seen == 1);
    }
}
