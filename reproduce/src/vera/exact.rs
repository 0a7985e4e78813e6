//! The exact reference, which the paper doesn't have: the largest numbers of services, proved by each solver.

use std::time::Instant as Clock;

use millrace_admission::exact::{self, ExactError, Proof, Solver};
use millrace_admission::hardware::Hardware;
use millrace_admission::placement::prices;
use millrace_admission::workload::{MIXES, Workload};

use super::workloads::mean;
use super::{paper, router};
use crate::experiment::{Choice, Experiment, Statement};
use crate::table::Table;
use crate::{Run, SETS};

/// Workloads of a run of [`SETS`]: two of each mix of table 4.5.
const WORKLOADS: u64 = 38;
/// Mix of the first workload, 9/45/45/1: solvers need seconds for it, so that a run with one workload is quick.
const FIRST: usize = 3;
/// Most seconds of a solver for a workload.
const SECONDS: f64 = 60.0;
/// Least part of the workloads that a solver proves, in percent.
const PROVED: f64 = 95.0;

/// Answer for a workload: the number of services, whether it is proved a largest one, and the seconds that it took.
struct Answer {
    placed: usize,
    is_proved: bool,
    seconds: f64,
}

pub fn run(run: &mut Run) -> Experiment {
    let name = "vera-exact-reference".to_owned();
    let Some(hardware) = router("ixp1200") else { return Experiment { name, ..Experiment::default() } };
    let count = (WORKLOADS * run.sets / SETS).max(1);
    let mut ours = Table::new(&["proved %:1", "median s:2", "longest s:1", "services:1"]);
    let mut answers = Vec::new();
    for (index, solver) in Solver::ALL.iter().enumerate() {
        let done = |number: u64| (index as f64 + number as f64 / count as f64) / Solver::ALL.len() as f64;
        let mut own: Vec<Result<Answer, ExactError>> = Vec::new();
        for number in 0..count {
            own.push(solved(&hardware, *solver, number));
            (run.progress)(done(number + 1));
        }
        let answered = || own.iter().flatten();
        let proved = answered().filter(|answer| answer.is_proved).count() as f64 * 100.0 / count as f64;
        let mut seconds: Vec<f64> = answered().map(|answer| answer.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
        let services = mean(answered().map(|answer| answer.placed as f64));
        ours.add(solver.name(), &[proved, median, seconds.last().copied().unwrap_or_default(), services]);
        answers.push((proved, own));
    }
    let statements = statements(&answers);
    Experiment {
        name,
        title: "Largest numbers of services, by solvers".to_owned(),
        paper: paper("section 4.5, which has no exact reference"),
        printed: Table { rows: Vec::new(), ..ours.clone() },
        difference: Table { rows: Vec::new(), ..ours.clone() },
        ours,
        holds: statements.iter().all(|statement| statement.holds),
        note: format!(
            "{count} workloads of the mixes of table 4.5. HiGHS needs a program that was built with the feature `highs`."
        ),
        statements,
        choices: Choice::all(&[("time of a solver", "60 s for a workload")]),
        plot: None,
    }
}

/// Returns the answer of a solver for a workload.
fn solved(hardware: &Hardware, solver: Solver, number: u64) -> Result<Answer, ExactError> {
    let mix = MIXES[(number as usize + FIRST) % MIXES.len()];
    let problem = Workload::generate(hardware, mix, number / MIXES.len() as u64).problem;
    let known = prices::place(&problem);
    let start = Clock::now();
    let exact = exact::solve(&problem, &known, solver, SECONDS)?;
    let seconds = start.elapsed().as_secs_f64();
    let is_proved = exact.proof == Proof::Solver && seconds <= SECONDS;
    Ok(Answer { placed: exact.placement.count(), is_proved, seconds })
}

/// Proved workloads of a solver in percent, and its answers by workload.
type Answers = (f64, Vec<Result<Answer, ExactError>>);

fn statements(answers: &[Answers]) -> Vec<Statement> {
    let least = answers.iter().map(|(proved, _)| *proved).fold(100.0, f64::min);
    let failures = answers.iter().flat_map(|(_, own)| own).filter_map(|answer| answer.as_ref().err());
    let contradictions = failures.filter(|error| matches!(error, ExactError::Contradiction { .. })).count();
    let mut all = vec![
        Statement::new(
            "each solver proves 95 % of the workloads within 60 s each",
            least >= PROVED,
            format!("at least {least:.1} %"),
        ),
        Statement::new(
            "no answer contradicts the bound by prices",
            contradictions == 0,
            format!("{contradictions} of all answers"),
        ),
    ];
    if let [(_, first), (_, second)] = answers {
        let answered =
            || first.iter().zip(second).filter_map(|(one, other)| one.as_ref().ok().zip(other.as_ref().ok()));
        let both = || answered().filter(|(one, other)| one.is_proved && other.is_proved);
        let same = both().filter(|(one, other)| one.placed == other.placed).count();
        all.push(Statement::new(
            "both solvers agree on all that both prove",
            same == both().count(),
            format!("{same} of {}", both().count()),
        ));
    }
    all
}
