//! Memory guard: checks for free memory before requests, and reports shortages.

use serde_json::json;

use crate::ControlError;
use crate::observe::Observation;
use crate::router::Router;

/// Functions that check the free memory of this process; the program that starts the router supplies them.
#[derive(Clone, Copy, Debug)]
pub struct MemoryGuard {
    /// Returns whether this many bytes are free, in addition to the reserve for running requests.
    pub has_room: fn(usize) -> bool,
    /// Refills the reserve if an allocation has used it. Returns whether memory is sufficient.
    pub recover: fn() -> bool,
}

/// Maximum memory that a request takes for each byte of its body: for the text, the parsed value and the data
/// made from it.
const PER_BYTE: usize = 32;

impl Router {
    /// Starts checking memory, once a second and before each request that takes memory.
    pub fn guard_memory(&self, guard: MemoryGuard) {
        self.lock().supervision.memory = Some(guard);
    }

    /// Checks that memory suffices for a request with a body of this many bytes.
    ///
    /// # Errors
    /// [`ControlError::NoRoom`] when memory is short.
    pub fn room_for(&self, body: usize) -> Result<(), ControlError> {
        let guard = self.lock().supervision.memory;
        if guard.is_none_or(|guard| (guard.has_room)(body.saturating_mul(PER_BYTE))) {
            return Ok(());
        }
        Err(ControlError::NoRoom(
            "memory is short: nothing was changed, and packets are forwarded; ask for less, or give the router more".to_owned(),
        ))
    }
}

impl Observation {
    /// Checks whether memory is short. Notes an event when a shortage begins or ends.
    pub fn observe_memory(&mut self, guard: Option<MemoryGuard>) {
        let Some(guard) = guard else { return };
        let is_short = !(guard.recover)();
        let text = "memory is short: what takes more of it is refused, and packets are forwarded";
        if let Some(began) = self.observe_threshold("memory", is_short, !is_short, text.to_owned(), json!({}))
        {
            match began {
                true => tracing::error!("{text}"),
                false => tracing::info!("there is memory again"),
            }
        }
    }
}
