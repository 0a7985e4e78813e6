//! Simulation of granted deadlines under a virtual clock: the CPU scheduler and the link scheduler of the router
//! serve flows that send whatever their token buckets allow, at the worst moments.
//!
//! A processor and a link are promised to random flows up to 95 % and more. Both always have other work:
//! quanta of the processor and packets of the greatest length that nothing pre-empts. An epoch begins just
//! after such a quantum began. Then all flows send a burst and go on at their full rates. They begin together,
//! or so that deadlines coincide at the processor or at the link, or at random. One flow may send twice its
//! rate.

mod flows;
mod port;
mod processor;
mod sources;

use std::time::Duration;

use millrace_schedule::ScheduleError;
use millrace_schedule::cpu::CpuScheduleError;
use serde::Serialize;

use self::flows::{Flow, Flows, flows};
use self::port::{Frame, Port};
use self::processor::{Job, Processor};
use self::sources::Sources;
use super::grant::nanoseconds;
use super::request::Refusal;
use crate::random::Random;

/// Cycles per second of the processor: a cycle is a nanosecond.
const FREQUENCY: u64 = 1_000_000_000;
/// Cycles of a quantum.
const QUANTUM: u64 = 20_000;
/// Bits per second of the link.
const RATE: u64 = 100_000_000;
/// Greatest length of a packet, in bytes on the wire.
const LONGEST: u32 = 1538;

/// Settings of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimulationSettings {
    /// Number of packets.
    pub packets: u64,
    /// Seed of the flows and of their arrivals.
    pub seed: u64,
    /// Whether all flows use their shares without a pause. Otherwise, their packets come in bursts, and they use
    /// a part of their shares.
    pub steady: bool,
    /// Whether packets take only half of their declared cycles to all of them.
    pub varies: bool,
    /// Whether one flow sends twice its rate. Nothing is promised to it then.
    pub rogue: bool,
}

/// Packets of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SimulatedFlow {
    /// Promised bound.
    pub bound: Duration,
    /// Longest delay.
    pub worst: Duration,
    /// Number of packets.
    pub packets: u64,
    /// Packets that left after the bound.
    pub missed: u64,
}

/// Result of a simulation.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct SimulationOutcome {
    /// Flows that send what they may.
    pub flows: Vec<SimulatedFlow>,
    /// Flow that sends twice its rate.
    pub rogue: Option<SimulatedFlow>,
    /// Promised part of the processor and of the link.
    pub promised: [f64; 2],
    /// Part of the processor and of the link that the flows used, during epochs.
    pub used: [f64; 2],
}

impl SimulationOutcome {
    /// Returns the number of packets.
    pub fn packets(&self) -> u64 {
        self.flows.iter().map(|flow| flow.packets).sum()
    }

    /// Returns the number of packets that left after their bounds.
    pub fn missed(&self) -> u64 {
        self.flows.iter().map(|flow| flow.missed).sum()
    }

    /// Returns the ratio of bound to longest delay of each flow that sent a packet, the least first.
    pub fn ratios(&self) -> Vec<f64> {
        let flows = self.flows.iter().filter(|flow| flow.packets > 0);
        let ratio = |flow: &SimulatedFlow| flow.bound.as_secs_f64() / flow.worst.as_secs_f64().max(1e-9);
        let mut ratios: Vec<f64> = flows.map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }
}

