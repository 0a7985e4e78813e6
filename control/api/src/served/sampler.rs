//! Sampler of port counters, shared by all clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_controller::operation::GetCounters;
use millrace_controller::view::CountersView;
use millrace_controller::{Call, ControlError, Operation, Router};
use tokio::sync::Mutex;

/// Maximum age of a shared sample. Many clients thus cost the data plane no more than one client.
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
    /// Returns the shared sample. Reads a new one if the sample is older than [`FRESH`].
    ///
    /// # Errors
    /// Returns an error if the caller may not read the counters, or if the data plane does not answer.
    pub async fn sample(&self, control: &Router, call: &Call) -> Result<Arc<CountersView>, ControlError> {
        // A shared sample needs the same role as a new one.
        call.principal().may(GetCounters::ROLE)?;
        // Hold the lock while reading the counters, so that other callers wait for this sample.
        let mut last = self.0.lock().await;
        if let Some(sample) = last.as_ref().filter(|sample| sample.at.elapsed() < FRESH) {
            return Ok(sample.counters.clone());
        }
        let counters = Arc::new(control.execute(call, GetCounters).await?);
        *last = Some(Sample { at: Instant::now(), counters: counters.clone() });
        Ok(counters)
    }
}
