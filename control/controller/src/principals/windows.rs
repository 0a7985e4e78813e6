//! Windows over which promises are reported and judged.

/// Lengths of the reported windows, in seconds.
pub(super) const WINDOWS: [u64; 3] = [1, 10, 60];
/// Window over which a promise must be kept, in seconds.
pub(super) const JUDGED: u64 = 10;
/// Relative error of shares and rates that counts as kept.
pub(super) const TOLERANCE: f64 = 0.01;

/// Returns the growth of a counter. A counter of a principal that was removed and added again starts from zero.
pub(super) fn growth(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}
