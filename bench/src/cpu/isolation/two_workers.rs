//! Two workers: the plain flow arrives at the worker that owns the port. The packets of the built-in plugin arrive at
//! the other worker, which hands them over to the same port.

use std::time::Duration;

use ipnet::IpNet;
use millrace_packet::FlowKey;
use millrace_pipeline::HandoverRings;
use millrace_schedule::cpu::{CpuSchedulerKind, CpuShare};
use millrace_units::PrincipalId;

use super::{INTERVAL, Slow};
use crate::BenchError;
use crate::cpu::burn::BURN;
use crate::cpu::pair::{OTHER, OWNER, WORKERS, run_pair};
use crate::cpu::wire::{Flow, Pace, Seen, Wire};
use crate::cpu::{failed, frequency, settings};
use crate::family::Family;
use crate::memory::case::Case;
use crate::memory::setup::{Chosen, GatesSetup, Pipeline, SEED, Setup, first_flow};

/// Index of no input port, for a flow that never arrives.
const NOWHERE: usize = usize::MAX;

/// Runs both workers for `time`: the plain flow beside a number of packets of the plugin per second, which has a
/// principal or not, or alone. Returns the packets of the plain flow.
pub(super) fn measure(slow: &Slow, beside: Option<(u32, bool)>, time: Duration) -> Result<Seen, BenchError> {
    let paid = beside.is_none_or(|(_, paid)| paid);
    let owner = |handover| {
        let (_, frame) = flow(Chosen::Of { worker: OWNER, workers: WORKERS, seed: SEED })?;
        let wire = Wire::new(1, vec![every(INTERVAL, frame)]);
        Ok((worker(handover, OWNER, slow, paid, &wire)?, wire))
    };
    let other = |handover| {
        let (_, frame) = flow(across())?;
        // The owner's wire observes its flow 0, so this flow has another number.
        let nothing = Flow { port: NOWHERE, ..every(INTERVAL, frame.clone()) };
        let plugins = beside.map(|(rate, _)| every(Duration::from_secs(1) / rate, frame));
        let wire = Wire::new(1, std::iter::once(nothing).chain(plugins).collect());
        let pipeline = worker(handover, OTHER, slow, paid, &wire)?;
        wire.start();
        Ok(pipeline)
    };
    run_pair(owner, other, time).map(|run| run.seen)
}

fn every(interval: Duration, frame: Vec<u8>) -> Flow {
    Flow { port: 0, frame, pace: Pace::Every(interval), work: Vec::new() }
}

fn case() -> (Case, Setup) {
    let setup = Setup { gates: GatesSetup::Empty, routes: WORKERS as u32, ..Setup::default() };
    (Case { family: Family::V4, flows: 1 }, setup)
}

fn across() -> Chosen {
    Chosen::Across { worker: OTHER, workers: WORKERS, seed: SEED }
}

fn flow(chosen: Chosen) -> Result<(FlowKey, Vec<u8>), BenchError> {
    let (case, setup) = case();
    first_flow(case, setup, chosen).ok_or_else(|| failed("no flow of the worker"))
}

/// Creates a worker with the binding of the plugin's flow.
fn worker(
    handover: HandoverRings,
    number: usize,
    slow: &Slow,
    paid: bool,
    wire: &Wire,
) -> Result<Pipeline, BenchError> {
    let (case, setup) = case();
    let devices = [wire.input(0), wire.output()];
    let mut pipeline = Pipeline::member_between(case, setup, handover, number, devices)?;
    let payer = PrincipalId(1);
    pipeline.schedule_cpu(settings(CpuSchedulerKind::default(), frequency()?))?;
    pipeline.add_principal(payer, CpuShare::Weight(1))?;
    pipeline.create_instance(slow.plugin.clone(), BURN)?;
    let (key, _) = flow(across())?;
    let filter = format!("src {}", IpNet::from(key.source()));
    pipeline.bind_instance(BURN, "monitor", &filter, paid.then_some(payer))?;
    Ok(pipeline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_flow_of_one_worker_leaves_beside_a_slow_plugin_at_the_other() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let slow = Slow::built_in(frequency().unwrap());
        let seen = measure(&slow, Some((2000, true)), Duration::from_millis(100)).unwrap();
        assert!(seen.sent >= 100 && seen.left == seen.sent, "{} {}", seen.sent, seen.left);
    }
}
