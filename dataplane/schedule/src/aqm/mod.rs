//! Active queue management (AQM) of one queue (RFC 7567): tail drop at the discard threshold only, RED, or
//! CoDel.

mod codel;
mod red;

pub use codel::CodelSettings;
pub use red::{RedSettings, RedUnit};

pub(crate) use codel::{Codel, CodelQueue};
pub(crate) use red::RedVerdict;

use red::Red;

/// Active queue management of a queue, in addition to its discard threshold.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Aqm {
    /// Tail drop: drops only packets that arrive above the discard threshold.
    #[default]
    TailDrop,
    /// Random early detection.
    Red(RedSettings),
    /// Controlled delay.
    Codel(CodelSettings),
}

impl Aqm {
    /// Returns the reason why the settings are invalid, or `None`.
    pub(crate) fn objection(&self) -> Option<String> {
        match self {
            Self::TailDrop => None,
            Self::Red(settings) => settings.objection().map(|text| format!("red: {text}")),
            Self::Codel(settings) => codel_objection(settings),
        }
    }
}

/// Longest CoDel interval, in nanoseconds: one hour.
const LONGEST_INTERVAL: u64 = 3_600_000_000_000;

pub(crate) fn codel_objection(settings: &CodelSettings) -> Option<String> {
    let CodelSettings { target, interval, .. } = settings;
    (*target == 0 || target >= interval || *interval > LONGEST_INTERVAL).then(|| {
        format!(
            "codel: target {target} ns, interval {interval} ns: the target must be above 0 and below the \
             interval, and the interval at most 1 h"
        )
    })
}

/// State of an [`Aqm`].
#[derive(Clone, Debug, Default)]
pub(crate) enum AqmState {
    #[default]
    TailDrop,
    Red(Box<Red>),
    Codel(CodelSettings, Codel),
}

impl AqmState {
    /// Creates the AQM state of queue number `queue`. Each queue draws its own random numbers.
    pub fn new(aqm: &Aqm, queue: u32) -> Self {
        match aqm {
            Aqm::TailDrop => Self::TailDrop,
            Aqm::Red(settings) => Self::Red(Box::new(Red::new(*settings, queue))),
            Aqm::Codel(settings) => Self::Codel(*settings, Codel::default()),
        }
    }

    /// Changes the settings. The state stays, unless the kind of AQM changes.
    pub fn set(&mut self, aqm: &Aqm, queue: u32) {
        match (self, aqm) {
            (Self::Red(red), Aqm::Red(settings)) => red.set(*settings),
            (Self::Codel(before, _), Aqm::Codel(settings)) => *before = *settings,
            (state, aqm) => *state = Self::new(aqm, queue),
        }
    }

    pub fn settings(&self) -> Aqm {
        match self {
            Self::TailDrop => Aqm::TailDrop,
            Self::Red(red) => Aqm::Red(red.settings),
            Self::Codel(settings, _) => Aqm::Codel(*settings),
        }
    }
}
