//! `shaping`: rates and shares of a port's scheduler, measured on the wire and compared with the kernel's
//! qdiscs.

mod bursts;
mod greedy;
mod rates;
mod shares;
mod voice;

use crate::testbed::network::Network;
use crate::testbed::process::{Processor, is_installed};
use crate::testbed::router::Router;
use crate::{BenchError, Measurement, Options};

/// Processor of senders and receivers. The kernel's qdiscs also run there.
const ENDS: Processor = 0;
/// Processor of the router. On the senders' processor, the worker could fall behind.
const ROUTER: Processor = 1;

/// Runs all cases of the benchmark `shaping`.
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

/// Kernel qdisc on the router's second device. Dropping it removes the qdisc.
struct Discipline<'n>(&'n Network);

impl<'n> Discipline<'n> {
    /// Sets up the qdisc by `tc` commands for the device.
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
        // Ignore errors: after a failed setup there is no qdisc.
        let _ = self.0.r.shell("tc qdisc del dev r2 root");
    }
}

/// Returns `tc` commands for HTB on Ethernet. Class 1 has the given rate; `default` is the class of packets
/// without a filter.
fn htb(megabits: u32, default: u32) -> Vec<String> {
    vec![
        format!("qdisc add dev r2 root handle 1: htb default {default}"),
        format!(
            "class add dev r2 parent 1: classid 1:1 htb rate {megabits}mbit ceil {megabits}mbit overhead 24 mpu 84"
        ),
    ]
}

/// Shaper that limits the link's rate: Millrace's, or a qdisc of the kernel.
#[derive(Clone, Copy, PartialEq)]
enum Shaper {
    Millrace,
    Htb,
    Tbf,
}

/// Runs `work` while a shaper limits the port to the second host to a rate in Mb/s.
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
            // Burst that a late sender may catch up: 200 us at the rate, but at least two packets.
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