/// Reason why a simulation didn't run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum SimulationError {
    /// The ledger refused a resource.
    #[error(transparent)]
    Ledger(#[from] Refusal),
    /// The CPU scheduler refused a granted share.
    #[error(transparent)]
    Processor(#[from] CpuScheduleError),
    /// The link scheduler refused a granted curve.
    #[error(transparent)]
    Link(#[from] ScheduleError),
}

/// Runs a simulation.
///
/// # Errors
/// A scheduler refuses a grant, which would be a defect.
pub fn simulate(settings: &SimulationSettings) -> Result<SimulationOutcome, SimulationError> {
    let mut random = Random::new(settings.seed);
    let flows = flows(&mut random, settings.steady)?;
    run(&flows, settings, &mut random)
}

/// Runs a simulation of given flows.
fn run(
    Flows { granted, promised }: &Flows,
    settings: &SimulationSettings,
    random: &mut Random,
) -> Result<SimulationOutcome, SimulationError> {
    let judged = |flow: &Flow| SimulatedFlow { bound: flow.grant.bound(), ..SimulatedFlow::default() };
    let mut world = World {
        processor: Processor::new(granted)?,
        port: Port::new(granted)?,
        sources: Sources::new(granted, settings.rogue),
        judged: granted.iter().map(judged).collect(),
        work: granted.iter().map(|flow| (flow.cycles, flow.bytes)).collect(),
        varies: settings.varies,
        waiting: 0,
        epochs: Epochs::default(),
    };
    world.run(settings.packets, random);
    let seconds = world.epochs.time as f64 / 1e9;
    let rate = |work: u64, per_second: u64| work as f64 / (per_second as f64 * seconds.max(1e-9));
    let used = [rate(world.epochs.cycles, FREQUENCY), rate(world.epochs.bits, RATE)];
    let mut flows = world.judged;
    let rogue = (settings.rogue && !flows.is_empty()).then(|| flows.remove(0));
    Ok(SimulationOutcome { flows, rogue, promised: *promised, used })
}

/// Time and work of all epochs.
#[derive(Debug, Default)]
struct Epochs {
    begin: u64,
    time: u64,
    cycles: u64,
    bits: u64,
}

/// State of a simulation.
struct World {
    processor: Processor,
    port: Port,
    sources: Sources,
    judged: Vec<SimulatedFlow>,
    /// Cycles and bytes of a packet of each flow.
    work: Vec<(u64, u32)>,
    /// Whether packets take half of their work to all of it.
    varies: bool,
    /// Packets of flows in the router.
    waiting: u64,
    epochs: Epochs,
}

impl World {
    /// Handles events in the order of their times until `packets` packets have come and gone.
    fn run(&mut self, packets: u64, random: &mut Random) {
        let mut sent = 0;
        loop {
            let now = self.processor.end().min(self.port.next()).min(self.sources.next());
            while self.sources.next() <= now {
                let Some(flow) = self.sources.send(now) else { break };
                sent += 1;
                self.arrive(flow, now, random);
            }
            if self.processor.end() <= now {
                if let Some((flow, arrival)) = self.processor.finish(now) {
                    self.leave_processor(flow, arrival, now);
                }
                let is_other = self.processor.start(now);
                if self.waiting == 0 && self.sources.is_silent() {
                    if sent >= packets {
                        return;
                    }
                    if is_other && self.sources.is_ready(now + 1) {
                        self.sources.plan(now + 1, random);
                        self.epochs.begin = now + 1;
                    }
                }
            }
            if self.port.next() <= now
                && let Some((Frame { flow, arrival, .. }, end)) = self.port.send(now)
            {
                self.leave(flow, Some(end - arrival), end);
            }
        }
    }

    fn arrive(&mut self, flow: usize, now: u64, random: &mut Random) {
        let Some(&(cycles, bytes)) = self.work.get(flow) else { return };
        let cycles = if self.varies { cycles - random.below(cycles as usize / 2 + 1) as u64 } else { cycles };
        self.waiting += 1;
        self.epochs.cycles += cycles;
        self.epochs.bits += u64::from(bytes) * 8;
        match cycles {
            0 => self.leave_processor(flow, now, now),
            cycles => self.processor.arrive(flow, Job { arrival: now, cycles }, now),
        }
    }

    fn leave_processor(&mut self, flow: usize, arrival: u64, now: u64) {
        match self.work.get(flow) {
            Some(&(_, bytes)) if bytes > 0 => {
                if !self.port.arrive(Frame { flow, arrival, bytes }, now) {
                    self.leave(flow, None, now);
                }
            }
            _ => self.leave(flow, Some(now - arrival), now),
        }
    }

    /// Judges a packet that left with a delay, or was dropped.
    fn leave(&mut self, flow: usize, delay: Option<u64>, now: u64) {
        self.waiting -= 1;
        if self.waiting == 0 && self.sources.is_silent() {
            self.epochs.time += now - self.epochs.begin;
        }
        let Some(judged) = self.judged.get_mut(flow) else { return };
        judged.packets += 1;
        judged.missed += u64::from(delay.is_none_or(|delay| delay > nanoseconds(judged.bound)));
        judged.worst = judged.worst.max(Duration::from_nanos(delay.unwrap_or(0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: SimulationSettings) -> SimulationOutcome {
        let outcome = simulate(&settings).unwrap();
        assert_eq!(outcome.missed(), 0, "{settings:?}: {outcome:?}");
        assert!(outcome.promised.iter().all(|part| *part >= 0.95), "{:?}", outcome.promised);
        outcome
    }

    #[test]
    fn no_deadline_is_missed_at_the_worst_moments() {
        for seed in 1..=12 {
            let outcome = check(SimulationSettings {
                packets: 20_000,
                seed,
                steady: seed % 2 == 0,
                varies: seed % 3 == 0,
                rogue: false,
            });
            assert!(outcome.packets() >= 20_000, "{}", outcome.packets());
        }
    }

    #[test]
    fn flow_that_sends_too_much_costs_others_no_deadline() {
        for seed in 1..=12 {
            let settings = SimulationSettings {
                packets: 10_000,
                seed,
                steady: seed % 2 == 0,
                varies: seed % 3 == 0,
                rogue: true,
            };
            let rogue = check(settings).rogue.unwrap();
            assert!(rogue.missed > rogue.packets / 2, "{rogue:?}");
        }
    }

    /// A flow that asks for the shortest deadline at empty resources waits for a quantum and for a packet.
    #[test]
    fn shortest_deadline_is_met_and_almost_reached() {
        let mut random = Random::new(1);
        for (cycles, bytes) in [(200_000, 1538), (500_000, 100), (110_000, 0), (0, 1538), (0, 84)] {
            let flows = flows::shortest(cycles, bytes).unwrap();
            let settings =
                SimulationSettings { packets: 500, seed: 1, steady: false, varies: false, rogue: false };
            let outcome = run(&flows, &settings, &mut random).unwrap();
            assert_eq!(outcome.missed(), 0, "{outcome:?}");
            assert!(outcome.ratios()[0] < 1.03, "{cycles} {bytes}: {outcome:?}");
        }
    }
}
