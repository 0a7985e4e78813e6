//! Processor time of instances, by chained readings: the end of a call is the start of the next one.

/// Returns a reading of a cycle counter; `None` if the processor has none.
pub type CycleClock = fn() -> Option<u64>;

/// Meter of a worker. It runs while packets of a principal run.
#[derive(Default)]
pub(crate) struct Meter {
    /// Counter of cycles; `None` without a CPU scheduler.
    pub clock: Option<CycleClock>,
    last: Option<u64>,
}

impl Meter {
    /// Starts the meter.
    #[inline]
    pub fn start(&mut self) {
        self.last = self.clock.and_then(|clock| clock());
    }

    /// Stops the meter.
    #[inline]
    pub fn stop(&mut self) {
        self.last = None;
    }

    /// Adds the cycles since the last reading to `account`, if the meter runs.
    #[inline]
    pub fn charge(&mut self, account: &mut u64) {
        if let Some(last) = self.last
            && let Some(now) = self.clock.and_then(|clock| clock())
        {
            *account = account.wrapping_add(now.saturating_sub(last));
            self.last = Some(now);
        }
    }
}
