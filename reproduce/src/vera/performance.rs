//! Comparison of algorithms over sets of workloads: tables 4.6 and 4.9.

use millrace_admission::exact::{self, Solver};
use millrace_admission::hardware::Hardware;
use millrace_admission::placement::{Placement, Problem, prices};
use millrace_admission::workload::{Mix, Workload};

use super::algorithms::Named;
use super::workloads::{LEAST_INSIDE, deviation, mean, set};
use crate::Run;
use crate::exceptions::{Reason, listed};
use crate::experiment::{Experiment, Statement};
use crate::table::Table;

/// Mix of both tables.
const MIX: Mix = [9, 45, 45, 1];
/// Sets whose optimum is computed.
const OPTIMA: u64 = 40;
/// Seconds of the solver for a workload whose optimum the bound by prices leaves open.
const SECONDS: f64 = 5.0;

/// Printed row: values of all columns but the last.
pub type Printed = (&'static str, &'static [f64]);

/// Columns of a table: processors with counts, and components with uses.
pub struct Columns {
    /// Reasons for printed values outside the ranges.
    pub reasons: &'static [Reason],
    /// Names of the processors.
    pub processors: &'static [&'static str],
    /// Headings and names of the components.
    pub components: &'static [(&'static str, &'static str)],
}

/// Returns the largest number of services that fit, or the smallest bound that is proved within the time.
pub fn optimum(problem: &Problem) -> usize {
    exact::place(problem, Solver::Microlp, SECONDS)
        .map_or_else(|_| prices::place(problem).bound, |exact| exact.bound)
}

/// Runs all algorithms on all sets. `statements` judges our table.
pub fn compare(
    run: &mut Run,
    hardware: &Hardware,
    algorithms: &[Named],
    printed_rows: &[Printed],
    columns: &Columns,
    statements: impl Fn(&Table) -> Vec<Statement>,
    experiment: Experiment,
) -> Experiment {
    let mut headings: Vec<String> = columns.processors.iter().map(|name| format!("on {name}")).collect();
    headings.extend(["N", "σ", "%:1"].map(str::to_owned));
    headings.extend(columns.components.iter().map(|(heading, _)| format!("{heading}:2")));
    headings.push("% of optimum:1".to_owned());
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let (mut printed, mut ours) = (Table::new(&headings), Table::new(&headings));
    let mut rows: Vec<Vec<Vec<f64>>> = vec![Vec::new(); algorithms.len() + 1];
    for number in 0..run.sets {
        let workloads = set(hardware, MIX, number);
        let optima = (number < OPTIMA)
            .then(|| workloads.iter().map(|known| optimum(&known.problem)).collect::<Vec<_>>());
        let measured =
            measure(&workloads, hardware, algorithms, columns, optima.as_deref(), printed_rows.len());
        for (row, values) in rows.iter_mut().zip(measured) {
            row.push(values);
        }
        (run.progress)(number as f64 / run.sets as f64);
    }
    for (name, values) in printed_rows {
        printed.add(name, values);
    }
    let names = algorithms.iter().map(|row| row.name.as_str()).chain(["Prices"]);
    for (name, sets) in names.zip(&rows) {
        ours.add_sets(name, sets);
    }
    let (difference, outside) = ours.minus(&printed);
    let statements = statements(&ours);
    let cells = printed.cells();
    let inside = cells - outside.len();
    let note = format!(
        "{inside} of {cells} printed means lie, as rounded, in the central 95 % of {} sets of five workloads. The optimum \
         is that of the exact reference for {} workloads. {}",
        run.sets,
        OPTIMA.min(run.sets) * 5,
        listed(&outside, &ours, columns.reasons)
    );
    let holds =
        inside as f64 >= LEAST_INSIDE * cells as f64 && statements.iter().all(|statement| statement.holds);
    Experiment { printed, ours, difference, holds, note, statements, ..experiment }
}

/// Returns the values of each algorithm for one set, and of our placement by prices where the optima are known.
fn measure(
    workloads: &[Workload],
    hardware: &Hardware,
    algorithms: &[Named],
    columns: &Columns,
    optima: Option<&[usize]>,
    compared: usize,
) -> Vec<Vec<f64>> {
    let place =
        |row: &Named| workloads.iter().map(|known| known.problem.place(&row.algorithm)).collect::<Vec<_>>();
    let mut answers: Vec<Vec<Placement>> = algorithms.iter().map(place).collect();
    let count = |answers: &Vec<Placement>| mean(answers.iter().map(|answer| answer.count() as f64));
    let best = answers.iter().take(compared).map(count).fold(0.0, f64::max);
    if optima.is_some() {
        answers.push(workloads.iter().map(|known| prices::place(&known.problem).placement).collect());
    }
    let row = |answers: &Vec<Placement>| {
        let sizes: Vec<f64> = answers.iter().map(|answer| answer.count() as f64).collect();
        let counts: Vec<Vec<usize>> =
            answers.iter().zip(workloads).map(|(answer, known)| answer.counts(&known.problem)).collect();
        let on = |name: &&str| {
            let index = hardware.processor(name);
            mean(counts.iter().filter_map(|counts| Some(*counts.get(index?)? as f64)))
        };
        let used = |(_, name): &(&str, &str)| {
            let index = hardware.component(name);
            mean(answers.iter().filter_map(|answer| Some(answer.utilization.used().get(index?)?.number())))
        };
        let mut row: Vec<f64> = columns.processors.iter().map(on).collect();
        let middle = mean(sizes.iter().copied());
        row.extend([middle, deviation(&sizes), 100.0 * middle / best]);
        row.extend(columns.components.iter().map(used));
        row.extend(
            optima.map(|optima| 100.0 * sizes.iter().sum::<f64>() / optima.iter().sum::<usize>() as f64),
        );
        row
    };
    answers.iter().map(row).collect()
}
