//! The processor's time-stamp counter: what stages cost packets that are traced, and plugins that are measured. The data plane
//! does not read it otherwise.

/// Cycles of the counter since some moment; `None` where there is no such counter.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline]
pub fn cycles() -> Option<u64> {
    // SAFETY: reading the counter has no precondition.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

/// Cycles of the counter since some moment; `None` where there is no such counter.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn cycles() -> Option<u64> {
    None
}
