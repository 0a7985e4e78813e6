//! Hot paths, each with a workload that is the same in every run.

use crate::BenchError;
use crate::classify::counted::look_up as filter;
use crate::counters::Meter;
use crate::family::Family;
use crate::flow_table::counted::{hits, new_flows};
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, QueueSetup, Setup, Source};
use crate::plugins::call::{Called, call_counted as call};
use crate::route::counted::look_up as route;
use crate::schedule::counted::{Scheduler, exchanged};

/// Hot path: a path of packets through the code, with its fixed workload.
pub(super) struct HotPath {
    pub name: &'static str,
    /// Name of another path, whose count is subtracted from this path's count. It does the same work without
    /// the judged part. `None` to subtract nothing.
    pub without: Option<&'static str>,
    /// Divisor of the count: packets or calls.
    pub times: u64,
    /// Function that prepares the path, then runs it the given number of times under the meter.
    pub run: fn(u64, &mut Meter) -> Result<(), BenchError>,
}

/// Number of packets or calls for most paths: 100 batches.
const TIMES: u64 = 25_600;
/// Number of calls for slow paths.
const FEW: u64 = 2560;
/// Number of packets in a call with many packets.
const MANY: usize = 32;
/// Number of known flows.
const FLOWS: u32 = 1000;
/// Number of new flows with one packet each. The router has fewer flow records than this.
const NEW: u32 = 20_000;
const REMEMBERED: u32 = 512;
/// Number of filters at each gate, in the paths of new flows.
const FILTERS: usize = 1000;

const SOURCE4: &str = "source of IPv4 packets";
const SOURCE6: &str = "source of IPv6 packets";
const LOOP: &str = "loop around a scheduler";

/// All paths. Paths that are only subtracted come first.
pub(super) const PATHS: &[HotPath] = &[
    alone(SOURCE4, TIMES, |packets, meter| source(Family::V4, packets, meter)),
    alone(SOURCE6, TIMES, |packets, meter| source(Family::V6, packets, meter)),
    alone(LOOP, TIMES, |packets, meter| exchanged(Scheduler::None, packets, meter)),
    beyond("IPv4, no flow table, 1 route", SOURCE4, |packets, meter| {
        known(Family::V4, Setup { flows_max: 0, routes: 1, ..Setup::default() }, packets, meter)
    }),
    beyond("IPv4, 1,000 flows", SOURCE4, |packets, meter| {
        known(Family::V4, Setup::default(), packets, meter)
    }),
    beyond("IPv4, 1,000 flows, 3 empty gates", SOURCE4, |packets, meter| {
        known(Family::V4, Setup { gates: GatesSetup::Empty, ..Setup::default() }, packets, meter)
    }),
    beyond("IPv4, 1,000 flows, 3 gates with null", SOURCE4, |packets, meter| {
        known(Family::V4, Setup { gates: GatesSetup::Null, ..Setup::default() }, packets, meter)
    }),
    beyond("IPv4, 1,000 flows, a queue for each flow", SOURCE4, |packets, meter| {
        known(Family::V4, Setup { queue: QueueSetup::PerFlow, ..Setup::default() }, packets, meter)
    }),
    beyond("IPv4, new flows", SOURCE4, |packets, meter| new(Family::V4, GatesSetup::None, packets, meter)),
    beyond("IPv4, new flows, 3 gates with 1,000 filters", SOURCE4, |packets, meter| {
        new(Family::V4, GatesSetup::Filters(FILTERS), packets, meter)
    }),
    beyond("IPv6, no flow table, 1 route", SOURCE6, |packets, meter| {
        known(Family::V6, Setup { flows_max: 0, routes: 1, ..Setup::default() }, packets, meter)
    }),
    beyond("IPv6, 1,000 flows", SOURCE6, |packets, meter| {
        known(Family::V6, Setup::default(), packets, meter)
    }),
    beyond("IPv6, 1,000 flows, 3 gates with null", SOURCE6, |packets, meter| {
        known(Family::V6, Setup { gates: GatesSetup::Null, ..Setup::default() }, packets, meter)
    }),
    beyond("IPv6, new flows, 3 gates with 1,000 filters", SOURCE6, |packets, meter| {
        new(Family::V6, GatesSetup::Filters(FILTERS), packets, meter)
    }),
    alone("flow table, hit, IPv4", TIMES, |packets, meter| hits(Family::V4, packets, meter)),
    alone("flow table, hit, IPv6", TIMES, |packets, meter| hits(Family::V6, packets, meter)),
    alone("flow table, new flow, IPv4", TIMES, |packets, meter| new_flows(Family::V4, 2 * packets, meter)),
    alone("route lookup, IPv4", TIMES, |packets, meter| route(Family::V4, packets, meter)),
    alone("route lookup, IPv6", TIMES, |packets, meter| route(Family::V6, packets, meter)),
    alone("filter lookup, tuple space, IPv4", TIMES, |packets, meter| {
        filter("tuple space", Family::V4, packets, meter)
    }),
    alone("filter lookup, tuple space, IPv6", TIMES, |packets, meter| {
        filter("tuple space", Family::V6, packets, meter)
    }),
    alone("filter lookup, cutting tree, IPv4", TIMES, |packets, meter| {
        filter("cutting tree", Family::V4, packets, meter)
    }),
    alone("filter lookup, DAG, IPv4", TIMES, |packets, meter| filter("DAG", Family::V4, packets, meter)),
    beyond("scheduler, FIFO", LOOP, |packets, meter| exchanged(Scheduler::Fifo, packets, meter)),
    beyond("scheduler, priority", LOOP, |packets, meter| exchanged(Scheduler::Priority, packets, meter)),
    beyond("scheduler, deficit round robin", LOOP, |packets, meter| {
        exchanged(Scheduler::DeficitRoundRobin, packets, meter)
    }),
    beyond("scheduler, FQ-CoDel", LOOP, |packets, meter| exchanged(Scheduler::FqCodel, packets, meter)),
    beyond("scheduler, H-FSC, sharing", LOOP, |packets, meter| {
        exchanged(Scheduler::Hfsc { real_time: false }, packets, meter)
    }),
    beyond("scheduler, H-FSC, real time", LOOP, |packets, meter| {
        exchanged(Scheduler::Hfsc { real_time: true }, packets, meter)
    }),
    alone("plugin, built-in call, 1 packet", FEW, |calls, meter| call(Called::Native, 1, calls, meter)),
    alone("plugin, sandboxed call, 1 packet", FEW, |calls, meter| call(Called::Contained, 1, calls, meter)),
    alone("plugin, sandboxed call, 32 packets", FEW, |calls, meter| {
        call(Called::Contained, MANY, calls, meter)
    }),
    alone("plugin, sandboxed call with a host function call, 1 packet", FEW, |calls, meter| {
        call(Called::ContainedWithCallBack, 1, calls, meter)
    }),
];

