//! Whether there is memory for what is asked for, and what is done where there isn't.

use serde_json::json;

use crate::ControlError;
use crate::router::{Inner, Router};

/// What knows how much memory is left to this process: whoever started the router.
#[derive(Clone, Copy, Debug)]
pub struct MemoryGuard {
    /// Whether so many bytes can be had, beside what is kept back for what has begun.
    pub has_room: fn(usize) -> bool,
    /// Keeps back again what had to be given up. Returns whether there is room again.
    pub recover: fn() -> bool,
}

/// Bytes of memory that a request takes at most, for each byte of its body: a text, what was read of it, and what is made of that.
const PER_BYTE: usize = 32;

impl Router {
    /// Looks from now on, once a second and at each change, whether there is memory.
    pub fn guard_memory(&self, guard: MemoryGuard) {
        self.lock().memory = Some(guard);
    }

    /// Whether there is memory for a request with a body of so many bytes.
    ///
    /// # Errors
    /// [`ControlError::NoRoom`] where there isn't.
    pub fn room_for(&self, body: usize) -> Result<(), ControlError> {
        let guard = self.lock().memory;
        if guard.is_none_or(|guard| (guard.has_room)(body.saturating_mul(PER_BYTE))) {
            return Ok(());
        }
        Err(ControlError::NoRoom(
            "memory is short: nothing was changed, and packets are forwarded; ask for less, or give the router more".to_owned(),
        ))
    }
}

impl Inner {
    /// Looks whether memory is short, and says when that begins and ends.
    pub fn observe_memory(&mut self) {
        let Some(guard) = self.memory else { return };
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
