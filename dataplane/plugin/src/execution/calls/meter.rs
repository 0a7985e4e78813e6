//! Processor time of instances, by chained readings: the end of a call is the start of the next one.

use millrace_plugin_abi::PayerBacklog;
use millrace_units::Cycles;

/// Returns a reading of a cycle counter; `None` if the processor has none.
pub type CycleClock = fn() -> Option<u64>;

/// Processor time that a principal gets at once, and its packets that still wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Grant {
    /// Number of its packets that wait for the processor.
    pub packets: u32,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Processor time until the next slice of another principal.
    pub time: Cycles,
    /// Cycles in a second.
    pub frequency: u64,
}

/// Meter of a worker. It runs while packets of a principal run.
#[derive(Default)]
pub(crate) struct Meter {
    /// Counter of cycles; `None` without a CPU scheduler.
    pub clock: Option<CycleClock>,
    last: Option<u64>,
    grant: Grant,
    /// Reading at which the time of the grant is over.
    end: u64,
}

impl Meter {
    /// Reads the counter, also while the meter doesn't run.
    #[inline]
    pub fn now(&self) -> Option<u64> {
        self.clock.and_then(|clock| clock())
    }

    /// Starts the meter.
    #[inline]
    pub fn start(&mut self) {
        self.last = self.now();
    }

    /// Stops the meter.
    #[inline]
    pub fn stop(&mut self) {
        self.last = None;
    }

    /// Whether the meter runs.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the last reading, if the meter runs.
    #[inline]
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Grants the running principal processor time from the last reading on.
    #[inline]
    pub fn grant(&mut self, grant: Grant) {
        self.end = self.last.unwrap_or(0).saturating_add(grant.time.0);
        self.grant = grant;
    }

    /// Returns what a call of the running principal may know about it, as of the last reading.
    #[inline]
    pub fn payer_backlog(&self) -> PayerBacklog {
        let Grant { packets, bytes, frequency, .. } = self.grant;
        let left = self.last.map(|last| Cycles(self.end.saturating_sub(last)).at(frequency));
        PayerBacklog { packets, bytes, allowance: left }
    }

    /// Reads the counter if the meter runs, without a charge: the beginning of a call.
    #[inline]
    pub fn read(&self) -> Option<u64> {
        self.last.and(self.now())
    }

    /// Adds the cycles since the last reading to `account`, if the meter runs. Returns the reading.
    #[inline]
    pub fn charge(&mut self, account: &mut u64) -> Option<u64> {
        let (last, now) = (self.last?, self.now()?);
        *account = account.wrapping_add(now.saturating_sub(last));
        self.last = Some(now);
        Some(now)
    }

    /// Charges as [`charge`](Self::charge) does. Returns the cycles of a part of a call that began at the reading
    /// `begun`, if the meter runs.
    #[inline]
    pub fn charge_part(&mut self, begun: Option<u64>, account: &mut u64) -> Option<u64> {
        let ended = self.charge(account)?;
        Some(ended.saturating_sub(begun?))
    }
}
