//! Memory guard: checks that enough memory is free before a request takes some.

use crate::ControlError;

/// Functions that check the free memory of this process; the program that starts the router supplies them.
#[derive(Clone, Copy, Debug)]
pub struct MemoryGuard {
    /// Returns whether this many bytes are free, apart from the reserve for running requests.
    pub has_room: fn(usize) -> bool,
    /// Refills the reserve if an allocation has used it. Returns whether memory is sufficient.
    pub recover: fn() -> bool,
}

/// Maximum memory in bytes that a request takes for each byte of its body. It covers the body's text, the
/// parsed value, and the data made from the value.
const PER_BYTE: usize = 32;

/// Checks that memory suffices for a request whose body has this many bytes.
pub(crate) fn room_for(guard: Option<MemoryGuard>, body: usize) -> Result<(), ControlError> {
    if guard.is_none_or(|guard| (guard.has_room)(body.saturating_mul(PER_BYTE))) {
        return Ok(());
    }
    Err(ControlError::NoRoom(
        "memory is short, so the request was refused; nothing was changed, and forwarding continues: send a smaller request, or give the \
         router more memory"
            .to_owned(),
    ))
}
