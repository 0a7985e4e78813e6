//! Run of a worker with its services.

use std::sync::Arc;
use std::time::Duration;

use millrace_schedule::cpu::{CpuSchedulerKind, CpuShare};
use millrace_units::PrincipalId;
use millrace_workbench::cycles;

use super::service::{Declared, NAMES};
use super::{CYCLES, Load};
use crate::BenchError;
use crate::cpu::wire::{Flow, Pace, Seen, Wire};
use crate::cpu::{drive, preemptions, settings};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Setup, frame_of};
use crate::statistics::median;

/// Arrivals of a run.
const TIME: Duration = Duration::from_millis(40);
/// Number of attempts of a run without a disturbance.
const ATTEMPTS: usize = 20;

/// Use of a worker in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Used {
    /// Cycles per second.
    pub cycles: f64,
    /// Time of arrivals.
    pub seconds: f64,
    /// Packets that have arrived, and that have left.
    pub packets: [u64; 2],
    /// Bytes of these packets.
    pub bytes: [u64; 2],
    /// Bytes of memory of all services.
    pub memory: u64,
    pub is_disturbed: bool,
}

/// Returns the cycles of the router itself beside a call of the plugin.
pub(super) fn environment(frequency: u64) -> Result<f64, BenchError> {
    let load = Load { cycles: CYCLES[0], rate: 2_000.0, frame: 60, memory: 0 };
    let beside = |_| Ok(quiet(&[load], 0.0, frequency)?.cycles / load.rate - load.cycles);
    let all: Vec<f64> = (0..5).map(beside).collect::<Result<_, BenchError>>()?;
    Ok(median(&all).max(0.0))
}

/// Runs a worker until no other work disturbs it, but not more often than [`ATTEMPTS`] times.
pub(super) fn quiet(loads: &[Load], own: f64, frequency: u64) -> Result<Used, BenchError> {
    let mut used = measure(loads, own, frequency, TIME)?;
    for _ in 1..ATTEMPTS {
        if !used.is_disturbed {
            break;
        }
        used = measure(loads, own, frequency, TIME)?;
    }
    Ok(used)
}

/// Runs services at a worker for `time`, and until their packets have left.
fn measure(loads: &[Load], own: f64, frequency: u64, time: Duration) -> Result<Used, BenchError> {
    check()?;
    let flow = |(number, load): (u32, &Load)| {
        let pace = Pace::Every(Duration::from_secs_f64(1.0 / load.rate));
        Flow { port: 0, frame: frame_of(Family::V4, 31, number, load.frame), pace, work: Vec::new() }
    };
    let wire = Wire::new(1, (0..).zip(loads).map(flow).collect());
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let case = Case { family: Family::V4, flows: 1 };
    let mut pipeline = Pipeline::between(case, setup, wire.input(0), wire.output())?;
    pipeline.schedule_cpu(settings(CpuSchedulerKind::default(), frequency))?;
    for ((number, load), name) in (0..).zip(loads).zip(NAMES) {
        let promised = load.rate * (load.cycles + own) / frequency as f64 * 1e6;
        pipeline.add_principal(PrincipalId(number), CpuShare::Absolute(promised.ceil() as u32))?;
        pipeline.create_instance(Arc::new(Declared::new(name, *load)), name)?;
        let filter = format!("src 31.0.0.{}/32", number + 1);
        pipeline.bind_instance(name, "monitor", &filter, Some(PrincipalId(number)))?;
    }
    drive(&mut pipeline, Duration::from_millis(1))?;
    let (before, start) = (preemptions(), cycles());
    wire.start();
    drive(&mut pipeline, time)?;
    wire.end_arrivals();
    let elapsed = start.zip(cycles()).map_or(0, |(start, end)| end - start).max(1) as f64 / frequency as f64;
    drive(&mut pipeline, Duration::from_millis(2))?;
    let is_disturbed = preemptions() != before;
    let seen: Vec<Seen> = (0..loads.len()).map(|flow| wire.seen(flow)).collect();
    let of = |count: fn(&Seen) -> u64| seen.iter().map(count).sum();
    let arrived = seen.iter().zip(loads).map(|(seen, load)| seen.sent * load.frame as u64).sum();
    let principals = pipeline.principals();
    let counts = || principals.iter().take(loads.len()).map(|(_, counts)| counts);
    Ok(Used {
        cycles: counts().map(|counts| counts.used.0).sum::<u64>() as f64 / elapsed,
        seconds: elapsed,
        packets: [of(|seen| seen.sent), of(|seen| seen.left)],
        bytes: [arrived, wire.left_bytes()],
        // Packets that wait are in the memory of packets.
        memory: counts().map(|counts| counts.plugin_bytes + counts.state_bytes).sum(),
        is_disturbed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::frequency;

    #[test]
    fn worker_uses_what_its_services_declare() {
        let frequency = frequency().unwrap();
        let loads = [
            Load { cycles: 200_000.0, rate: 1_000.0, frame: 60, memory: 100_000 },
            Load { cycles: 100_000.0, rate: 500.0, frame: 1_000, memory: 50_000 },
        ];
        let used = measure(&loads, 20_000.0, frequency, Duration::from_millis(60)).unwrap();
        let declared: f64 = loads.iter().map(|load| load.rate * load.cycles).sum();
        assert!(used.is_disturbed || used.cycles > 0.9 * declared, "{used:?}, declared {declared}");
        assert!(used.packets[0] >= 60 && used.packets[1] > 0, "{used:?}");
        // Nine tenths of the packets, as of the cycles: the last ones may be on their way.
        assert!(used.bytes[0] >= 54 * 60 + 27 * 1_000, "{used:?}");
        assert!(used.packets[0] != used.packets[1] || used.bytes[0] == used.bytes[1], "{used:?}");
        assert_eq!(used.memory, 150_000);
    }
}
