//! Figures 4.1 to 4.3: services placed by each algorithm, relative to the best one, as the mix changes.

use millrace_admission::hardware::Hardware;
use millrace_admission::placement::prices;
use millrace_admission::workload::{Mix, Workload};

use super::workloads::name;
use super::{algorithms, paper, router, workload_choices};
use crate::Run;
use crate::experiment::{Choice, Experiment, Statement};
use crate::plot::{Plot, Series};
use crate::table::Table;

/// Mixes of a figure: those of table 4.5 that don't fill the ports first.
const FIRST: &[Mix] = &[[3, 51, 45, 1], [5, 49, 45, 1], [7, 47, 45, 1], [9, 45, 45, 1], [11, 43, 45, 1]];
const SECOND: &[Mix] = &[[9, 35, 55, 1], [9, 45, 45, 1], [9, 55, 35, 1], [9, 65, 25, 1], [9, 75, 15, 1]];
const THIRD: &[Mix] = &[
    [9, 45, 33, 13],
    [9, 45, 35, 11],
    [9, 45, 37, 9],
    [9, 45, 39, 7],
    [9, 45, 41, 5],
    [9, 45, 43, 3],
    [9, 45, 45, 1],
];

/// Name of the bound on all placements.
const BOUND: &str = "bound of every placement";

/// Relative number of services placed: a row for each algorithm, a column for each mix.
struct Shares(Table);

impl Shares {
    fn row(&self, name: &str) -> Vec<f64> {
        let row = self.0.rows.iter().find(|row| row.name == name);
        row.map(|row| row.values.iter().flatten().copied().collect()).unwrap_or_default()
    }

    fn least(&self, name: &str) -> f64 {
        self.row(name).into_iter().fold(f64::INFINITY, f64::min)
    }

    /// Returns the largest difference between two points of a row.
    fn spread(&self, name: &str) -> f64 {
        self.row(name).into_iter().fold(0.0, f64::max) - self.least(name)
    }

    fn shown(&self, name: &str) -> String {
        format!("{name} {:.2?}", self.row(name))
    }
}

pub fn tiny_to_small(run: &mut Run) -> Experiment {
    figure(run, "4.1", "Ratio of tiny to small services", FIRST, |shares| {
        let rows = ["UE-SA-PT", "PT-SA-UE", "SA-UE-PT", "L2-Norm8", "Balance2", "Scan4"];
        let rises = |row: &&str| shares.row(row).last() >= shares.row(row).first();
        let alike = shares
            .row("PT-SA-UE")
            .iter()
            .zip(shares.row("SA-UE-PT"))
            .all(|(one, other)| (one - other).abs() < 0.05);
        let poor = shares.row("SA-UE-PT").iter().all(|share| *share < 0.8);
        vec![
            Statement::new(
                "all algorithms rise slightly as more tiny services come",
                rows.iter().all(rises),
                "UE-PT-SA and Hybrid are near 1 at all points".to_owned(),
            ),
            Statement::new(
                "UE-PT-SA and UE;S-P-4 are consistently good",
                shares.least("UE-PT-SA") > 0.96 && shares.least("UE;S-P-4") > 0.96,
                format!("at least {:.3} and {:.3}", shares.least("UE-PT-SA"), shares.least("UE;S-P-4")),
            ),
            Statement::new(
                "PT-SA-UE and SA-UE-PT are alike, and poor",
                alike && poor,
                shares.shown("SA-UE-PT"),
            ),
        ]
    })
}

