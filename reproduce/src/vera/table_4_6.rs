//! Table 4.6: algorithms on the IXP1200 router.

use super::performance::{Columns, Printed, compare};
use super::{algorithms, paper, router, workload_choices};
use crate::Run;
use crate::exceptions::Reason;
use crate::experiment::{Choice, Experiment, Statement};
use crate::table::Table;

const COLUMNS: Columns = Columns {
    reasons: REASONS,
    processors: &["UE", "SA", "PT"],
    components: &[("Port", "Port.in"), ("UE", "UE"), ("SA", "SA"), ("PCI", "PCI"), ("PT", "PT")],
};

/// Rows as printed.
const PRINTED: &[Printed] = &[
    ("UE-PT-SA", &[90.0, 0.0, 85.0, 174.0, 22.0, 99.2, 1.44, 0.99, 0.33, 0.48, 0.41]),
    ("UE-SA-PT", &[90.0, 85.0, 0.0, 174.0, 22.0, 99.2, 1.44, 0.99, 0.74, 0.00, 0.00]),
    ("PT-UE-SA", &[36.0, 0.0, 90.0, 127.0, 15.0, 72.1, 1.09, 0.97, 1.00, 0.64, 0.58]),
    ("PT-SA-UE", &[36.0, 0.0, 90.0, 127.0, 15.0, 72.1, 1.09, 0.97, 1.00, 0.64, 0.58]),
    ("SA-UE-PT", &[36.0, 88.0, 3.0, 127.0, 18.0, 72.1, 1.08, 0.97, 1.00, 0.01, 0.01]),
    ("SA-PT-UE", &[36.0, 88.0, 3.0, 127.0, 18.0, 72.1, 1.08, 0.97, 1.00, 0.01, 0.01]),
    ("L2-Norm1", &[28.0, 77.0, 23.0, 127.0, 9.0, 72.6, 1.04, 0.97, 1.00, 0.04, 0.07]),
    ("L2-Norm2", &[25.0, 69.0, 35.0, 129.0, 9.0, 73.3, 1.04, 0.97, 1.00, 0.06, 0.11]),
    ("L2-Norm4", &[22.0, 65.0, 41.0, 128.0, 8.0, 73.0, 1.01, 0.97, 1.00, 0.10, 0.14]),
    ("L2-Norm8", &[22.0, 55.0, 59.0, 136.0, 6.0, 77.2, 1.07, 0.97, 1.00, 0.32, 0.28]),
    ("Balance1", &[28.0, 65.0, 46.0, 138.0, 18.0, 78.7, 1.06, 0.97, 1.00, 0.25, 0.22]),
    ("Balance2", &[64.0, 36.0, 76.0, 176.0, 22.0, 100.0, 1.44, 0.99, 0.76, 0.44, 0.37]),
    ("Balance4", &[79.0, 13.0, 82.0, 175.0, 22.0, 99.5, 1.44, 0.99, 0.49, 0.47, 0.40]),
    ("Balance8", &[86.0, 5.0, 84.0, 175.0, 22.0, 99.4, 1.44, 0.99, 0.38, 0.47, 0.40]),
    ("UE;S-P-1", &[90.0, 46.0, 39.0, 174.0, 22.0, 99.2, 1.44, 0.99, 0.52, 0.06, 0.12]),
    ("UE;S-P-2", &[90.0, 30.0, 55.0, 174.0, 22.0, 99.2, 1.44, 0.99, 0.45, 0.09, 0.17]),
    ("UE;S-P-4", &[90.0, 22.0, 63.0, 174.0, 22.0, 99.2, 1.44, 0.99, 0.42, 0.15, 0.21]),
    ("UE;S-P-8", &[90.0, 2.0, 83.0, 174.0, 22.0, 99.2, 1.44, 0.99, 0.33, 0.45, 0.39]),
    ("Scan1", &[16.0, 57.0, 82.0, 156.0, 13.0, 88.7, 0.84, 0.94, 0.99, 0.44, 0.38]),
    ("Scan2", &[16.0, 56.0, 84.0, 156.0, 12.0, 89.1, 0.85, 0.94, 0.99, 0.47, 0.40]),
    ("Scan4", &[16.0, 56.0, 84.0, 156.0, 12.0, 89.1, 0.85, 0.94, 0.99, 0.47, 0.40]),
    ("Scan8", &[16.0, 56.0, 84.0, 156.0, 12.0, 89.1, 0.85, 0.94, 0.99, 0.47, 0.40]),
];

