//! `shaping`: rates and shares of a port's scheduler on the wire, compared with the kernel's.

mod bursts;
mod greedy;
mod rates;
mod shares;
mod voice;

use crate::testbed::network::Network;
use crate::testbed::process::{Processor, is_installed};
use crate::testbed::router::Router;
use crate::{BenchError, Measurement, Options};

/// Processor of senders and receivers, on which the kernel also shapes.
const ENDS: Processor = 0;
/// Processor of the router. If senders preempted the worker, it might not catch up.
const ROUTER: Processor = 1;

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if std::thread::available_parallelism().map_or(1, usize::from) <= ROUTER {
        return Err(BenchError::measurement("shaping", "this benchmark needs two processors"));
    }
    if !is_installed("iperf3") {
        return Err(BenchError::measurement("shaping", "iperf3 is not installed: apt-get install iperf3"));
    }
    let network = Network::new()?;
    let mut results = rates::measure(&network, options)?;
    results.extend(bursts::measure(&network, options)?);
    results.extend(shares::measure(&network, options)?);
    results.extend(voice::measure(&network, options)?);
    Ok(results)
}

/// Queue discipline of the kernel on the router's second device. Dropping it removes the discipline.
struct Discipline<'n>(&'n Network);

impl<'n> Discipline<'n> {
    /// Sets up the discipline with lines of `tc` for the device.
    fn set(network: &'n Network, lines: &[String]) -> Result<Self, BenchError> {
        let discipline = Self(network);
        for line in lines {
            network.r.shell(&format!("tc {line}"))?;
        }
        Ok(discipline)
    }
}

impl Drop for Discipline<'_> {
    fn drop(&mut self) {
        // The discipline is absent if its setup failed.
        let _ = self.0.r.shell("tc qdisc del dev r2 root");
    }
}

/// Returns lines of `tc` for a hierarchical token bucket on Ethernet. Class 1 has the given rate; `default`
/// is the class of other packets.
fn htb(megabits: u32, default: u32) -> Vec<String> {
    vec![
        format!("qdisc add dev r2 root handle 1: htb default {default}"),
        format!(
            "class add dev r2 parent 1: classid 1:1 htb rate {megabits}mbit ceil {megabits}mbit overhead 24 mpu 84"
        ),
    ]
}

/// Shaper of the link's rate.
#[derive(Clone, Copy, PartialEq)]
enum Shaper {
    Millrace,
    Htb,
    Tbf,
}

/// Runs `work` while the port to the second host sends at a rate in megabits per second.
fn shaped<T>(
    network: &Network,
    options: &Options<'_>,
    shaper: Shaper,
    megabits: u32,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let (mut router, mut discipline) = (None, None);
    match shaper {
        Shaper::Millrace => {
            let started = Router::start(&options.binary, network, Some(ROUTER))?;
            started.tell(&["scheduler", "add", "r2", "all", "--kind", "fifo"])?;
            started.tell(&["scheduler", "set", "r2", &format!("rate={megabits}mbit")])?;
            router = Some(started);
        }
        Shaper::Htb => discipline = Some(Discipline::set(network, &htb(megabits, 1))?),
        Shaper::Tbf => {
            // Burst that a late worker may catch up: 200 us, or two packets.
            let burst = (megabits * 25).max(3076);
            let line = format!(
                "qdisc add dev r2 root tbf rate {megabits}mbit burst {burst} latency 200ms overhead 24 mpu 84"
            );
            discipline = Some(Discipline::set(network, &[line])?);
        }
    }
    let result = work()?;
    drop(discipline);
    router.map_or(Ok(()), Router::stop)?;
    Ok(result)
}
