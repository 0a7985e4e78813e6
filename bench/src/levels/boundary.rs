//! Boundaries of the processor hierarchy (offload, worker, host) that packets cross between two hosts.

use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::{FLOW_COUNT, FLOWS, RUNS, Size, frame};
use crate::interrupt::pause;
use crate::statistics::median;
use crate::testbed::arrivals::{FRAMES_OF_A_CALL, GENERATOR_PROCESSOR, WORKER, count_for, go_down, rate_at};
use crate::testbed::load::{Load, UNLIMITED};
use crate::testbed::network::{Network, SINK};
use crate::testbed::process::processor_times;
use crate::testbed::router::Router;
use crate::testbed::sink::sink;
use crate::{BenchError, Measurement, Options, Subject};

/// Name of the case in which packets bypass the worker.
pub(super) const OFFLOAD: &str = "port to offload to port";
/// Duration of the traffic before counting begins.
const WARM_UP: Duration = Duration::from_millis(250);
const COUNTED: Duration = Duration::from_millis(600);
/// Number of frames per call at a limited rate. It is small enough for a ring of 2,048 frames, and large
/// enough to hide the fixed cost of a call.
const FRAMES_AT_ONCE: u32 = 1024;
/// Sending rate at which the sender's CPU time per packet is measured, as a fraction of the forwarded rate.
/// It is slightly below 1, so that no queue builds up.
const BELOW: f64 = 0.98;
/// Number of iterations of an empty loop by which `null` delays each packet in the first run. The second run
/// has twice as many.
const DELAY: u32 = 1000;
/// Maximum rate with the delay of `null`, as a fraction of the rate without the delay. Above it, the delay is
/// too short to be measured.
const BINDS: f64 = 0.95;

/// Boundary of the processor hierarchy. Packets cross it on their way to a destination address.
pub(crate) struct Boundary {
    pub case: &'static str,
    /// Destination address of the packets.
    pub to: Ipv4Addr,
    /// Device of the far host where the packets arrive.
    pub device: &'static str,
}

/// Results of one run of the router, in nanoseconds per packet unless stated otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// Forwarded packets in millions per second.
    pub rate: f64,
    /// CPU time of the sender per packet, including the generation of the packet.
    below: f64,
    /// CPU time of the offload per packet.
    pub offload: f64,
    /// CPU time per packet that the kernel spends on behalf of the worker.
    kernel: f64,
    /// Time of the worker per packet without a delay, extrapolated from runs with two delays.
    pub worker: f64,
}

/// Measures the rate of the offload alone, and its time per packet.
pub(super) fn through_offload(
    network: &Network,
    size: Size,
    options: &mut Options<'_>,
) -> Result<Vec<Measurement>, BenchError> {
    let (mut rates, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let [with, without] = offload_rates(network, size, options)?;
        rates.push(with);
        alone.push(without);
    }
    let takes = 1e3 / median(&rates) - 1e3 / median(&alone);
    let case = format!("{OFFLOAD}, {}", size.words());
    (options.progress)(&format!("{case}: {:.3} Mpps, the offload takes {takes:.0} ns", median(&rates)));
    let rate = Measurement::median_of(format!("{case}: rate"), &rates, "Mpps")
        .beside_runs("generator and receiver only", &alone)
        .peer_about(Subject::Generator);
    Ok(vec![rate, Measurement::of(format!("{case}: offload time"), takes, "ns")])
}

/// Returns the rate of the offload alone, and of the generator and receiver without it, in millions of packets
/// per second.
fn offload_rates(network: &Network, size: Size, options: &Options<'_>) -> Result<[f64; 2], BenchError> {
    let frames = vec![frame(SINK, size)];
    let alone = {
        let _sink = sink(&network.r, "r1")?;
        rate_at(network, (&frames, FLOWS), (&network.r, "r1"))?
    };
    let _sink = sink(&network.s, "s0")?;
    let router = Router::start(&options.binary, network, Some(WORKER))?;
    let mut load = Load::of(network, GENERATOR_PROCESSOR, frames, FLOWS)?;
    go_down(&router, &load, FLOW_COUNT, FLOW_COUNT)?;
    load.set_run(FRAMES_OF_A_CALL);
    let rate = counted(network, "s0", &load, UNLIMITED)?;
    load.set_rate(0);
    load.check()?;
    router.stop()?;
    Ok([rate, alone])
}

/// Returns the time of the offload for a packet that it forwards itself, in nanoseconds.
pub(crate) fn offload_time(network: &Network, size: Size, options: &Options<'_>) -> Result<f64, BenchError> {
    let [rate, alone] = offload_rates(network, size, options)?;
    Ok(1e3 / rate - 1e3 / alone)
}

impl Boundary {
    /// Measures the rate across the boundary. For the sender's and the worker's processor, measures the time
    /// per packet and the spare time between two packets.
    pub fn measure(
        &self,
        network: &Network,
        size: Size,
        options: &mut Options<'_>,
    ) -> Result<Vec<Measurement>, BenchError> {
        let runs = (0..RUNS).map(|_| self.run(network, size, options)).collect::<Result<Vec<_>, _>>()?;
        let of = |figure: fn(&Run) -> f64| runs.iter().map(figure).collect::<Vec<f64>>();
        let case = format!("{}, {}", self.case, size.words());
        let figures = [
            ("rate", of(|run| run.rate), "Mpps"),
            ("offload time", of(|run| run.offload), "ns"),
            ("spare time of the offload processor", of(|run| spare(run.rate, run.below)), "ns"),
            ("worker time", of(|run| run.worker), "ns"),
            ("kernel part of the worker time", of(|run| run.kernel), "ns"),
            ("spare time of the worker processor", of(|run| spare(run.rate, run.worker)), "ns"),
        ];
        let told = figures.iter().map(|(what, of, unit)| format!("{what} {:.3} {unit}", median(of)));
        (options.progress)(&format!("{case}: {}", told.collect::<Vec<_>>().join(", ")));
        let measured = |(what, of, unit): &(&str, Vec<f64>, &str)| {
            Measurement::median_of(format!("{case}: {what}"), of, unit)
        };
        Ok(figures.iter().map(measured).collect())
    }

