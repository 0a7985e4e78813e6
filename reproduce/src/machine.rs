//! Experiments on this machine, by the method of a paper.

use millrace_bench::{ADDED_WORKLOADS, AddedImpacts, PlacedServices, RUN_ALGORITHM, added_impacts};

use crate::experiment::{Choice, Experiment, Statement};
use crate::table::{Row, Table};
use crate::{Entry, Run, SETS};

pub const EXPERIMENTS: &[Entry] =
    &[Entry::measured("millrace-table-4.6", "Algorithms and added impacts on this machine", run)];

/// Largest difference of a used component from the predicted one, in percent.
const NEAR: f64 = 5.0;
const USED: &str = "Balanced, as used";
const FARTHEST: &str = "Balanced, largest difference in %";

fn run(run: &mut Run) -> Experiment {
    let workloads = (ADDED_WORKLOADS * run.sets / SETS).max(1);
    let (found, why) = match added_impacts(workloads, run.progress) {
        Ok(found) => (found, String::new()),
        Err(error) => (AddedImpacts::default(), format!("Not measured: {error}. ")),
    };
    let ours = table(&found);
    let statements = statements(&found, !why.is_empty());
    Experiment {
        name: "millrace-table-4.6".to_owned(),
        title: "Algorithms and added impacts on this machine".to_owned(),
        paper: "by the method of Karlin, \"Embedded Computational Elements in Extensible Routers\", 2003, table 4.6"
            .to_owned(),
        printed: Table { rows: Vec::new(), ..ours.clone() },
        difference: Table { rows: Vec::new(), ..ours.clone() },
        ours,
        holds: statements.iter().all(|statement| statement.holds),
        note: format!(
            "{why}{workloads} workloads of 20 services on two workers, placed by each algorithm. The placements of \
             {RUN_ALGORITHM} run: their components are compared with what the workers used. {} runs of a worker, which \
             other work disturbed, don't count.",
            found.disturbed
        ),
        statements,
        choices: Choice::all(&[
            ("services", "20,000 to 100,000 cycles per packet, 3 to 20 % of a worker, 60 to 1,514 bytes, 64 to 1,024 KiB"),
            ("capacities", "70 % of a worker with 16 MiB, a link of 1 Gb/s, rings of a million packets per second"),
            ("workers", "pipelines with ports in memory under the real clock, one after the other"),
        ]),
        plot: None,
    }
}

fn table(found: &AddedImpacts) -> Table {
    let components = found.components.iter().map(|component| format!("{}:3", component.name));
    let fixed = ["on worker 0:1", "on worker 1:1", "N:2", "σ:2", "%:1"].map(str::to_owned);
    let headings: Vec<String> =
        fixed.into_iter().chain(components).chain(["% of bound:1".to_owned()]).collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings);
    let best = found.algorithms.iter().map(PlacedServices::mean).fold(0.0, f64::max);
    for algorithm in &found.algorithms {
        let mean = algorithm.mean();
        let mut values =
            vec![algorithm.on(0), algorithm.on(1), mean, algorithm.deviation(), 100.0 * mean / best];
        values.extend(algorithm.used());
        values.push(100.0 * mean / found.bound);
        table.add(algorithm.name, &values);
    }
    let mut add = |name: &str, of: fn(&millrace_bench::ComponentUse) -> f64| {
        let values = found.components.iter().map(|component| Some(of(component)));
        let values = [None; 5].into_iter().chain(values).chain([None]).collect();
        table.rows.push(Row { name: name.to_owned(), values, ranges: Vec::new() });
    };
    add(USED, |component| component.measured);
    add(FARTHEST, |component| component.worst);
    table
}

fn statements(found: &AddedImpacts, has_failed: bool) -> Vec<Statement> {
    let mut all = vec![Statement::new(
        "nothing that is admitted loses a packet",
        found.lost == 0 && !has_failed,
        format!("{} packets lost", found.lost),
    )];
    all.extend(found.components.iter().map(|component| {
        Statement::new(
            &format!("{}: what is used lies within 5 % of what is predicted", component.name),
            component.worst <= NEAR && component.runs > 0,
            format!(
                "at most {:.2} % of it away in {} runs; {:.3} predicted and {:.3} used on average",
                component.worst, component.runs, component.predicted, component.measured
            ),
        )
    }));
    all
}
