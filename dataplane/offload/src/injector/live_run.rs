//! A run of live frames through a program, and what fits into one.

use std::io;
use std::os::fd::BorrowedFd;

use crate::{InjectError, bpf_syscall};

/// The longest frame of a live run in bytes: a 4 KiB page less the kernel's own head (at most 192), the headroom (256)
/// and the tail that a socket buffer needs (320). The same on machines with larger pages.
pub(crate) const MAX_FRAME: usize = 3_328;
/// An Ethernet header.
pub(crate) const MIN_FRAME: usize = 14;
/// The kernel's own limit on frames per batch.
pub(crate) const MAX_BATCH: u32 = 256;

/// Checks that each frame fits.
pub(crate) fn check_lengths(frames: &[&[u8]]) -> Result<(), InjectError> {
    match frames.iter().map(|frame| frame.len()).find(|length| !(MIN_FRAME..=MAX_FRAME).contains(length)) {
        Some(length) if length < MIN_FRAME => Err(InjectError::TooShort { length }),
        Some(length) => Err(InjectError::TooLong { length, max: MAX_FRAME }),
        None => Ok(()),
    }
}

/// Runs `count` frames that start out as `first`, as received from `ifindex`.
pub(crate) fn run(
    program: BorrowedFd<'_>,
    ifindex: u32,
    first: &[u8],
    count: u32,
    batch: u32,
) -> Result<(), InjectError> {
    bpf_syscall::run_live(program, ifindex, first, count, batch.clamp(1, MAX_BATCH)).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENODEV) => InjectError::DeviceGone { ifindex },
            _ => InjectError::Kernel(error),
        }
    })
}

/// Whether a signal cut a run short: how far it got stands in the program's map.
pub(crate) fn was_interrupted(error: &InjectError) -> bool {
    matches!(error, InjectError::Kernel(error) if error.kind() == io::ErrorKind::Interrupted)
}
