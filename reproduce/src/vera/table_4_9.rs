//! Table 4.9: algorithms on the PMC694 router.

use super::performance::{Columns, Printed, compare};
use super::{algorithms, paper, router, workload_choices};
use crate::Run;
use crate::exceptions::Reason;
use crate::experiment::{Choice, Experiment, Statement};
use crate::table::Table;

const COLUMNS: Columns = Columns {
    reasons: REASONS,
    processors: &["PP", "PT"],
    components: &[("Port", "Port.in"), ("sPCI", "sPCI"), ("PP", "PP"), ("pPCI", "pPCI"), ("PT", "PT")],
};

/// Rows as printed.
const PRINTED: &[Printed] = &[
    ("PP-PT", &[130.0, 1.0, 131.0, 12.0, 96.6, 1.02, 0.91, 0.96, 0.00, 0.00]),
    ("PT-PP", &[12.0, 114.0, 126.0, 6.0, 93.1, 0.97, 1.00, 0.92, 0.20, 0.19]),
    ("L2-Norm1", &[126.0, 7.0, 133.0, 10.0, 98.2, 1.05, 0.93, 0.95, 0.00, 0.01]),
    ("L2-Norm2", &[97.0, 39.0, 136.0, 8.0, 100.0, 1.06, 0.95, 0.94, 0.01, 0.03]),
    ("L2-Norm4", &[91.0, 45.0, 135.0, 8.0, 99.9, 1.06, 0.95, 0.94, 0.02, 0.04]),
    ("L2-Norm8", &[90.0, 46.0, 135.0, 8.0, 99.9, 1.06, 0.96, 0.94, 0.02, 0.04]),
    ("Balance1", &[107.0, 29.0, 136.0, 8.0, 100.0, 1.05, 0.97, 0.94, 0.05, 0.04]),
    ("Balance2", &[67.0, 64.0, 131.0, 7.0, 96.8, 1.02, 0.98, 0.93, 0.11, 0.09]),
    ("Balance4", &[63.0, 69.0, 133.0, 6.0, 97.8, 1.02, 0.99, 0.92, 0.12, 0.09]),
    ("Balance8", &[63.0, 70.0, 133.0, 6.0, 97.8, 1.02, 0.99, 0.92, 0.12, 0.09]),
    ("Scan1", &[117.0, 18.0, 136.0, 8.0, 100.0, 1.06, 0.94, 0.91, 0.01, 0.01]),
    ("Scan2", &[108.0, 27.0, 136.0, 8.0, 100.0, 1.06, 0.95, 0.90, 0.01, 0.02]),
    ("Scan4", &[83.0, 52.0, 135.0, 8.0, 99.9, 1.04, 0.95, 0.90, 0.05, 0.05]),
    ("Scan8", &[65.0, 70.0, 135.0, 7.0, 99.4, 1.01, 0.98, 0.91, 0.12, 0.09]),
];

/// Reasons for printed values outside the ranges.
const REASONS: &[Reason] = &[
    (
        &["L2-Norm"],
        "unresolved: neither the sum of components, which these rows take, nor the stated norm (as written) divides the \
         services among the processors like this; the numbers of services agree",
    ),
    (&["Scan", "Balance"], "near the end of the range: one mean in twenty lies outside by chance"),
];

pub fn run(run: &mut Run) -> Experiment {
    let mut choices = workload_choices();
    choices.extend(Choice::all(&[
        (
            "budget of the PowerPC",
            "195.5 million cycles/s for tiny services at line rate and averages of the others",
        ),
        (
            "use of the secondary PCI bus",
            "0.7 of the times of input and output, again on the way to the Pentium",
        ),
        (
            "norm of L2-Norm",
            "the sum of components, as for table 4.6; \"as written\" rows take the Euclidean norm",
        ),
        ("equal norms", "the processor nearest to the ports"),
    ]));
    let experiment = Experiment {
        name: "vera-table-4.9".to_owned(),
        title: "Algorithms on the PMC694 router, 9/45/45/1".to_owned(),
        paper: paper("table 4.9"),
        choices,
        ..Experiment::default()
    };
    match router("pmc694") {
        Some(hardware) => {
            let rows = algorithms::pmc694(&hardware);
            compare(run, &hardware, &rows, PRINTED, &COLUMNS, statements, experiment)
        }
        None => experiment,
    }
}

/// Judges the conclusions of section 4.6.3.
fn statements(ours: &Table) -> Vec<Statement> {
    let n = |row: &str| ours.value(row, "N").unwrap_or_default();
    let families = ["L2-Norm", "Balance", "Scan"];
    let best = PRINTED.iter().skip(2).map(|(name, _)| n(name)).fold(0.0, f64::max);
    let orders = n("PP-PT").max(n("PT-PP"));
    let falls = families.iter().all(|family| {
        let on = |factor: &f64| ours.value(&format!("{family}{factor}"), "on PP").unwrap_or_default();
        algorithms::FACTORS.windows(2).all(|pair| on(&pair[1]) <= on(&pair[0]) + 0.5)
    });
    let share = |column: &str| ours.value("PT-PP", column).unwrap_or_default();
    vec![
        Statement::new(
            "no order is better than the best algorithms by norm",
            orders < best,
            format!("{orders:.1} and {best:.1}"),
        ),
        Statement::new(
            "with PT-PP, the secondary PCI bus is full before the ports",
            share("sPCI") > share("Port"),
            format!("{:.2} and {:.2}", share("sPCI"), share("Port")),
        ),
        Statement::new(
            "with PP-PT, the PowerPC is full",
            ours.value("PP-PT", "PP").is_some_and(|share| share > 0.93),
            String::new(),
        ),
        Statement::new("the larger the factor, the fewer services are on the PowerPC", falls, String::new()),
    ]
}
