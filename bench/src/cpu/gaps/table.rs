//! Table 1 of Srishti: the model beside the printed figures, and Millrace beside both.

use std::time::Duration;

use super::model::{Control, deviation_of};
use super::{PACKETS, Sandboxed, TABLE};

/// Line of the table: a gap of the plain flow, and standard deviations of the received gap, all in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct GapDeviations {
    /// Gap of the plain flow.
    pub gap: u64,
    /// Printed deviations, with control at the timer, at returns, at both.
    pub printed: [f64; 3],
    /// Deviations of the model in the same three ways. Not a number if the scheduler refuses the model.
    pub model: [f64; 3],
    /// Deviation of a worker that runs a sandboxed plugin; `None` if it can't be measured.
    pub millrace: Option<f64>,
}

/// Returns the table. The worker runs for `time` with each of the four gaps. `progress` receives the finished share,
/// from 0 to 1.
pub fn gap_deviations(time: Duration, progress: &mut dyn FnMut(f64)) -> Vec<GapDeviations> {
    let worker = Sandboxed::new().ok();
    let line = |(index, (gap, printed)): (usize, (u64, [f64; 3]))| {
        let each = Duration::from_millis(gap);
        let model = [Control::Timer, Control::Return, Control::Both]
            .map(|control| deviation_of(control, each, PACKETS).unwrap_or(f64::NAN));
        let millrace = worker.as_ref().and_then(|worker| worker.deviation(each, time, true).ok());
        progress((index + 1) as f64 / TABLE.len() as f64);
        GapDeviations { gap, printed, model, millrace }
    };
    TABLE.into_iter().enumerate().map(line).collect()
}
