//! Mixes of tables 4.5 and 4.8, and sets of five workloads.

use millrace_admission::hardware::Hardware;
use millrace_admission::workload::{Mix, Workload};

use crate::Run;
use crate::exceptions::{Reason, listed};
use crate::experiment::Experiment;
use crate::table::Table;

/// Workloads of a set.
pub const SET: u64 = 5;

/// Share of printed means that must lie inside their ranges. One in twenty lies outside by chance, and the means of a
/// table are not independent: they are of the same five workloads.
pub const LEAST_INSIDE: f64 = 0.9;

/// Returns a set of workloads. The seeds are the numbers of the workloads.
pub fn set(hardware: &Hardware, mix: Mix, number: u64) -> Vec<Workload> {
    (0..SET).map(|index| Workload::generate(hardware, mix, number * SET + index)).collect()
}

/// Returns the mean.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns the standard deviation of a sample.
pub fn deviation(values: &[f64]) -> f64 {
    let middle = mean(values.iter().copied());
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}

/// Returns the name of a mix, such as `9/45/45/1`.
pub fn name(mix: Mix) -> String {
    mix.map(|percent| percent.to_string()).join("/")
}

/// Printed row of table 4.5 or 4.8: counts of the classes, N, its deviation and the smallest impacts.
pub type Printed = (Mix, [f64; 6], [f64; 3]);

/// Reason for printed values outside the ranges.
pub const CHANCE: Reason = (
    &[""],
    "one mean in twenty lies outside by chance, and the means of a mix are of the same five workloads",
);

/// Compares a table of workloads. `components` are those whose smallest impacts are printed.
pub fn compare(
    run: &mut Run,
    hardware: &Hardware,
    rows: &[Printed],
    components: [(&str, &str); 3],
    reasons: &[Reason],
    experiment: Experiment,
) -> Experiment {
    let impacts = components.map(|(heading, _)| format!("{heading}:2"));
    let [first, second, third] = &impacts;
    let headings = ["tiny", "small", "medium", "large", "N", "σ", first, second, third];
    let (mut printed, mut ours) = (Table::new(&headings), Table::new(&headings));
    for (index, (mix, counts, shares)) in rows.iter().enumerate() {
        printed.add(&name(*mix), &[&counts[..], &shares[..]].concat());
        let mut sets = Vec::new();
        for number in 0..run.sets {
            sets.push(row(&set(hardware, *mix, number), hardware, components));
            (run.progress)((index as f64 + number as f64 / run.sets as f64) / rows.len() as f64);
        }
        ours.add_sets(&name(*mix), &sets);
    }
    let (difference, outside) = ours.minus(&printed);
    let cells = printed.cells();
    let inside = cells - outside.len();
    let note = format!(
        "{inside} of {cells} printed means lie, as rounded, in the central 95 % of {} sets of five workloads. {}",
        run.sets,
        listed(&outside, &ours, reasons)
    );
    let holds = inside as f64 >= LEAST_INSIDE * cells as f64 && experiment.holds;
    Experiment { printed, ours, difference, holds, note, ..experiment }
}

fn row(set: &[Workload], hardware: &Hardware, components: [(&str, &str); 3]) -> Vec<f64> {
    let counts = |class: usize| mean(set.iter().map(|workload| workload.counts()[class] as f64));
    let sizes: Vec<f64> = set.iter().map(|workload| workload.requests.len() as f64).collect();
    let shares = components.map(|(_, component)| {
        let index = hardware.component(component);
        let share = |workload: &Workload| Some(workload.minimum.get(index?)?.number());
        mean(set.iter().filter_map(share))
    });
    let mut row: Vec<f64> = (0..4).map(counts).collect();
    row.extend([mean(sizes.iter().copied()), deviation(&sizes)]);
    row.extend(shares);
    row
}
