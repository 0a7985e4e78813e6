//! Forwarding time that a queue per flow adds to a packet.

use std::time::Instant as Clock;

use millrace_schedule::{FlowQueuesSettings, NodeKind, QueueSettings};

use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{Pipeline, Setup};
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of packets per repetition. The routers to compare take turns.
const PACKETS: u64 = 51_200;
const ROUNDS: usize = 41;
const FLOWS: u32 = 1000;
/// Promised maximum: additional nanoseconds per packet compared with a FIFO queue.
const LIMIT: f64 = 25.0;

pub(super) fn measure(options: &mut Options<'_>) -> Result<[Measurement; 3], BenchError> {
    let case = Case { family: Family::V4, flows: FLOWS };
    let fifo = NodeKind::Fifo(QueueSettings::default());
    let by_flow = NodeKind::FlowQueues(FlowQueuesSettings::default());
    let pipeline = || Pipeline::with(case, Setup::default());
    let mut pipelines = [pipeline()?, pipeline()?, pipeline()?];
    for (pipeline, kind) in pipelines.iter_mut().skip(1).zip([fifo, by_flow]) {
        pipeline.schedule(kind)?;
    }
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..=ROUNDS {
        check()?;
        for (pipeline, times) in pipelines.iter_mut().zip(&mut times) {
            let start = Clock::now();
            let packets = pipeline.forward(PACKETS);
            // The first repetition doesn't count: it fills tables and caches.
            if round > 0 {
                times.push(start.elapsed().as_nanos() as f64 / packets as f64);
            }
        }
    }
    for pipeline in &mut pipelines {
        pipeline.check(case)?;
    }
    let beyond = |times: &[f64], other: &[f64]| {
        median(&times.iter().zip(other).map(|(time, other)| time - other).collect::<Vec<_>>())
    };
    let [none, fifo, by_flow] = &times;
    let (queueing, more) = (beyond(fifo, none), beyond(by_flow, fifo));
    (options.progress)(&format!(
        "forwarding: {:.0} ns, a scheduler with FIFO {queueing:+.1} ns, a queue for each flow {more:+.1} ns",
        median(none)
    ));
    Ok([
        Measurement::of("forwarding without a scheduler", median(none), "ns/packet"),
        Measurement::of("forwarding with FIFO, additional time", queueing, "ns/packet"),
        Measurement::of("forwarding with 1,000 flow queues, additional time to FIFO", more, "ns/packet")
            .promising(Bound::AtMost, LIMIT),
    ])
}
