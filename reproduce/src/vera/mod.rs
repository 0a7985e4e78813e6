//! VERA: Karlin, "Embedded Computational Elements in Extensible Routers", 2003, chapter 4 and appendix A.

mod algorithms;
mod appendix;
mod exact;
mod figures;
mod performance;
mod table_4_2;
mod table_4_3;
mod table_4_4;
mod table_4_5;
mod table_4_6;
mod table_4_7;
mod table_4_8;
mod table_4_9;
mod workloads;

use millrace_admission::hardware::{Hardware, known};

use crate::Entry;
use crate::experiment::Choice;

pub const EXPERIMENTS: &[Entry] = &[
    Entry::computed("vera-table-4.2", "Classes of services", table_4_2::run),
    Entry::computed("vera-table-4.3", "Parameters of all routers", table_4_3::run),
    Entry::computed("vera-table-4.4", "Parameters of the IXP1200 router", table_4_4::run),
    Entry::computed("vera-table-4.5", "Workloads of the IXP1200 router", table_4_5::run),
    Entry::computed("vera-table-4.6", "Algorithms on the IXP1200 router", table_4_6::run),
    Entry::computed("vera-table-4.7", "Parameters of the PMC694 router", table_4_7::run),
    Entry::computed("vera-table-4.8", "Workloads of the PMC694 router", table_4_8::run),
    Entry::computed("vera-table-4.9", "Algorithms on the PMC694 router", table_4_9::run),
    Entry::computed("vera-exact-reference", "Largest numbers of services, by solvers", exact::run),
    Entry::computed("vera-figure-4.1", "Ratio of tiny to small services", figures::tiny_to_small),
    Entry::computed("vera-figure-4.2", "Ratio of small to medium services", figures::small_to_medium),
    Entry::computed("vera-figure-4.3", "Ratio of medium to large services", figures::medium_to_large),
];

/// Returns a router of the paper. Its file is part of the program, and tests check it.
fn router(name: &str) -> Option<Hardware> {
    Hardware::parse(known(name)?).ok()
}

/// Returns the paper with a place in it.
fn paper(place: &str) -> String {
    format!("Karlin, \"Embedded Computational Elements in Extensible Routers\", 2003, {place}")
}

/// Returns the choices that all experiments with workloads share.
fn workload_choices() -> Vec<Choice> {
    Choice::all(&[
        ("worst case of a service's cycles", "the drawn value"),
        ("cycles beyond the bounds of a class", "the bound"),
        (
            "rate of a service",
            "90,000 (small) or 170,000 (medium, large) cycles per second and port, divided by its cycles per packet",
        ),
        ("standard deviation of rates", "30 % of the mean"),
        ("standard deviation of packet sizes", "25 % of the mean"),
        ("drawing of classes", "shuffled decks of 100 services in the mix's percentages"),
        ("end of a workload", "before the service that would fill the ports and another component"),
        ("standard deviation of N", "of the sample: divided by 4"),
    ])
}