type Run = fn(u64, &mut Meter) -> Result<(), BenchError>;

const fn alone(name: &'static str, times: u64, run: Run) -> HotPath {
    HotPath { name, without: None, times, run }
}

const fn beyond(name: &'static str, without: &'static str, run: Run) -> HotPath {
    HotPath { name, without: Some(without), times: TIMES, run }
}

impl HotPath {
    /// Whether the path is judged, and not only subtracted.
    pub fn is_judged(&self) -> bool {
        !PATHS.iter().any(|other| other.without == Some(self.name))
    }
}

fn source(family: Family, packets: u64, meter: &mut Meter) -> Result<(), BenchError> {
    let mut source = Source::with(Case { family, flows: FLOWS }, Setup::default())?;
    meter.measure(|| source.make(packets));
    Ok(())
}

/// Measures packets of known flows.
fn known(family: Family, setup: Setup, packets: u64, meter: &mut Meter) -> Result<(), BenchError> {
    let case = Case { family, flows: FLOWS };
    let mut pipeline = Pipeline::with(case, setup)?;
    pipeline.forward(2 * u64::from(FLOWS));
    meter.measure(|| pipeline.forward(packets));
    pipeline.check(case)
}

/// Measures packets that are each the first of their flow.
fn new(family: Family, gates: GatesSetup, packets: u64, meter: &mut Meter) -> Result<(), BenchError> {
    let case = Case { family, flows: NEW };
    let mut pipeline = Pipeline::with(case, Setup { gates, flows_max: REMEMBERED, ..Setup::default() })?;
    pipeline.forward(u64::from(REMEMBERED));
    meter.measure(|| pipeline.forward(packets));
    pipeline.check(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_distinct_name_and_a_counted_baseline() {
        for (place, path) in PATHS.iter().enumerate() {
            assert!(PATHS[..place].iter().all(|other| other.name != path.name), "{}", path.name);
            let less = path.without.map(|without| PATHS[..place].iter().find(|other| other.name == without));
            assert!(less.is_none_or(|less| less.is_some_and(|less| less.times == path.times)));
        }
    }

    #[test]
    fn every_path_can_be_run_and_is_one_piece_of_work() {
        for path in PATHS {
            let mut meter = Meter::callgrind();
            (path.run)(1024, &mut meter).unwrap();
            assert_eq!(meter.pieces(), 1, "{}", path.name);
        }
    }
}
