//! Forwarding rate of 64-byte packets under overload.
//!
//! An XDP test run with live frames generates the frames on processor 0. The router, testpmd or the kernel's
//! forwarding runs on processor 1. Generator and forwarders have priority over other work of the machine.
//!
//! The far device counts the arriving packets, and its kernel drops them at once. In the plugin case, an XDP
//! program on the far device drops them, because the far device accepts redirected frames only with such a
//! program.

use std::fs;
use std::time::Duration;

use nix::unistd::Pid;

use crate::interrupt::pause;
use crate::statistics::{extremes, median, ratios};
use crate::testbed::arrivals::count_for;
use crate::testbed::frame::udp;
use crate::testbed::load::{Load, UNLIMITED};
use crate::testbed::network::{Network, SINK};
use crate::testbed::process::{Processor, dedicate, is_installed};
use crate::testbed::router::Router;
use crate::testbed::sink::sink;
use crate::veth::testpmd::{PROGRAM, Testpmd};
use crate::{BenchError, Bound, Measurement, Options};

const GENERATOR: Processor = 0;
const FORWARDER: Processor = 1;
/// Number of pairs of runs. Each pair is one run of the router and one of testpmd.
const PAIRS: usize = 9;
const KERNEL_RUNS: usize = 3;
/// Number of source ports, and so of flows.
const FLOWS: u32 = 256;
/// Duration of the traffic before counting begins.
const WARM_UP: Duration = Duration::from_millis(300);
const COUNTED: Duration = Duration::from_secs(1);
/// Number of packets per second while the router or testpmd starts.
const TRICKLE: u64 = 10_000;
/// Offered rate, relative to the capacity of the router or of testpmd, whichever is higher.
const OVERLOAD: f64 = 1.2;
/// Maximum share of the arrived packets that the kernel, not the router, may have forwarded.
const STRAY: f64 = 0.001;
/// Promised minimum: ratio of the router's rate to testpmd's rate. If a plugin sees all packets, and the far
/// end accepts redirected frames, the promised minimum is `PLUGIN_LIMIT` instead.
const LIMIT: f64 = 0.9;
const PLUGIN_LIMIT: f64 = 1.5;

/// Treatment of the flows in the router: by no plugin, or all by a plugin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flows {
    Plain,
    Bound,
}

struct Bed<'a> {
    network: &'a Network,
    load: Load,
    /// Offered rate in packets per second.
    offered: u64,
    flows: Flows,
    with_peer: bool,
}

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let flows = millrace_offload::Flows { ports: FLOWS, ..Default::default() };
    let load = Load::of(network, GENERATOR, vec![udp(SINK.into()).bytes()], flows)?;
    let with_peer = is_installed(PROGRAM);
    let mut bed = Bed { network, load, offered: UNLIMITED, flows: Flows::Bound, with_peer };
    if !with_peer {
        (options.progress)("dpdk-testpmd is not installed (package dpdk-dev): the peer is left out");
    }
    let bound = {
        let _sink = sink(&network.s, "s0")?;
        let (bound, _) = bed.beside_testpmd("forwarding, 64-byte UDP, with a plugin", options)?;
        bound.promising_ratio(Bound::AtLeast, PLUGIN_LIMIT)
    };
    bed.flows = Flows::Plain;
    let case = "forwarding, 64-byte UDP";
    let (first, ours) = bed.beside_testpmd(case, options)?;
    let kernel = bed.kernel_runs(options)?;
    let second = Measurement::median_of(case, &ours, "Mpps").beside_runs("kernel", &kernel);
    Ok(vec![bound, first.promising_ratio(Bound::AtLeast, LIMIT), second])
}

