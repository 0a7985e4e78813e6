//! The exact reference, which the paper doesn't have: the largest numbers of services, proved by each solver.

use millrace_bench::{SolverAnswers, solved_workloads};

use super::paper;
use crate::experiment::{Choice, Experiment, Statement};
use crate::table::Table;
use crate::{Run, SETS};

/// Workloads of a run of [`SETS`]: two of each mix of table 4.5.
const WORKLOADS: u64 = 38;
/// Least part of the workloads that a solver proves, in percent.
const PROVED: f64 = 95.0;

pub fn run(run: &mut Run) -> Experiment {
    let count = (WORKLOADS * run.sets / SETS).max(1);
    let mut done = 0.0;
    let solved = solved_workloads(count, &mut |_| {
        done += 1.0;
        (run.progress)(done / count as f64);
        Ok(())
    });
    // The description of the hardware is part of the program.
    let solved = solved.unwrap_or_default();
    let mut ours = Table::new(&["proved %:1", "median s:2", "longest s:1", "services:1"]);
    for solver in &solved {
        let mut seconds = solver.seconds();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
        let longest = seconds.last().copied().unwrap_or_default();
        ours.add(solver.name, &[solver.proved(), median, longest, solver.services()]);
    }
    let statements = statements(&solved);
    Experiment {
        name: "vera-exact-reference".to_owned(),
        title: "Largest numbers of services, by solvers".to_owned(),
        paper: paper("section 4.5, which has no exact reference"),
        printed: Table { rows: Vec::new(), ..ours.clone() },
        difference: Table { rows: Vec::new(), ..ours.clone() },
        ours,
        holds: !solved.is_empty() && statements.iter().all(|statement| statement.holds),
        note: format!(
            "{count} workloads of the mixes of table 4.5; `millrace bench admission --case solvers` solves 1,007. HiGHS \
             needs a program that was built with the feature `highs`."
        ),
        statements,
        choices: Choice::all(&[
            ("time of a solver", "60 s for a workload"),
            ("begin of the search", "the placement by prices: the solver proves it, or finds a larger one"),
        ]),
        plot: None,
    }
}

fn statements(solved: &[SolverAnswers]) -> Vec<Statement> {
    let least = solved.iter().map(SolverAnswers::proved).fold(100.0, f64::min);
    let contradictions: usize = solved.iter().map(SolverAnswers::contradictions).sum();
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
    if let [first, second] = solved {
        let (both, same) = first.agreements(second);
        all.push(Statement::new(
            "both solvers agree on all that both prove",
            same == both,
            format!("{same} of {both}"),
        ));
    }
    all
}
