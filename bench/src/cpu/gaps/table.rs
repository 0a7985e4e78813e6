//! Table 1 of Srishti: the model beside the printed figures, and Millrace beside both.

use std::time::Duration;

use super::model::{AS_PRINTED, AS_WRITTEN, modelled};
use super::{Sandboxed, TABLE};
use crate::BenchError;
use crate::statistics::median;

/// Line of the table: a gap of the plain flow, and standard deviations of the received gap, all in milliseconds.
#[derive(Clone, Debug)]
pub struct GapDeviations {
    /// Gap of the plain flow.
    pub gap: u64,
    /// Printed deviations, with control at the timer, at returns, at both.
    pub printed: [f64; 3],
    /// Deviations of the model in the same three ways, with invocations of 1.5 to 10.5 ms and 0.44 ms for a plain
    /// packet. Not a number if the scheduler refuses the model.
    pub model: [f64; 3],
    /// Same with the stated invocations of 3 to 21 ms and 10 us for a plain packet.
    pub written: [f64; 3],
    /// Median deviation of a worker that runs a sandboxed plugin, or the reason why it was not measured.
    pub millrace: Result<f64, String>,
}

/// Returns the table, with `runs` runs of the worker for each of the four gaps. A run takes one to three seconds.
/// `progress` receives the finished share, from 0 to 1.
pub fn gap_deviations(runs: usize, progress: &mut dyn FnMut(f64)) -> Vec<GapDeviations> {
    let line = |(index, (gap, printed)): (usize, (u64, [f64; 3]))| {
        let millrace = measured(gap, runs).map_err(|error| error.to_string());
        progress((index + 1) as f64 / TABLE.len() as f64);
        let [model, written] = [AS_PRINTED, AS_WRITTEN].map(|reading| modelled(gap, reading));
        GapDeviations { gap, printed, model, written, millrace }
    };
    TABLE.into_iter().enumerate().map(line).collect()
}

fn measured(gap: u64, runs: usize) -> Result<f64, BenchError> {
    if runs == 0 {
        return Err(super::failed("no run was asked for"));
    }
    let worker = Sandboxed::new()?;
    let deviations = (0..runs).map(|_| worker.run(Duration::from_millis(gap), true));
    Ok(median(&deviations.collect::<Result<Vec<_>, _>>()?))
}
