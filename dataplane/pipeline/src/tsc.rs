//! Time-stamp counter of the processor, read for traced packets and measured plugins only.

/// Returns the value of the time-stamp counter in cycles; `None` if the processor has none.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline]
pub fn cycles() -> Option<u64> {
    #[cfg(test)]
    if let Some(cycles) = pretended::now() {
        return Some(cycles);
    }
    // SAFETY: reading the counter has no precondition.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

/// Returns the value of the time-stamp counter in cycles; `None` if the processor has none.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn cycles() -> Option<u64> {
    None
}

/// Counter of a test: cycles pass only when the test says so.
#[cfg(test)]
pub(crate) mod pretended {
    use std::cell::Cell;

    thread_local!(static CYCLES: Cell<Option<u64>> = const { Cell::new(None) });

    /// Replaces the processor's counter on this thread.
    pub(crate) fn begin() {
        CYCLES.set(Some(0));
    }

    /// Lets this thread read the processor's counter again.
    pub(crate) fn end() {
        CYCLES.set(None);
    }

    /// Lets cycles pass.
    pub(crate) fn pass(cycles: u64) {
        CYCLES.set(CYCLES.get().map(|now| now + cycles));
    }

    pub(super) fn now() -> Option<u64> {
        CYCLES.get()
    }
}
