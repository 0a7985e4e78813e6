//! Plain flows in the driver beside a flood of what is exceptional.
//!
//! The flood is made where the plain packets are, so it takes from what can be sent of them, but not from the worker: a flow that is not in
//! the driver yet needs it, and was lost whole when its processor made the flood. The plain flows are
//! sent at half of what arrives beside a flood that is dropped at first sight, by a filter in the driver; and then, at this rate, beside that
//! flood and beside the exceptional one, in turns. What was made is counted at the sender, what arrived at the far end, both when nothing is
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

/// Frames of the flood a second.
const FLOOD: u64 = 200_000;
/// The port of the packets that the filter drops.
const DROPPED: u16 = 10;
/// What arrives of the plain packets beside the exceptional flood, in parts of what arrives beside the other one.
const KEPT: f64 = 0.999;

/// How much of the plain flows arrives beside both floods.
pub(super) fn beside_flood(
    network: &Network,
    traffic: &Traffic,
    options: &mut Options<'_>,
) -> Result<Measurement, BenchError> {
    let router = Router::start(&options.binary, network, Some(WORKER))?;
    let filter = format!("proto udp dport {DROPPED}");
    router.tell(&["filter", "add", &filter, "--action", "drop", "--gate", "firewall"])?;
    let mut plain = Load::of(network, GENERATOR_PROCESSOR, traffic.frames.clone(), traffic.flows)?;
    let dropped = UdpFrame { destination_port: DROPPED, ..udp(SINK.into()) }.bytes();
    let mut control = Load::of(network, GENERATOR_PROCESSOR, vec![dropped], Flows::default())?;
    let own = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 254));
    let exceptional = vec![udp(SINK.into()).with_ttl(1), udp(own).bytes()];
    let mut flood = Load::of(network, GENERATOR_PROCESSOR, exceptional, Flows::default())?;
    go_down(&router, &plain, traffic.count, traffic.count)?;
    control.set_rate(FLOOD);
    plain.set_rate(UNLIMITED);
    let rate = (count(&network.s, "s0")? * 1e6 / 2.0) as u64;
    let (mut shares, mut controls) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        controls.push(share(network, &plain, rate, &control)?);
        shares.push(share(network, &plain, rate, &flood)?);
    }
    [&mut plain, &mut control, &mut flood].into_iter().try_for_each(Load::check)?;
    router.stop()?;
    let (ours, theirs) = (median(&shares), median(&controls));
    let case = format!(
        "in the driver, {} at {rate} packets a second, beside {FLOOD} exceptional ones: what arrives",
        traffic.case
    );
    (options.progress)(&format!("{case}: {ours:.3} %, beside as many that a filter drops {theirs:.3} %"));
    let beside =
        Measurement::median_of(case, &shares, "%").beside("beside as many that a filter drops", theirs);
    Ok(beside.promising_ratio(Bound::AtLeast, KEPT))
}

/// How much of the plain packets arrives beside a flood, in percent.
fn share(network: &Network, plain: &Load, rate: u64, flood: &Load) -> Result<f64, BenchError> {
    flood.set_rate(FLOOD);
    plain.set_rate(0);
    settled(network)?;
    let before = (plain.sent(), network.s.received("s0")?);
    plain.set_rate(rate);
    pause(COUNTED)?;
    plain.set_rate(0);
    settled(network)?;
    let (made, arrived) = (plain.sent() - before.0, network.s.received("s0")? - before.1);
    flood.set_rate(0);
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