/// Reasons for printed values outside the ranges.
const REASONS: &[Reason] = &[
    (
        &["PT-", "SA-"],
        "the printed five workloads have 183 services on average, ours 169; so the Pentium hosts more of them, and \
         orders that begin elsewhere leave the microengines a little emptier",
    ),
    (
        &["L2-Norm", "UE;S-P-"],
        "the printed workloads are larger; and these rows take the sum of components, which agrees with most of their \
         values, not the norm that the text states (as written)",
    ),
];

pub fn run(run: &mut Run) -> Experiment {
    let mut choices = workload_choices();
    choices.extend(Choice::all(&[
        ("components of norms", "all but the ports, with global sum, maximum and total of the microengines"),
        ("factor of the StrongARM", "multiplies its use before the norm"),
        (
            "norm of L2-Norm and Hybrid",
            "the sum of components agrees with the printed rows; \"as written\" rows take the stated norms",
        ),
        ("equal norms", "the processor nearest to the ports"),
        ("transfers of whole packets", "header with 4 bytes first, then the packet with 4 bytes"),
    ]));
    let experiment = Experiment {
        name: "vera-table-4.6".to_owned(),
        title: "Algorithms on the IXP1200 router, 9/45/45/1".to_owned(),
        paper: paper("table 4.6"),
        choices,
        ..Experiment::default()
    };
    match router("ixp1200") {
        Some(hardware) => {
            let rows = algorithms::ixp1200(&hardware);
            compare(run, &hardware, &rows, PRINTED, &COLUMNS, statements, experiment)
        }
        None => experiment,
    }
}

/// Judges the conclusions of section 4.5.3.
fn statements(ours: &Table) -> Vec<Statement> {
    let n = |row: &str| ours.value(row, "N").unwrap_or_default();
    let printed = || PRINTED.iter().map(|(name, _)| n(name));
    let (least, most) = (printed().fold(f64::INFINITY, f64::min), printed().fold(0.0, f64::max));
    let spread = 100.0 * (most / least - 1.0);
    let of_hybrid = algorithms::FACTORS.map(|factor| n(&format!("UE;S-P-{factor}")));
    let hybrid = of_hybrid.iter().all(|count| (count - n("UE-PT-SA")).abs() < 0.1);
    let first = n("SA-UE-PT").max(n("SA-PT-UE"));
    let on = |row: &str| ours.value(row, "on SA").unwrap_or_default();
    let falls = |family: &str| {
        let counts = algorithms::FACTORS.map(|factor| on(&format!("{family}{factor}")));
        counts.windows(2).all(|pair| pair[1] <= pair[0] + 0.5)
    };
    vec![
        Statement::new(
            "orders that begin with the StrongARM place fewest services",
            first <= 1.02 * least,
            format!("{first:.1} services; the least is {least:.1}"),
        ),
        Statement::new(
            "Balance2 places most services",
            n("Balance2") >= most,
            format!("{:.1}", n("Balance2")),
        ),
        Statement::new(
            "UE-PT-SA and Hybrid place equally many",
            hybrid,
            format!("{:.1} and {of_hybrid:.1?}", n("UE-PT-SA")),
        ),
        Statement::new(
            "best and worst algorithm differ by 39 %",
            (30.0..=48.0).contains(&spread),
            format!("{spread:.0} %"),
        ),
        Statement::new(
            "a factor of the StrongARM raises Balanced from 79 % to 100 %",
            n("Balance1") < 0.85 * n("Balance2"),
            format!("{:.1} and {:.1}", n("Balance1"), n("Balance2")),
        ),
        Statement::new(
            "the larger the factor, the fewer services Hybrid places on the StrongARM",
            falls("UE;S-P-"),
            String::new(),
        ),
        Statement::new(
            "Scan places fewer services than the best online algorithms",
            n("Scan4") < n("UE-PT-SA"),
            format!("{:.1}", n("Scan4")),
        ),
    ]
}
