//! Rate of offloaded plain flows while the worker is busy. The worker has a flood of exceptional packets, or
//! flows bound to a plugin.
//!
//! The generator's processor also generates the worker's packets. So the worker's packets reduce the rate of
//! the plain packets, but their generation takes no time from the worker. If the worker's processor generated
//! the flood, a flow that is not offloaded yet would lose all its packets.
//!
//! The first run sends the plain flows beside a control load. The control load has the rate of the worker's
//! packets, but a filter in the XDP program drops it at once. The other runs send the plain flows at half of
//! the rate that arrived in the first run. These runs have the control load and the worker's packets by
//! turns. Sender and far end read their counts when no packet is in flight.

use std::net::{IpAddr, Ipv4Addr};

use millrace_offload::Flows;

use super::RUNS;
use super::traffic::Traffic;
use crate::interrupt::{pause, wait_until};
use crate::statistics::median;
use crate::testbed::arrivals::{COUNTED, GENERATOR_PROCESSOR, WARM_UP, WORKER, count, go_down};
use crate::testbed::frame::{UdpFrame, udp};
use crate::testbed::load::{Load, UNLIMITED};
use crate::testbed::network::{Network, SINK};
use crate::testbed::router::Router;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of packets per second that the worker gets.
const OTHERS: u64 = 200_000;
/// Destination port of the control load, which the filter drops.
const DROPPED: u16 = 10;
const BOUND: u16 = 11;
/// Promised minimum: share of the plain packets that arrives beside the worker's packets, as a fraction of
/// the share that arrives beside the control load.
const KEPT: f64 = 0.999;

/// Packets that the worker gets beside the plain flows.
pub(super) struct Others {
    what: &'static str,
    frames: Vec<Vec<u8>>,
    flows: Flows,
    /// Whether these packets arrive at the far end, too.
    arrive: bool,
}

impl Others {
    /// Returns packets that end at the router: packets whose TTL expires, and packets to the router's own
    /// address.
    pub fn exceptional() -> Self {
        let own = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 254));
        let frames = vec![udp(SINK.into()).with_ttl(1), udp(own).bytes()];
        Self { what: "exceptional packets", frames, flows: Flows::default(), arrive: false }
    }

    /// Returns flows bound to an instance whose plugin has no eBPF variant.
    pub fn bound() -> Self {
        let frame = UdpFrame { destination_port: BOUND, ..udp(SINK.into()) }.bytes();
        let flows = Flows { ports: 16, ..Flows::default() };
        Self { what: "packets of bound flows, these included", frames: vec![frame], flows, arrive: true }
    }
}

/// Measures the share of the plain packets that arrives beside the worker's packets.
pub(super) fn beside_others(
    network: &Network,
    traffic: &Traffic,
    others: Others,
    options: &mut Options<'_>,
) -> Result<Measurement, BenchError> {
    let router = Router::start(&options.binary, network, Some(WORKER))?;
    let filter = format!("proto udp dport {DROPPED}");
    router.tell(&["filter", "add", &filter, "--action", "drop", "--gate", "firewall"])?;
    router.tell(&["instance", "create", "null", "handler"])?;
    let filter = format!("proto udp dport {BOUND}");
    router.tell(&["bind", "handler", "--gate", "monitor", "--filter", &filter])?;
    let mut plain = Load::of(network, GENERATOR_PROCESSOR, traffic.frames.clone(), traffic.flows)?;
    let dropped = UdpFrame { destination_port: DROPPED, ..udp(SINK.into()) }.bytes();
    let mut control = Load::of(network, GENERATOR_PROCESSOR, vec![dropped], Flows::default())?;
    let Others { what, frames, flows, arrive } = others;
    let mut flood = Load::of(network, GENERATOR_PROCESSOR, frames, flows)?;
    go_down(&router, &plain, traffic.count, traffic.count)?;
    control.set_rate(OTHERS);
    plain.set_rate(UNLIMITED);
    let rate = (count(&network.s, "s0")? * 1e6 / 2.0) as u64;
    let (mut shares, mut controls) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        controls.push(share(network, (&plain, rate), (&control, false))?);
        shares.push(share(network, (&plain, rate), (&flood, arrive))?);
    }
    [&mut plain, &mut control, &mut flood].into_iter().try_for_each(Load::check)?;
    router.stop()?;
    let (ours, theirs) = (median(&shares), median(&controls));
    let case = format!(
        "offloaded, {} at {rate} packets per second, beside {OTHERS} {what}: delivered share",
        traffic.case
    );
    (options.progress)(&format!("{case}: {ours:.3} %, beside equally many filtered packets {theirs:.3} %"));
    let beside =
        Measurement::median_of(case, &shares, "%").beside("beside equally many filtered packets", theirs);
    Ok(beside.promising_ratio(Bound::AtLeast, KEPT))
}

/// Returns the share of the sent packets that arrives, in percent. If the worker's packets arrive at the far
/// end, too, the share includes them.
fn share(
    network: &Network,
    (plain, rate): (&Load, u64),
    (others, arrive): (&Load, bool),
) -> Result<f64, BenchError> {
    let made = || plain.sent() + if arrive { others.sent() } else { 0 };
    [plain, others].into_iter().for_each(|load| load.set_rate(0));
    settled(network)?;
    let before = (made(), network.s.received("s0")?);
    others.set_rate(OTHERS);
    pause(WARM_UP)?;
    plain.set_rate(rate);
    pause(COUNTED)?;
    [plain, others].into_iter().for_each(|load| load.set_rate(0));
    settled(network)?;
    let (made, arrived) = (made() - before.0, network.s.received("s0")? - before.1);
    match made {
        0 => Err(BenchError::measurement("offload", "no packet was sent beside the flood")),
        made => Ok(arrived as f64 * 100.0 / made as f64),
    }
}

/// Waits until no more packets arrive.
fn settled(network: &Network) -> Result<(), BenchError> {
    pause(WARM_UP)?;
    let mut before = network.s.received("s0")?;
    let is_quiet = wait_until(WARM_UP * 10, || {
        pause(WARM_UP / 5)?;
        let now = network.s.received("s0")?;
        Ok(std::mem::replace(&mut before, now) == now)
    })?;
    if is_quiet {
        Ok(())
    } else {
        Err(BenchError::measurement("offload", "packets still arrive after the generator stopped"))
    }
}
