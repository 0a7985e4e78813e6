//! Plain flows in the driver beside packets that are the worker's: a flood of exceptional ones, and flows that a plugin handles.
//!
//! These are made where the plain packets are, so they take from what can be sent of them, but not from the worker: a flow that is not in
//! the driver yet needs it, and was lost whole when its processor made the flood. The plain flows are
//! sent at half of what arrives beside as many packets that are dropped at first sight, by a filter in the driver; and then, at this rate, beside
//! those and beside the worker's, in turns. What was made is counted at the sender, what arrived at the far end, both when nothing is
//! under way any more.

use std::net::{IpAddr, Ipv4Addr};

use millrace_offload::Flows;

use super::RUNS;
use super::traffic::{Traffic, udp};
use crate::arrivals::{COUNTED, GENERATOR_PROCESSOR, WARM_UP, WORKER, count, go_down};
use crate::frame::UdpFrame;
use crate::interrupt::{pause, wait_until};
use crate::load::{Load, UNLIMITED};
use crate::network::{Network, SINK};
use crate::router::Router;
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options};

/// Packets of the worker's a second.
const OTHERS: u64 = 200_000;
/// The port of the packets that the filter drops, and of those that the plugin handles.
const DROPPED: u16 = 10;
const BOUND: u16 = 11;
/// What arrives beside the worker's packets, in parts of what arrives beside those that are dropped.
const KEPT: f64 = 0.999;

/// Packets that are the worker's.
pub(super) struct Others {
    what: &'static str,
    frames: Vec<Vec<u8>>,
    flows: Flows,
    /// Whether they arrive, too.
    arrive: bool,
}

impl Others {
    /// What ends at the router: by its time to live, or because it is for the router itself.
    pub fn exceptional() -> Self {
        let own = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 254));
        let frames = vec![udp(SINK.into()).with_ttl(1), udp(own).bytes()];
        Self { what: "exceptional ones", frames, flows: Flows::default(), arrive: false }
    }

    /// Flows that are bound to an instance, which has no form for the driver.
    pub fn bound() -> Self {
        let frame = UdpFrame { destination_port: BOUND, ..udp(SINK.into()) }.bytes();
        let flows = Flows { ports: 16, ..Flows::default() };
        Self { what: "of bound flows, and of these", frames: vec![frame], flows, arrive: true }
    }
}

/// How much of the plain flows arrives beside others.
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
    router.tell(&[
        "bind",
        "handler",
        "--gate",
        "monitor",
        "--filter",
        &format!("proto udp dport {BOUND}"),
    ])?;
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
        "in the driver, {} at {rate} packets a second, beside {OTHERS} {what}: what arrives",
        traffic.case
    );
    (options.progress)(&format!("{case}: {ours:.3} %, beside as many that a filter drops {theirs:.3} %"));
    let beside =
        Measurement::median_of(case, &shares, "%").beside("beside as many that a filter drops", theirs);
    Ok(beside.promising_ratio(Bound::AtLeast, KEPT))
}

/// How much of the plain packets arrives beside others, in percent; where the others arrive as well, of both.
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
        0 => Err(BenchError::measurement("driver", "no packet could be sent beside the flood")),
        made => Ok(arrived as f64 * 100.0 / made as f64),
    }
}

/// Waits until nothing arrives any more.
fn settled(network: &Network) -> Result<(), BenchError> {
    pause(WARM_UP)?;
    let mut before = network.s.received("s0")?;
    let is_quiet = wait_until(WARM_UP * 10, || {
        pause(WARM_UP / 5)?;
        let now = network.s.received("s0")?;
        Ok(std::mem::replace(&mut before, now) == now)
    })?;
    if is_quiet { Ok(()) } else { Err(BenchError::measurement("driver", "packets go on arriving")) }
}
