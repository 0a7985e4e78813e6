//! Sampler of port counters, shared by all clients.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_controller::view::CountersView;
use millrace_controller::{ControlError, Router};

/// Maximum age of a shared sample, so that many clients cost the data plane no more than one.
const FRESH: Duration = Duration::from_millis(80);

/// Shared sample of the counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampler(Arc<Mutex<Option<Sample>>>);

/// Counters, and the time of reading them.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    counters: Arc<CountersView>,
}

impl Sampler {
    /// Returns the last sample if it is recent, else a new one.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn sample(&self, control: &Router) -> Result<Arc<CountersView>, ControlError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sample) = last.as_ref().filter(|sample| sample.at.elapsed() < FRESH) {
            return Ok(sample.counters.clone());
        }
        let counters = Arc::new(control.counters()?);
        *last = Some(Sample { at: Instant::now(), counters: counters.clone() });
        Ok(counters)
    }
}