    /// Measures one run of the router.
    pub fn run(&self, network: &Network, size: Size, options: &Options<'_>) -> Result<Run, BenchError> {
        let _sink = sink(&network.s, self.device)?;
        let router = Router::start(&options.binary, network, Some(WORKER))?;
        router.tell(&["place", "proto udp", "worker"])?;
        let mut load = Load::of(network, GENERATOR_PROCESSOR, vec![frame(self.to, size)], FLOWS)?;
        load.set_run(FRAMES_OF_A_CALL);
        load.set_rate(UNLIMITED);
        pause(WARM_UP)?;
        let (before, start) = (kernel_time(&router)?, Instant::now());
        let rate = count_for(&network.s, self.device, COUNTED)?;
        let spent = (kernel_time(&router)? - before).as_secs_f64() / start.elapsed().as_secs_f64();
        let kernel = spent * 1e3 / rate;
        load.set_run(FRAMES_AT_ONCE);
        let below = made(&load, rate)?;
        load.set_rate(0);
        load.set_run(FRAMES_OF_A_CALL);
        let worker = self.delayed(network, &router, &load, rate)?;
        load.set_rate(0);
        load.check()?;
        router.stop()?;
        // The worker's time is at most the interval between packets. The extrapolation can exceed it, since
        // calls of the plugin cost more than no calls.
        let offload = below - made_alone(network, (frame(SINK, size), rate))?;
        Ok(Run { rate, below, offload, kernel, worker: worker.min(1e3 / rate) })
    }

    /// Extrapolates the worker's time per packet without a delay from two runs, the second with twice the
    /// delay.
    fn delayed(&self, network: &Network, router: &Router, load: &Load, rate: f64) -> Result<f64, BenchError> {
        let mut times = [0.0; 2];
        for (turn, time) in times.iter_mut().enumerate() {
            load.set_rate(0);
            let work = format!("work={}", DELAY * (turn as u32 + 1));
            if turn == 0 {
                router.tell(&["instance", "create", "null", "all", &work])?;
                router.tell(&["bind", "all", "--gate", "firewall", "--filter", ""])?;
            } else {
                router.tell(&["instance", "set", "all", &work])?;
            }
            *time = 1e3 / counted(network, self.device, load, UNLIMITED)?;
        }
        let [once, twice] = times;
        if 1e3 / once > rate * BINDS {
            let problem = "the configured delay is too short: it does not make the worker the slower side";
            return Err(BenchError::measurement(self.case, problem));
        }
        Ok(2.0 * once - twice)
    }
}

/// Returns the time in nanoseconds that remains between two packets at a rate in millions per second, if each
/// packet takes `takes` nanoseconds. The difference may be negative, because calls with few frames cost more
/// per frame; the function then returns 0.
fn spare(rate: f64, takes: f64) -> f64 {
    (1e3 / rate - takes).max(0.0)
}

/// Returns the arriving packets in millions per second at a given sending rate.
fn counted(network: &Network, device: &str, load: &Load, rate: u64) -> Result<f64, BenchError> {
    load.set_rate(rate);
    pause(WARM_UP)?;
    count_for(&network.s, device, COUNTED)
}

/// Returns the sender's time per packet slightly below a rate, in nanoseconds.
fn made(load: &Load, rate: f64) -> Result<f64, BenchError> {
    load.set_rate((rate * BELOW * 1e6) as u64);
    pause(WARM_UP)?;
    let before = (load.busy(), load.sent());
    pause(COUNTED)?;
    let (busy, sent) = (load.busy() - before.0, load.sent() - before.1);
    match sent {
        0 => Err(BenchError::measurement("sender", "the generator sent no packet")),
        sent => Ok(busy.as_secs_f64() * 1e9 / sent as f64),
    }
}

/// Returns the sender's time per packet in nanoseconds when an XDP program drops all packets at once.
fn made_alone(network: &Network, (frame, rate): (Vec<u8>, f64)) -> Result<f64, BenchError> {
    let _sink = sink(&network.r, "r1")?;
    let mut load = Load::of(network, GENERATOR_PROCESSOR, vec![frame], FLOWS)?;
    load.set_run(FRAMES_AT_ONCE);
    let takes = made(&load, rate)?;
    load.set_rate(0);
    load.check()?;
    Ok(takes)
}

/// Returns the processor time that the kernel has used on behalf of the router's worker.
fn kernel_time(router: &Router) -> Result<Duration, BenchError> {
    let directory = format!("/proc/{}/task", router.pid());
    let entries = fs::read_dir(&directory).map_err(BenchError::system(format!("read {directory}")))?;
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let times = texts.filter(|text| text.contains("(worker-0)")).find_map(|text| processor_times(&text));
    times
        .map(|[_, kernel]| kernel)
        .ok_or_else(|| BenchError::measurement("worker", format!("the worker thread is not in {directory}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_time_is_the_interval_minus_the_packet_time() {
        assert!((spare(2.0, 300.0) - 200.0).abs() < 1e-9);
        assert_eq!(spare(2.0, 501.0), 0.0);
    }
}
