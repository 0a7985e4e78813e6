//! Model of a router under the virtual clock, whose scheduler gets control from an application only at some
//! times. The CPU scheduler chooses between the plain flow, which comes first, and the application.

use std::time::Duration;

use millrace_schedule::cpu::{CpuPrincipal, CpuScheduler, CpuSchedulerKind, CpuShare};
use millrace_testkit::Random;
use millrace_units::{Cycles, Instant, PrincipalId};

use super::{INVOCATIONS, deviation};
use crate::cpu::settings;
use crate::memory::setup::CAPACITY;

/// Cycles per second of the virtual processor: a cycle is a nanosecond.
const FREQUENCY: u64 = 1_000_000_000;
/// Interval of the timer.
const TIMER: Duration = Duration::from_millis(10);
/// Reading of what the paper states or leaves open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Processor time of a plain packet.
    pub packet: Duration,
    /// Divisor of the stated lengths of invocations.
    pub divisor: u32,
}

/// Stated invocations, and plain packets that take little time.
pub(super) const AS_WRITTEN: Reading = Reading { packet: Duration::from_micros(10), divisor: 1 };
/// Reading with which all printed deviations agree within 10 %.
pub(super) const AS_PRINTED: Reading = Reading { packet: Duration::from_micros(440), divisor: 2 };

/// Number of packets of the plain flow.
const PACKETS: usize = 20_000;
const PLAIN: PrincipalId = PrincipalId(0);
const APPLICATION: PrincipalId = PrincipalId(1);

/// Times at which the scheduler gets control from the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Control {
    /// At each interrupt of the timer.
    Timer,
    /// When an invocation returns.
    Return,
    /// At both.
    Both,
}

/// Router with an application that is never idle.
struct Model {
    scheduler: CpuScheduler,
    now: Instant,
    control: Control,
    reading: Reading,
    random: Random,
    /// Rest of the current invocation.
    left: Duration,
}

/// Returns the deviations for a gap in milliseconds, with control at the timer, at returns, and at both. Not a number
/// if the scheduler refuses the model's principals.
pub(super) fn modelled(gap: u64, reading: Reading) -> [f64; 3] {
    let gap = Duration::from_millis(gap);
    let found = [Control::Timer, Control::Return, Control::Both]
        .map(|control| deviation_of(control, reading, gap, PACKETS));
    found.map(|found| found.unwrap_or(f64::NAN))
}

/// Returns the standard deviation of the received gap of a plain flow in milliseconds, over `packets` packets.
/// The flow sends a packet after each `gap`. Returns `None` if the scheduler refuses the model's principals.
fn deviation_of(control: Control, reading: Reading, gap: Duration, packets: usize) -> Option<f64> {
    let mut model = Model::new(control, reading)?;
    let mut received = Vec::with_capacity(packets);
    while received.len() < packets {
        if Instant::ZERO + gap * received.len() as u32 <= model.now {
            model.scheduler.wake(PLAIN, model.now);
        }
        match model.scheduler.next(model.now)? {
            // The flow is polled until no packet is due.
            PLAIN => {
                while Instant::ZERO + gap * received.len() as u32 <= model.now {
                    model.spend(PLAIN, reading.packet);
                    received.push(model.now.as_nanos());
                }
                model.scheduler.sleep(PLAIN, model.now);
            }
            _ => model.run_application(),
        }
    }
    deviation(&received)
}

impl Model {
    fn new(control: Control, reading: Reading) -> Option<Self> {
        let mut scheduler = CpuScheduler::new(settings(CpuSchedulerKind::default(), FREQUENCY));
        // A principal with a deadline comes before those with weights.
        let plain = CpuPrincipal { share: CpuShare::Absolute(CAPACITY), limit: None, deadline: Some(TIMER) };
        let other = CpuPrincipal { share: CpuShare::Weight(1), limit: None, deadline: None };
        scheduler.add(PLAIN, plain).ok()?;
        scheduler.add(APPLICATION, other).ok()?;
        scheduler.wake(APPLICATION, Instant::ZERO);
        let (now, random, left) = (Instant::ZERO, Random::new(1), Duration::ZERO);
        let mut model = Self { scheduler, now, control, reading, random, left };
        model.invoke();
        Some(model)
    }

    /// Starts an invocation of random length.
    fn invoke(&mut self) {
        self.left = Duration::from_millis(*self.random.pick(&INVOCATIONS)) / self.reading.divisor;
    }

    /// Runs the application until the scheduler gets control.
    fn run_application(&mut self) {
        loop {
            let since = self.now.as_nanos() % TIMER.as_nanos() as u64;
            let tick = TIMER - Duration::from_nanos(since);
            let time = if self.control == Control::Return { self.left } else { self.left.min(tick) };
            self.spend(APPLICATION, time);
            self.left -= time;
            let (ticked, returned) = (time == tick, self.left.is_zero());
            if returned {
                self.invoke();
            }
            if match self.control {
                Control::Timer => ticked,
                Control::Return => returned,
                Control::Both => ticked || returned,
            } {
                return;
            }
        }
    }

    fn spend(&mut self, principal: PrincipalId, time: Duration) {
        self.now += time;
        self.scheduler.charge(principal, Cycles::in_time(time, FREQUENCY), self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::TABLE;
    use super::*;

    #[test]
    fn timer_and_return_together_disturb_least() {
        for (gap, _) in TABLE {
            for reading in [AS_WRITTEN, AS_PRINTED] {
                let [timer, returned, both] = modelled(gap, reading);
                assert!(both <= timer.min(returned), "gap of {gap} ms: {both} beside {timer} and {returned}");
            }
        }
    }

    #[test]
    fn shorter_invocations_give_the_printed_deviations() {
        for (gap, printed) in TABLE {
            for (ours, printed) in modelled(gap, AS_PRINTED).into_iter().zip(printed) {
                assert!((ours / printed - 1.0).abs() < 0.1, "gap of {gap} ms: {ours} beside {printed}");
            }
        }
    }
}
