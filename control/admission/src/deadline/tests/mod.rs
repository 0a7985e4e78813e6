//! Tests of the ledger.

mod calculus;
mod ledger;
mod servers;
mod srishti;

use std::time::Duration;

use super::{Demand, FlowRequest, Ledger, Resource, Stage};

/// Cycles per second of the processor.
const FREQUENCY: u64 = 3_000_000_000;
const GIGABIT: u64 = 1_000_000_000;

/// Ledger with the processor `cpu` and the link `wan`.
fn ledger(criterion: super::Criterion) -> Ledger {
    let mut ledger = Ledger::new(criterion);
    ledger.set("cpu", Resource::processor(FREQUENCY, 900_000, Duration::from_micros(50))).unwrap();
    ledger.set("wan", Resource::link(GIGABIT, GIGABIT, 1538)).unwrap();
    ledger
}

fn own(resource: &str, work: u64) -> Stage {
    Stage { resource: resource.to_owned(), demand: Demand::Own(work) }
}

fn same_as(resource: &str, flow: &str) -> Stage {
    Stage { resource: resource.to_owned(), demand: Demand::SameAs(flow.to_owned()) }
}

/// Request for a deadline in microseconds, with a packet per deadline.
fn request(deadline: u64, stages: Vec<Stage>) -> FlowRequest {
    let deadline = Duration::from_micros(deadline);
    FlowRequest { deadline, interval: deadline, burst: 1, stages }
}
