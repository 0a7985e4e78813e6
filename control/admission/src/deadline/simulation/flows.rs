//! Random flows that fill a processor and a link.

use std::time::Duration;

use super::{FREQUENCY, LONGEST, QUANTUM, RATE, SimulationError};
use crate::deadline::{Criterion, Demand, FlowRequest, Grant, Ledger, Resource, Stage};
use crate::random::Random;

/// Names of the resources.
pub(super) const PROCESSOR: &str = "processor";
pub(super) const LINK: &str = "link";
/// Parts per million of the processor that may be promised.
const CAPACITY: u32 = 990_000;
/// Part of a resource that may stay free.
const FREE: f64 = 0.01;
/// Number of requests that pass both resources, and most requests to fill one of them.
const REQUESTS: u32 = 400;
const FILLERS: u32 = 4_000;

/// Flow with a granted deadline.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub grant: Grant,
    /// Cycles and bytes on the wire of a packet; 0 for a resource that the flow doesn't pass.
    pub cycles: u64,
    pub bytes: u32,
}

/// Flows, and the promised part of processor and link.
pub(super) struct Flows {
    pub granted: Vec<Flow>,
    pub promised: [f64; 2],
}

/// Returns flows that fill both resources. Steady flows send packets without bursts, in intervals that limit
/// their times, so they use their whole shares.
pub(super) fn flows(random: &mut Random, steady: bool) -> Result<Flows, SimulationError> {
    let (mut ledger, mut granted) = (ledger()?, Vec::new());
    for _ in 0..REQUESTS {
        let (cycles, bytes) = (random.scale(20_000.0, 400_000.0) as u64, packet(random));
        add(&mut ledger, &mut granted, (cycles, bytes), random, steady);
    }
    for _ in 0..FILLERS {
        let [processor, link] = free(&ledger);
        if processor > FREE {
            let cycles = random.scale(10_000.0, 400_000.0) as u64;
            add(&mut ledger, &mut granted, (cycles, 0), random, steady);
        }
        if link > FREE {
            let bytes = packet(random);
            add(&mut ledger, &mut granted, (0, bytes), random, steady);
        }
    }
    Ok(Flows { granted, promised: free(&ledger).map(|free| 1.0 - free) })
}

/// Returns a flow with the shortest possible deadline.
#[cfg(test)]
pub(super) fn shortest(cycles: u64, bytes: u32) -> Result<Flows, SimulationError> {
    let mut ledger = ledger()?;
    let mut request = request(Duration::from_micros(1), Duration::from_millis(2), (cycles, bytes));
    while let Err(refusal) = ledger.plan(&request) {
        request.deadline = match refusal {
            super::Refusal::Late { possible, .. } => possible,
            super::Refusal::Blocked { blocking, .. } => blocking + Duration::from_nanos(1),
            other => return Err(other.into()),
        };
    }
    let grant = ledger.admit("0", &request)?.clone();
    Ok(Flows { granted: vec![Flow { grant, cycles, bytes }], promised: free(&ledger).map(|free| 1.0 - free) })
}

/// Returns a ledger with the processor and the link of the simulation.
fn ledger() -> Result<Ledger, SimulationError> {
    let mut ledger = Ledger::new(Criterion::Mix);
    ledger.set(PROCESSOR, Resource::processor(FREQUENCY, CAPACITY, Duration::from_nanos(QUANTUM)))?;
    ledger.set(LINK, Resource::link(RATE, RATE, LONGEST))?;
    Ok(ledger)
}

fn request(deadline: Duration, interval: Duration, (cycles, bytes): (u64, u32)) -> FlowRequest {
    let stage = |name: &str, work: u64| Stage { resource: name.to_owned(), demand: Demand::Own(work) };
    let stages = vec![stage(PROCESSOR, cycles), stage(LINK, u64::from(bytes) * 8)];
    FlowRequest { deadline, interval, burst: 1, stages }
}

fn packet(random: &mut Random) -> u32 {
    random.scale(84.0, f64::from(LONGEST) + 1.0) as u32
}

/// Returns the free part of processor and link.
fn free(ledger: &Ledger) -> [f64; 2] {
    [PROCESSOR, LINK].map(|name| {
        let known = ledger.resource(name);
        known.map_or(0.0, |(resource, free)| free as f64 / resource.capacity as f64)
    })
}

/// Asks for a flow with a random deadline.
fn add(
    ledger: &mut Ledger,
    granted: &mut Vec<Flow>,
    (cycles, bytes): (u64, u32),
    random: &mut Random,
    steady: bool,
) {
    let stages = f64::from(u8::from(cycles > 0) + u8::from(bytes > 0));
    let (interval, burst, deadline) = if steady {
        // Intervals that divide each other: all deadlines coincide again and again.
        let interval = 0.001 * f64::from(1 << random.below(4));
        (interval, 1, stages * interval / 0.9)
    } else {
        let deadline = random.scale(0.002, 0.05);
        let burst = if random.below(3) == 0 { 1 + random.below(4) as u32 } else { 1 };
        (deadline * random.between(0.3, 1.2), burst, deadline)
    };
    let [deadline, interval] = [deadline, interval].map(Duration::from_secs_f64);
    let name = granted.len().to_string();
    if let Ok(grant) =
        ledger.admit(&name, &FlowRequest { burst, ..request(deadline, interval, (cycles, bytes)) })
    {
        granted.push(Flow { grant: grant.clone(), cycles, bytes });
    }
}
