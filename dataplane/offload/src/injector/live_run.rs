//! Live run: a program runs on frames, and the kernel carries out its verdicts.

use std::io;
use std::os::fd::BorrowedFd;

use crate::InjectError;
use crate::bpf::syscall;

/// Length of the longest frame of a live run, in bytes: a 4 KiB page minus the kernel's own head (at most
/// 192), the headroom (256) and the tail that a socket buffer needs (320). On machines with larger pages the
/// limit is the same.
pub(crate) const MAX_FRAME: usize = 3_328;
/// Length of the shortest frame: an Ethernet header, in bytes.
pub(crate) const MIN_FRAME: usize = 14;
/// Maximum number of frames per batch in the kernel.
pub(crate) const MAX_BATCH: u32 = 256;

/// Checks the length of each frame.
pub(crate) fn check_lengths(frames: &[&[u8]]) -> Result<(), InjectError> {
    match frames.iter().map(|frame| frame.len()).find(|length| !(MIN_FRAME..=MAX_FRAME).contains(length)) {
        Some(length) if length < MIN_FRAME => Err(InjectError::TooShort { length }),
        Some(length) => Err(InjectError::TooLong { length, max: MAX_FRAME }),
        None => Ok(()),
    }
}

/// Runs `program` on `count` frames that start with `first`, as if received from `ifindex`.
pub(crate) fn run(
    program: BorrowedFd<'_>,
    ifindex: u32,
    first: &[u8],
    count: u32,
    batch: u32,
) -> Result<(), InjectError> {
    syscall::run_live(program, ifindex, first, count, batch.clamp(1, MAX_BATCH)).map_err(|error| match error
        .raw_os_error()
    {
        Some(libc::ENODEV) => InjectError::DeviceGone { ifindex },
        _ => InjectError::Kernel(error),
    })
}

/// Returns whether a signal interrupted a run. The program's map then tells the number of frames done.
pub(crate) fn was_interrupted(error: &InjectError) -> bool {
    matches!(error, InjectError::Kernel(error) if error.kind() == io::ErrorKind::Interrupted)
}
