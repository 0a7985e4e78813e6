//! Table 4.5: workloads of the IXP1200 router, with the sums of their smallest impacts.

use millrace_admission::workload::MIXES;

use super::workloads::{CHANCE, Printed, compare};
use super::{paper, router, workload_choices};
use crate::Run;
use crate::experiment::Experiment;

/// Rows as printed, in the order of the mixes: counts of the classes, N, its deviation, and the smallest impacts.
const PRINTED: [([f64; 6], [f64; 3]); MIXES.len()] = [
    ([14.0, 256.0, 227.0, 6.0, 503.0, 40.0], [0.88, 0.97, 4.32]),
    ([14.0, 145.0, 133.0, 3.0, 295.0, 32.0], [0.52, 0.96, 2.65]),
    ([13.0, 91.0, 88.0, 2.0, 194.0, 16.0], [0.34, 0.97, 1.56]),
    ([16.0, 83.0, 83.0, 2.0, 183.0, 23.0], [0.32, 0.97, 1.44]),
    ([15.0, 60.0, 63.0, 1.0, 139.0, 9.0], [0.24, 1.04, 1.08]),
    ([19.0, 57.0, 63.0, 2.0, 140.0, 16.0], [0.24, 1.35, 0.99]),
    ([23.0, 58.0, 68.0, 1.0, 151.0, 18.0], [0.26, 1.63, 0.99]),
    ([21.0, 35.0, 175.0, 3.0, 234.0, 15.0], [0.69, 1.47, 1.00]),
    ([18.0, 49.0, 127.0, 3.0, 196.0, 23.0], [0.50, 1.17, 0.99]),
    ([15.0, 58.0, 91.0, 2.0, 165.0, 18.0], [0.35, 0.97, 1.14]),
    ([16.0, 100.0, 64.0, 2.0, 182.0, 32.0], [0.25, 0.95, 1.57]),
    ([13.0, 99.0, 39.0, 2.0, 153.0, 16.0], [0.16, 0.96, 1.60]),
    ([14.0, 126.0, 26.0, 2.0, 168.0, 12.0], [0.10, 0.96, 1.99]),
    ([14.0, 72.0, 53.0, 21.0, 160.0, 20.0], [0.22, 0.97, 1.27]),
    ([14.0, 69.0, 54.0, 17.0, 154.0, 12.0], [0.21, 0.94, 1.27]),
    ([14.0, 71.0, 59.0, 14.0, 158.0, 27.0], [0.23, 0.93, 1.31]),
    ([14.0, 72.0, 62.0, 11.0, 159.0, 12.0], [0.24, 0.95, 1.19]),
    ([14.0, 73.0, 67.0, 8.0, 163.0, 18.0], [0.26, 0.95, 1.35]),
    ([14.0, 74.0, 70.0, 5.0, 164.0, 21.0], [0.28, 0.99, 1.22]),
];

pub fn run(run: &mut Run) -> Experiment {
    let experiment = Experiment {
        name: "vera-table-4.5".to_owned(),
        title: "Workloads of the IXP1200 router".to_owned(),
        paper: paper("table 4.5"),
        holds: true,
        choices: workload_choices(),
        ..Experiment::default()
    };
    let rows: Vec<Printed> =
        MIXES.into_iter().zip(PRINTED).map(|(mix, (counts, shares))| (mix, counts, shares)).collect();
    let components = [("SA", "SA"), ("UE", "UE"), ("Port", "Port.in")];
    match router("ixp1200") {
        Some(hardware) => compare(run, &hardware, &rows, components, &[CHANCE], experiment),
        None => experiment,
    }
}
