//! Rate of packets that arrive at a veth device.
//!
//! One processor generates the frames. On veth, this processor also runs the XDP programs. The other
//! processor runs the worker.

use std::time::{Duration, Instant};

use millrace_offload::Flows;

use crate::BenchError;
use crate::interrupt::{pause, wait_until};
use crate::testbed::load::{Load, UNLIMITED};
use crate::testbed::network::{Namespace, Network};
use crate::testbed::process::Processor;
use crate::testbed::router::Router;

/// Processor of the generator and of the XDP programs.
pub(crate) const GENERATOR_PROCESSOR: Processor = 0;
/// Processor of the router's threads.
pub(crate) const WORKER: Processor = 1;
/// Duration of the traffic before counting begins.
pub(crate) const WARM_UP: Duration = Duration::from_millis(500);
pub(crate) const COUNTED: Duration = Duration::from_secs(1);
/// Number of frames that the sender generates per call.
pub(crate) const FRAMES_OF_A_CALL: u32 = 4096;
/// Time limit until the flows are offloaded.
const GOING_DOWN: Duration = Duration::from_secs(30);
const GOING_DOWN_RATE: u64 = 200_000;

/// Generates frames of the given flows at full speed. Returns the arrival rate at a device in millions of
/// packets per second.
pub(crate) fn rate_at(
    network: &Network,
    (frames, flows): (&[Vec<u8>], Flows),
    (namespace, device): (&Namespace, &str),
) -> Result<f64, BenchError> {
    let mut load = Load::of(network, GENERATOR_PROCESSOR, frames.to_vec(), flows)?;
    load.set_run(FRAMES_OF_A_CALL);
    load.set_rate(UNLIMITED);
    let result = count(namespace, device);
    load.set_rate(0);
    load.check()?;
    result
}

/// Returns the arrival rate at a device after the warm-up, in millions of packets per second.
pub(crate) fn count(namespace: &Namespace, device: &str) -> Result<f64, BenchError> {
    pause(WARM_UP)?;
    count_for(namespace, device, COUNTED)
}

/// Returns the arrival rate at a device over a given time from now on, in millions of packets per second.
pub(crate) fn count_for(namespace: &Namespace, device: &str, time: Duration) -> Result<f64, BenchError> {
    let (before, start) = (namespace.received(device)?, Instant::now());
    pause(time)?;
    let arrived = namespace.received(device)? - before;
    match arrived {
        0 => Err(BenchError::measurement("far end", format!("no packet arrived at {device}"))),
        arrived => Ok(arrived as f64 / start.elapsed().as_secs_f64() / 1e6),
    }
}

/// Sends traffic of `all` flows until at least `wanted` of them are offloaded.
pub(crate) fn go_down(router: &Router, load: &Load, wanted: u64, all: u64) -> Result<(), BenchError> {
    load.set_rate(GOING_DOWN_RATE);
    let mut there = 0;
    let are_down = wait_until(GOING_DOWN, || {
        let status: serde_json::Value =
            serde_json::from_str(&router.tell(&["show", "status", "--json"])?).unwrap_or_default();
        there = status["offloaded_flows"]["flows"].as_u64().unwrap_or_default();
        Ok(there >= wanted)
    })?;
    let problem = || format!("only {there} of {all} flows were offloaded within {GOING_DOWN:?}");
    if are_down { Ok(()) } else { Err(BenchError::measurement("offloaded flows", problem())) }
}