pub fn small_to_medium(run: &mut Run) -> Experiment {
    let mut experiment = figure(run, "4.2", "Ratio of small to medium services", SECOND, |shares| {
        let scan = shares.row("Scan4");
        let reversed = shares.row("reversed Scan2");
        let ahead: Vec<bool> = scan.iter().zip(&reversed).map(|(scan, reversed)| reversed > scan).collect();
        let near_one = reversed.iter().skip(2).all(|share| *share > 0.94);
        vec![
            Statement::new(
                "Scan4 falls as more small services come",
                scan.last() < scan.first(),
                shares.shown("Scan4"),
            ),
            Statement::new(
                "the reversed Scan is ahead of Scan only at 55/35 to 75/15, where it is nearly 1",
                ahead == [false, false, true, true, true] && near_one,
                shares.shown("reversed Scan2"),
            ),
            Statement::new(
                "Balance2, UE-PT-SA and UE;S-P-4 are insensitive to the mix",
                ["Balance2", "UE-PT-SA", "UE;S-P-4"].iter().all(|row| shares.spread(row) < 0.03),
                String::new(),
            ),
        ]
    });
    experiment.choices.extend(Choice::all(&[(
        "\"services with the largest impact first\"",
        "the pair that leaves the largest norm; with factor 2 the conclusion shows, with factor 4 at 65/25 and 75/15 only",
    )]));
    experiment
}

pub fn medium_to_large(run: &mut Run) -> Experiment {
    figure(run, "4.3", "Ratio of medium to large services", THIRD, |shares| {
        let good = ["UE-PT-SA", "UE-SA-PT", "Balance2", "UE;S-P-4"];
        let spread = good.iter().map(|row| shares.spread(row)).fold(0.0, f64::max);
        vec![Statement::new(
            "the well-performing algorithms are flat",
            spread < 0.03,
            format!("they change by at most {spread:.3}"),
        )]
    })
}

fn figure(
    run: &mut Run,
    number: &str,
    title: &str,
    mixes: &[Mix],
    statements: impl Fn(&Shares) -> Vec<Statement>,
) -> Experiment {
    let shares =
        Shares(router("ixp1200").map(|hardware| relative(run, &hardware, mixes)).unwrap_or_default());
    let statements = statements(&shares);
    let series = shares
        .0
        .rows
        .iter()
        .map(|row| Series { name: row.name.clone(), values: row.values.iter().flatten().copied().collect() });
    let plot = Plot {
        horizontal: "tiny/small/medium/large, in percent".to_owned(),
        vertical: "services placed, relative to the best algorithm".to_owned(),
        points: mixes.iter().map(|mix| name(*mix)).collect(),
        series: series.collect(),
    };
    Experiment {
        name: format!("vera-figure-{number}"),
        title: title.to_owned(),
        paper: paper(&format!("figure {number} and section 4.5.4")),
        printed: Table { rows: Vec::new(), ..shares.0.clone() },
        difference: Table { rows: Vec::new(), ..shares.0.clone() },
        ours: shares.0,
        holds: statements.iter().all(|statement| statement.holds),
        note: "The figure's values are known from the text alone. The bound is the paper's missing optimum."
            .to_owned(),
        statements,
        choices: workload_choices(),
        plot: Some(plot),
    }
}

/// Runs the algorithms on workloads of each mix.
fn relative(run: &mut Run, hardware: &Hardware, mixes: &[Mix]) -> Table {
    let headings: Vec<String> = mixes.iter().map(|mix| format!("{}:3", name(*mix))).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    let rows = algorithms::figure(hardware);
    let count = (run.sets / 10).max(1);
    let mut placed: Vec<Vec<f64>> = vec![Vec::new(); rows.len() + 1];
    for (index, mix) in mixes.iter().enumerate() {
        let mut sums = vec![0.0; rows.len() + 1];
        for seed in 0..count {
            let workload = Workload::generate(hardware, *mix, seed);
            for (sum, row) in sums.iter_mut().zip(&rows) {
                *sum += workload.problem.place(&row.algorithm).count() as f64;
            }
            if let Some(bound) = sums.last_mut() {
                *bound += prices::place(&workload.problem).bound as f64;
            }
            (run.progress)((index as f64 + seed as f64 / count as f64) / mixes.len() as f64);
        }
        let best = sums.iter().take(rows.len()).copied().fold(1.0, f64::max);
        for (values, sum) in placed.iter_mut().zip(sums) {
            values.push(sum / best);
        }
    }
    let names = rows.iter().map(|row| row.name.as_str()).chain([BOUND]);
    for (name, values) in names.zip(&placed) {
        table.add(name, values);
    }
    table
}
