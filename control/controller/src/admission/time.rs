//! Processor time that may be promised, and its units.

use millrace_config::{Admission, Principal, PromisedPart, Router};

use crate::model::Model;
use crate::model::placements::Used;
use crate::principals::processors;

/// Parts per million in a whole processor.
pub(super) const WHOLE: u64 = 1_000_000;

/// Processor time that may be promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'a> {
    /// Number of processors; `None` on a machine that may not be the router's.
    pub(super) processors: Option<usize>,
    pub(super) router: &'a Router,
    pub(super) part: PromisedPart,
    /// Time that services use.
    pub(super) used: Used,
}

impl<'a> Whole<'a> {
    /// Returns the time of this machine's processors, and of the workers.
    pub fn of(router: &'a Router, admission: &Admission) -> Self {
        Self { processors: Some(processors()), router, part: admission.cpu, used: Used::default() }
    }

    /// Returns the time beside services.
    pub(super) fn beside(self, used: Used) -> Self {
        Self { used, ..self }
    }

    /// Returns the time of all processors, in parts per million of one.
    pub fn of_processors(self) -> u64 {
        self.processors.map_or(u64::MAX, |processors| self.part.of(processors as u64 * WHOLE))
    }

    /// Returns the time that `core-ceiling` leaves of all workers, in parts per million of one processor.
    pub fn of_workers(self) -> u64 {
        self.part.of(self.router.workers as u64 * (WHOLE - u64::from(self.router.core_ceiling.ppm())))
    }

    /// Returns the time that flows of one worker can get at most, in parts per million of its processor.
    pub fn of_worker(model: &Model) -> u64 {
        model.admission.cpu.of(WHOLE - u64::from(model.router.core_ceiling.ppm()))
    }

    /// Returns the end of a sentence that names the time, of which services use `used` parts per million.
    pub(super) fn limited(self, what: String, used: u64) -> String {
        let what = match u64::from(self.part.ppm()) {
            WHOLE => what,
            _ => format!("{what}, of which admission promises {}", self.part),
        };
        match used {
            0 => what,
            used => format!("{what}, of which services use {} %", percent(used)),
        }
    }
}

/// Returns the sum of the shares of the principals that `counts` selects, in parts per million.
pub(crate) fn promised(model: &Model, counts: impl Fn(&Principal) -> bool) -> u64 {
    let shares = model.principals.iter().filter(|one| counts(one)).filter_map(Principal::reserved_cpu);
    shares.map(|share| u64::from(share.ppm())).sum()
}

/// Returns parts per million in percent.
pub(crate) fn percent(ppm: u64) -> f64 {
    ppm as f64 / 10_000.0
}
