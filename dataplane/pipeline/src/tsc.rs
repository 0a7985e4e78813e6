//! Time-stamp counter of the processor, read for traced packets and measured plugins only.

/// Returns the value of the time-stamp counter in cycles; `None` if the processor has none.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline]
pub fn cycles() -> Option<u64> {
    // SAFETY: reading the counter has no precondition.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

/// Returns the value of the time-stamp counter in cycles; `None` if the processor has none.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn cycles() -> Option<u64> {
    None
}
