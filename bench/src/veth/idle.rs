//! Delay of a single packet through a nearly idle router, and processor time of an idle router.

use std::fs;
use std::time::{Duration, Instant};

use crate::interrupt::pause;
use crate::statistics::{extremes, median};
use crate::testbed::network::{Network, RECEIVER};
use crate::testbed::process::{Running, command, processor_times};
use crate::testbed::router::Router;
use crate::{BenchError, Bound, Measurement, Options, Quantiles, Subject};

/// Number of series of pings through the kernel and through the router, which alternate.
const SERIES: usize = 2;
/// Interval between pings in seconds (as text for `ping`), and number of pings.
const SLOW: (&str, usize) = ("1", 8);
const FAST: (&str, usize) = ("0.01", 200);
/// Promised maximum: round-trip time through the idle router, as a multiple of the round-trip time through
/// the kernel.
const ROUND_TRIP_LIMIT: f64 = 2.0;
/// Duration over which the idle router's processor time is measured.
const IDLE: Duration = Duration::from_secs(6);
/// Promised maximum: processor use of the idle router in percent.
const PROCESSOR_LIMIT: f64 = 1.0;

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    // With receive offload, the hosts accept redirected frames, so the XDP program forwards.
    set_receive_offload(network, "on")?;
    let offloaded = round_trips_and_use(network, options, "offloaded");
    set_receive_offload(network, "off")?;
    let [slow, fast, idle] = offloaded?;
    let [by_worker, ..] = round_trips_and_use(network, options, "at the worker")?;
    let slow = slow.promising_ratio(Bound::AtMost, ROUND_TRIP_LIMIT);
    Ok(vec![slow, fast, idle.promising(Bound::AtMost, PROCESSOR_LIMIT), by_worker])
}

fn set_receive_offload(network: &Network, state: &str) -> Result<(), BenchError> {
    for (host, device) in [(&network.g, "g0"), (&network.s, "s0")] {
        host.shell(&format!("ethtool -K {device} gro {state}"))?;
    }
    Ok(())
}

fn round_trips_and_use(
    network: &Network,
    options: &mut Options<'_>,
    level: &str,
) -> Result<[Measurement; 3], BenchError> {
    let (mut ours, mut kernel, mut used) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()], 0.0);
    for series in 0..SERIES {
        ping_all(network, &mut kernel)?;
        let router = Router::start(&options.binary, network, None)?;
        pause(Duration::from_millis(500))?;
        ping_all(network, &mut ours)?;
        if series + 1 == SERIES {
            pause(Duration::from_secs(1))?;
            used = processor_use(router.pid())?;
        }
        router.stop()?;
    }
    let round_trip = |index: usize, interval: &str, options: &mut Options<'_>| {
        let ((least, most), case) =
            (extremes(&ours[index]), format!("ping -i {interval}, adaptive, {level}"));
        (options.progress)(&format!("{case}: {least:.3} to {most:.3} ms"));
        let distribution = Quantiles::of("round trip, ms")
            .with(Subject::Millrace, "Millrace", &ours[index])
            .with(Subject::Peer, "kernel", &kernel[index]);
        Measurement::of(format!("{case}, median"), median(&ours[index]), "ms")
            .beside("kernel", median(&kernel[index]))
            .with_distribution(distribution)
    };
    let (slow, fast) = (round_trip(0, SLOW.0, options), round_trip(1, FAST.0, options));
    Ok([slow, fast, Measurement::of("processor usage when idle", used, "%")])
}

fn ping_all(network: &Network, times: &mut [Vec<f64>; 2]) -> Result<(), BenchError> {
    for (times, (interval, count)) in times.iter_mut().zip([SLOW, FAST]) {
        times.extend(ping(network, interval, count)?);
    }
    Ok(())
}

/// Returns round-trip times in milliseconds. Omits the first, which may include neighbour resolution.
fn ping(network: &Network, interval: &str, count: usize) -> Result<Vec<f64>, BenchError> {
    let mut ping = command(network.g.open()?, "ping", None)?;
    ping.args(["-n", "-i", interval, "-c", &(count + 1).to_string(), "-W", "1", &RECEIVER.to_string()]);
    let output = Running::start(&mut ping)?.finish(Duration::from_secs(30))?;
    let times = round_trips(&output);
    if times.len() < count {
        return Err(BenchError::measurement(
            "ping",
            format!("only {} of {} pings were answered", times.len(), count + 1),
        ));
    }
    Ok(times.into_iter().skip(1).collect())
}

fn round_trips(output: &str) -> Vec<f64> {
    let times = output.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok());
    times.collect()
}

/// Returns the processor use of an idle process in percent.
fn processor_use(pid: u32) -> Result<f64, BenchError> {
    let (before, start) = (processor_time(pid)?, Instant::now());
    pause(IDLE)?;
    let used = processor_time(pid)? - before;
    Ok(100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64())
}

fn processor_time(pid: u32) -> Result<Duration, BenchError> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(BenchError::system(format!("read {path}")))?;
    let times = processor_times(&text).map(|[user, kernel]| user + kernel);
    times.ok_or_else(|| BenchError::measurement("processor use", format!("can't parse {path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_times_are_parsed() {
        let output = "PING 10.2.0.1\n64 bytes from 10.2.0.1: icmp_seq=1 ttl=63 time=0.304 ms\n\
                      64 bytes from 10.2.0.1: icmp_seq=2 ttl=63 time=12 ms\n\nrtt min/avg = 1/2 ms\n";
        assert_eq!(round_trips(output), [0.304, 12.0]);
    }
}
