//! Table 4.2: classes of services.

use millrace_admission::random::Random;
use millrace_admission::workload::CLASSES;

use super::paper;
use super::workloads::{deviation, mean};
use crate::Run;
use crate::experiment::{Choice, Experiment, Statement};
use crate::table::Table;

const PRINTED: [[f64; 4]; 4] = [
    [50.0, 25.0, 10.0, 100.0],
    [300.0, 75.0, 150.0, 500.0],
    [3_500.0, 500.0, 1_000.0, 5_000.0],
    [50_000.0, 15_000.0, 5_000.0, 100_000.0],
];

pub fn run(run: &mut Run) -> Experiment {
    let headings = ["mean", "deviation", "least", "most"];
    let (mut printed, mut ours) = (Table::new(&headings), Table::new(&headings));
    let mut random = Random::new(0);
    let (mut means, mut bounds) = (true, true);
    for (class, values) in CLASSES.into_iter().zip(PRINTED) {
        printed.add(class.name(), &values);
        let cycles: Vec<f64> = (0..run.sets * 100).map(|_| class.cycles().draw(&mut random)).collect();
        let (least, most) = cycles
            .iter()
            .fold((f64::INFINITY, 0.0), |(least, most), value| (value.min(least), value.max(most)));
        let middle = mean(cycles.iter().copied());
        ours.add(class.name(), &[middle, deviation(&cycles), least, most]);
        means &= (middle / values[0] - 1.0).abs() < 0.02;
        bounds &= least >= values[2] && most <= values[3];
    }
    let (difference, _) = ours.minus(&printed);
    let statements = vec![
        Statement::new("means are kept", means, "within 2 %".to_owned()),
        Statement::new("bounds are kept", bounds, String::new()),
    ];
    Experiment {
        name: "vera-table-4.2".to_owned(),
        title: "Classes of services, in cycles per packet".to_owned(),
        paper: paper("table 4.2"),
        printed,
        ours,
        difference,
        holds: means && bounds,
        note: "Bounding makes the deviations smaller than those of the normal distributions.".to_owned(),
        statements,
        choices: Choice::all(&[("cycles beyond the bounds of a class", "the bound")]),
        plot: None,
    }
}
