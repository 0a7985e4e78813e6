//! Link schedulers whose instructions are counted.

use millrace_schedule::{FqCodelSettings, NodeKind, Share};

use super::{
    BATCH, Nothing, QUEUES, Queues, Tree, above, alone, big_queue, exchange, failed, flow_queues, hfsc,
};
use crate::BenchError;
use crate::counters::Meter;

/// Number of leaves in the H-FSC tree.
const LEAVES: u32 = 1000;

/// Scheduler that the packets pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scheduler {
    /// None: only the loop around a scheduler.
    None,
    Fifo,
    Priority,
    DeficitRoundRobin,
    FqCodel,
    Hfsc {
        real_time: bool,
    },
}

/// Enqueues and dequeues packets.
pub(crate) fn exchanged(scheduler: Scheduler, packets: u64, meter: &mut Meter) -> Result<(), BenchError> {
    let mut tree = match scheduler {
        Scheduler::None => {
            run(&mut Nothing, packets, meter);
            return Ok(());
        }
        Scheduler::Fifo => alone(&NodeKind::Fifo(big_queue()), 1),
        Scheduler::Priority => above(&NodeKind::Priority, (QUEUES, 0), Share::Level),
        Scheduler::DeficitRoundRobin => alone(&flow_queues(), 2),
        Scheduler::FqCodel => {
            let settings = FqCodelSettings { flows: 8192, limit: 1 << 20, ..Default::default() };
            alone(&NodeKind::FqCodel(settings), 2)
        }
        Scheduler::Hfsc { real_time } => hfsc(LEAVES, real_time),
    }?;
    let held = tree.port.held_packets();
    run::<Tree>(&mut tree, packets, meter);
    let problem = || failed("packets were lost, or none was ready");
    (tree.port.held_packets() == held).then_some(()).ok_or_else(problem)
}

fn run<Q: Queues>(queues: &mut Q, packets: u64, meter: &mut Meter) {
    let mut coming = Vec::with_capacity(BATCH);
    meter.measure(|| exchange(queues, packets as usize / BATCH, &mut coming));
}
