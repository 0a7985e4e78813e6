//! Table 4.8: workloads of the PMC694 router, with the sums of their smallest impacts.

use super::workloads::{CHANCE, Printed, compare};
use super::{paper, router, workload_choices};
use crate::Run;
use crate::exceptions::Reason;
use crate::experiment::Experiment;

/// Rows as printed.
const PRINTED: [Printed; 19] = [
    ([3, 51, 45, 1], [4.0, 66.0, 59.0, 2.0, 130.0, 8.0], [0.41, 0.99, 1.12]),
    ([5, 49, 45, 1], [6.0, 62.0, 57.0, 2.0, 127.0, 12.0], [0.64, 0.99, 1.12]),
    ([7, 47, 45, 1], [9.0, 62.0, 60.0, 2.0, 133.0, 3.0], [0.86, 0.97, 1.09]),
    ([9, 45, 45, 1], [12.0, 61.0, 61.0, 1.0, 136.0, 8.0], [0.94, 0.95, 1.07]),
    ([11, 43, 45, 1], [15.0, 56.0, 58.0, 1.0, 130.0, 9.0], [1.25, 0.88, 0.99]),
    ([13, 41, 45, 1], [19.0, 57.0, 63.0, 2.0, 140.0, 16.0], [1.64, 0.87, 0.99]),
    ([15, 39, 45, 1], [22.0, 57.0, 67.0, 1.0, 148.0, 20.0], [1.93, 0.88, 0.99]),
    ([9, 15, 75, 1], [21.0, 35.0, 175.0, 3.0, 234.0, 15.0], [1.80, 0.89, 1.00]),
    ([9, 25, 65, 1], [18.0, 49.0, 127.0, 3.0, 196.0, 23.0], [1.46, 0.88, 0.99]),
    ([9, 35, 55, 1], [13.0, 51.0, 80.0, 2.0, 146.0, 12.0], [1.12, 0.89, 1.00]),
    ([9, 55, 35, 1], [11.0, 67.0, 44.0, 2.0, 124.0, 9.0], [0.92, 0.93, 1.05]),
    ([9, 65, 25, 1], [9.0, 65.0, 25.0, 1.0, 101.0, 3.0], [0.94, 0.95, 1.06]),
    ([9, 75, 15, 1], [8.0, 69.0, 14.0, 1.0, 92.0, 7.0], [0.81, 0.98, 1.11]),
    ([9, 45, 33, 13], [12.0, 60.0, 45.0, 18.0, 134.0, 8.0], [1.02, 0.94, 1.06]),
    ([9, 45, 35, 11], [12.0, 60.0, 46.0, 14.0, 132.0, 18.0], [1.05, 0.95, 1.06]),
    ([9, 45, 37, 9], [12.0, 61.0, 50.0, 12.0, 136.0, 5.0], [1.01, 0.92, 1.04]),
    ([9, 45, 39, 7], [13.0, 64.0, 56.0, 10.0, 143.0, 6.0], [1.12, 0.92, 1.04]),
    ([9, 45, 41, 5], [12.0, 62.0, 56.0, 7.0, 137.0, 15.0], [1.07, 0.94, 1.06]),
    ([9, 45, 43, 3], [12.0, 61.0, 59.0, 4.0, 136.0, 3.0], [1.12, 0.87, 0.98]),
];

/// Reasons for printed values outside the ranges.
const REASONS: &[Reason] = &[
    (
        &["7/47/45/1", "9/65/25/1", "9/45/43/3"],
        "the five printed workloads of these mixes differ less from each other than ours (a deviation of 3); why is open",
    ),
    CHANCE,
];

pub fn run(run: &mut Run) -> Experiment {
    let experiment = Experiment {
        name: "vera-table-4.8".to_owned(),
        title: "Workloads of the PMC694 router".to_owned(),
        paper: paper("table 4.8"),
        holds: true,
        choices: workload_choices(),
        ..Experiment::default()
    };
    let components = [("PP", "PP"), ("sPCI", "sPCI"), ("Port", "Port.in")];
    match router("pmc694") {
        Some(hardware) => compare(run, &hardware, &PRINTED, components, REASONS, experiment),
        None => experiment,
    }
}