impl Bed<'_> {
    /// Measures the router and testpmd in pairs; also returns the router's rates.
    fn beside_testpmd(
        &mut self,
        case: &str,
        options: &mut Options<'_>,
    ) -> Result<(Measurement, Vec<f64>), BenchError> {
        self.offered = UNLIMITED;
        self.offered = self.find_capacity(options)?;
        (options.progress)(&format!("{case}: offered {:.3} Mpps", self.offered as f64 / 1e6));
        let (ours, peers) = self.pairs(options)?;
        let measured = Measurement::median_of(case, &ours, "Mpps");
        if !self.with_peer {
            return Ok((measured, ours));
        }
        let ratios = ratios(&ours, &peers);
        let ((least, most), ratio) = (extremes(&ratios), median(&ratios));
        (options.progress)(&format!("ratio to testpmd: median {ratio:.3}, {least:.3} to {most:.3}"));
        Ok((measured.beside_pairs("DPDK testpmd, net_af_xdp", &ours, &peers), ours))
    }

    /// Determines the rate to offer. The first runs are at the generator's full speed. The last runs are at
    /// the rate that follows from the first results.
    fn find_capacity(&mut self, options: &mut Options<'_>) -> Result<u64, BenchError> {
        for _ in 0..2 {
            let ours = self.router(options)?;
            let peer = if self.with_peer { self.testpmd()? } else { 0.0 };
            (options.progress)(&format!("capacity: router {ours:.3} Mpps, testpmd {peer:.3} Mpps"));
            self.offered = (ours.max(peer) * 1e6 * OVERLOAD) as u64;
        }
        Ok(self.offered)
    }

    /// Runs the router and testpmd alternately. In every second pair, testpmd runs first.
    fn pairs(&mut self, options: &mut Options<'_>) -> Result<(Vec<f64>, Vec<f64>), BenchError> {
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for pair in 0..PAIRS {
            if self.with_peer && pair % 2 == 1 {
                peers.push(self.testpmd()?);
            }
            ours.push(self.router(options)?);
            if self.with_peer && pair % 2 == 0 {
                peers.push(self.testpmd()?);
            }
            let peer = peers.last().map_or_else(String::new, |peer| format!(", testpmd {peer:.3} Mpps"));
            (options.progress)(&format!("pair {} of {PAIRS}: router {:.3} Mpps{peer}", pair + 1, ours[pair]));
        }
        Ok((ours, peers))
    }

    fn router(&mut self, options: &Options<'_>) -> Result<f64, BenchError> {
        let router = Router::start(&options.binary, self.network, Some(FORWARDER))?;
        if self.flows == Flows::Bound {
            router.tell(&["instance", "create", "null", "all"])?;
            router.tell(&["bind", "all", "--gate", "firewall", "--filter", ""])?;
        }
        let before = self.network.r.forwarded()?;
        let rate = self.rate_at(self.offered)?;
        let strays = self.network.r.forwarded()? - before;
        router.stop()?;
        if strays as f64 > rate * 1e6 * STRAY {
            let problem = format!("the kernel forwarded {strays} packets instead of the router");
            return Err(BenchError::measurement("router", problem));
        }
        Ok(rate)
    }

    fn testpmd(&mut self) -> Result<f64, BenchError> {
        self.load.set_rate(TRICKLE);
        let testpmd = Testpmd::start(self.network, FORWARDER)?;
        let rate = self.rate_at(self.offered)?;
        testpmd.stop()?;
        Ok(rate)
    }

    /// Measures the kernel's forwarding in two setups, and returns the rates of the better setup. In the
    /// first setup, NAPI of `r1` runs in the softirq on the generator's processor, which is veth's default.
    /// In the second setup, threaded NAPI runs on the processor that the router and testpmd use.
    fn kernel_runs(&mut self, options: &mut Options<'_>) -> Result<Vec<f64>, BenchError> {
        let r = &self.network.r;
        // A veth device receives redirected frames only with GRO or an XDP program.
        r.shell("ethtool -K r1 gro on")?;
        let by_itself = self.kernel_series("the generator's processor", options)?;
        let before = receiving_threads();
        r.shell("echo 1 >/sys/class/net/r1/threaded")?;
        for thread in receiving_threads().into_iter().filter(|thread| !before.contains(thread)) {
            dedicate(thread, FORWARDER)?;
        }
        let on_a_thread = self.kernel_series("a thread", options)?;
        r.shell("echo 0 >/sys/class/net/r1/threaded && ethtool -K r1 gro off")?;
        Ok(if median(&by_itself) > median(&on_a_thread) { by_itself } else { on_a_thread })
    }

    fn kernel_series(&mut self, place: &str, options: &mut Options<'_>) -> Result<Vec<f64>, BenchError> {
        let capacity = self.rate_at(UNLIMITED)?;
        let offered = (capacity * 1e6 * OVERLOAD) as u64;
        let rates = (0..KERNEL_RUNS).map(|_| self.rate_at(offered)).collect::<Result<Vec<_>, _>>()?;
        let (least, most) = extremes(&rates);
        let middle = median(&rates);
        (options.progress)(&format!("kernel, on {place}: {middle:.3} Mpps, {least:.3} to {most:.3}"));
        Ok(rates)
    }

    /// Offers a rate in packets per second. Returns the rate of arriving packets, in millions per second.
    fn rate_at(&mut self, offered: u64) -> Result<f64, BenchError> {
        self.load.set_rate(offered);
        let result = pause(WARM_UP).and_then(|()| count_for(&self.network.s, "s0", COUNTED));
        self.load.set_rate(0);
        self.load.check()?;
        result
    }
}

/// Returns the kernel's NAPI threads of devices named `r1`.
fn receiving_threads() -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let receives = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("napi/r1-"))
    };
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(receives).map(Pid::from_raw).collect()
}
