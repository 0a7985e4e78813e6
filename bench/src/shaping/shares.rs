//! How exactly a link is shared.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::interrupt::pause;
use crate::network::{Network, RECEIVER};
use crate::router::Router;
use crate::{BenchError, Bound, Measurement, Options};

/// The link in megabits a second, which each flow alone would fill.
const LINK: u32 = 20;
/// The shares of the flows.
const SHARES: [u32; 3] = [1, 2, 5];
/// Bytes of a packet's payload, and the time between two of a flow.
const PAYLOAD: usize = 1200;
const INTERVAL: Duration = Duration::from_micros(450);
const TIME: Duration = Duration::from_secs(5);
/// Promised: percent that a flow's share is off.
const LIMIT: f64 = 1.0;

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let router = Router::start(&options.binary, network, None)?;
    router.tell(&["scheduler", "add", "r2", "top", "--kind", "deficit-round-robin"])?;
    for (flow, share) in SHARES.iter().enumerate() {
        let (name, quantum) = (format!("q{flow}"), format!("quantum={}", share * 1538));
        router.tell(&["scheduler", "add", "r2", &name, "--kind", "fifo", "--under", "top", &quantum])?;
        let filter = format!("proto udp dport {}", 9000 + flow);
        router.tell(&["filter", "add", &filter, "--action", &format!("queue {name}")])?;
    }
    router.tell(&["scheduler", "set", "r2", &format!("rate={LINK}mbit")])?;
    let sent = while_flooded(network, || {
        pause(Duration::from_secs(1))?;
        let before = sent(&router)?;
        pause(TIME)?;
        let after = sent(&router)?;
        Ok(std::array::from_fn::<f64, 3, _>(|flow| after[flow] - before[flow]))
    })?;
    router.stop()?;
    let (all, wanted) = (sent.iter().sum::<f64>(), f64::from(SHARES.iter().sum::<u32>()));
    let off = sent.iter().zip(SHARES).map(|(sent, share)| {
        let part = sent / all / (f64::from(share) / wanted);
        100.0 * (part - 1.0).abs()
    });
    let worst = off.fold(0.0, f64::max);
    (options.progress)(&format!("shares of 1, 2 and 5: {sent:.0?} bytes, off by {worst:.2} % at most"));
    let case = "shares of 1, 2 and 5 by deficit round robin, the worst, off its weight";
    Ok(vec![Measurement::of(case, worst, "%").promising(Bound::AtMost, LIMIT)])
}

/// Bytes that each flow's queue has sent.
fn sent(router: &Router) -> Result<[f64; 3], BenchError> {
    let shown = router.tell(&["queue", "show", "r2", "--json"])?;
    let queues: Value = serde_json::from_str(&shown)
        .map_err(|error| BenchError::measurement("queue show", format!("{error}: {shown}")))?;
    let bytes = |flow: usize| {
        let name = format!("q{flow}");
        let queue = queues.as_array()?.iter().find(|queue| queue["name"] == name.as_str())?;
        queue["sent_bytes"].as_f64()
    };
    let all: Option<Vec<f64>> = (0..3).map(bytes).collect();
    let all = all.and_then(|all| all.try_into().ok());
    all.ok_or_else(|| BenchError::measurement("queue show", format!("queues are missing: {shown}")))
}

/// Does something while all flows send more than the link takes.
fn while_flooded<T>(
    network: &Network,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let socket = |error| BenchError::system("open a UDP socket")(error);
    // They take what comes and never read it.
    let ports: Vec<u16> = (0..SHARES.len() as u16).map(|flow| 9000 + flow).collect();
    let bind = |port: &u16| UdpSocket::bind((RECEIVER, *port));
    let _ends: Vec<UdpSocket> =
        network.s.within(|| ports.iter().map(bind).collect::<Result<_, _>>())?.map_err(socket)?;
    let sender = network.g.within(|| UdpSocket::bind(("0.0.0.0", 0)))?.map_err(socket)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for port in &ports {
                    // What can't be sent now would only have been dropped at the router.
                    let _ = sender.send_to(&[0; PAYLOAD], (RECEIVER, *port));
                }
                std::thread::sleep(INTERVAL);
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}
