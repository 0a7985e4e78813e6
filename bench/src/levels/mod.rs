//! `levels`: forwarding rate at each boundary of the processor hierarchy (offload, worker, host), and the
//! spare time on both sides. A further case compares two ways to send, by the number of packets per call.
//!
//! The cases measure the rate across each boundary and back. They also measure the spare time of each side:
//! the time that it can spend on each packet before the rate falls (Karlin's thesis, VERA, 2003, tables 3.1
//! to 3.5).
//!
//! The offload runs on the generator's processor: on veth, that processor also runs the XDP programs. To find
//! the offload's spare time, the generator sends at the forwarded rate, and the benchmark times the
//! generator's calls. To find the worker's spare time, the plugin `null` delays each packet until the worker
//! is the slower side. From two different delays, the benchmark extrapolates the worker's time without a
//! delay.

mod boundary;
mod crossover;
mod rings;

use std::time::Duration;

use millrace_offload::Flows;
use millrace_workbench::cycles;

use self::boundary::through_offload;
use crate::memory::traffic::Size;
use crate::testbed::frame::udp;
use crate::testbed::network::{BESIDE, Network, SINK};
use crate::testbed::process::SessionFirst;
use crate::{BenchError, Measurement, Options};

pub(crate) use self::boundary::{Boundary, offload_time};
pub(crate) use self::rings::hand_over_time;

/// Number of repetitions; the result is their median.
const RUNS: usize = 3;
/// Flows of the generated packets: 256 source ports.
const FLOWS: Flows = Flows { addresses: 0, ports: 256, sequence: false, timestamp: false };
const FLOW_COUNT: u64 = 256;
pub(crate) const SIZES: [Size; 2] = [Size::Shortest, Size::Longest];
/// Boundary to a worker, over the rings of a socket.
pub(crate) const TO_WORKER: Boundary = Boundary { case: "offload to worker to port", to: SINK, device: "s0" };
/// Boundary to the kernel, by the hand-over of a worker.
pub(crate) const TO_KERNEL: Boundary =
    Boundary { case: "offload to worker to kernel to port", to: BESIDE, device: "s1" };

/// Runs all cases, or the requested cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let wanted = options.case.clone().unwrap_or_default();
    let is_wanted = |case: &str, size: Size| format!("{case}, {}", size.words()).contains(&wanted);
    let network = Network::new()?;
    let _first = SessionFirst::begin();
    network.connect_beside()?;
    let mut results = Vec::new();
    for size in SIZES.into_iter().filter(|size| is_wanted(boundary::OFFLOAD, *size)) {
        results.extend(through_offload(&network, size, options)?);
    }
    for boundary in [TO_WORKER, TO_KERNEL] {
        for size in SIZES.into_iter().filter(|size| is_wanted(boundary.case, *size)) {
            results.extend(boundary.measure(&network, size, options)?);
        }
    }
    for size in SIZES.into_iter().filter(|size| is_wanted(rings::CASE, *size)) {
        results.extend(rings::measure(size, options)?);
    }
    for size in SIZES.into_iter().filter(|size| is_wanted(crossover::CASE, *size)) {
        results.extend(crossover::measure(&network, size, options)?);
    }
    if results.is_empty() {
        return Err(BenchError::measurement("levels", format!("no case matches {wanted:?}")));
    }
    results
        .extend(cycles_of_a_nanosecond().map(|cycles| Measurement::of("TSC frequency", cycles, "cycles/ns")));
    Ok(results)
}

/// Returns a packet of size `size` to the address `to`.
fn frame(to: std::net::Ipv4Addr, size: Size) -> Vec<u8> {
    udp(to.into()).bytes_of(size.of(0))
}

/// Returns the number of time-stamp-counter cycles per nanosecond; `None` without such a counter.
pub(crate) fn cycles_of_a_nanosecond() -> Option<f64> {
    let (start, clock) = (cycles()?, std::time::Instant::now());
    std::thread::sleep(Duration::from_millis(50));
    Some((cycles()? - start) as f64 / clock.elapsed().as_secs_f64() / 1e9)
}
