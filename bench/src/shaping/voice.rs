//! Delay of a voice-like flow through a full link.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::{Discipline, ENDS, ROUTER, htb};
use crate::interrupt::check;
use crate::testbed::iperf3;
use crate::testbed::network::{Network, RECEIVER};
use crate::testbed::router::Router;
use crate::{BenchError, Bound, Measurement, Options, Quantiles, Subject};

/// Link rate in megabits per second.
const LINK: u32 = 10;
/// Payload of a packet in bytes: 80 bytes every 10 ms are 64 kb/s.
const PAYLOAD: usize = 80;
const INTERVAL: Duration = Duration::from_millis(10);
const PACKETS: u64 = 2000;
/// Maximum delay of a packet that counts as in time.
const BOUND: Duration = Duration::from_millis(10);
/// Promised minimum: percentage of packets in time.
const LIMIT: f64 = 99.9;
const PORT: u16 = 9000;

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let kernel = {
        let class = |number: u32, rate: u32, priority: u32| {
            format!(
                "class add dev r2 parent 1:1 classid 1:{number} htb rate {rate}mbit ceil {LINK}mbit prio {priority} \
                 overhead 24 mpu 84"
            )
        };
        let mut lines = htb(LINK, 20);
        lines.extend([class(10, 1, 0), class(20, LINK - 1, 1)]);
        lines.push(format!(
            "filter add dev r2 parent 1: protocol ip u32 match ip dport {PORT} 0xffff flowid 1:10"
        ));
        let _discipline = Discipline::set(network, &lines)?;
        beside_tcp(network)?
    };
    let router = Router::start(&options.binary, network, Some(ROUTER))?;
    for arguments in [
        &["scheduler", "add", "r2", "top", "--kind", "priority"][..],
        &["scheduler", "add", "r2", "voice", "--kind", "fifo", "--under", "top", "level=0"],
        &["scheduler", "add", "r2", "rest", "--kind", "fifo", "--under", "top", "level=1"],
        &["scheduler", "set", "r2", &format!("rate={LINK}mbit"), "default=rest"],
        &["filter", "add", &format!("proto udp dport {PORT}"), "--action", "queue voice"],
    ] {
        router.tell(arguments)?;
    }
    let delays = beside_tcp(network)?;
    router.stop()?;
    let distribution = Quantiles::of("delay, ms").with(Subject::Millrace, "Millrace", &delays).with(
        Subject::Peer,
        "HTB",
        &kernel,
    );
    let [ours, kernel] = [&delays, &kernel].map(|delays| in_time(delays));
    (options.progress)(&format!("voice beside 20 TCP flows: {ours:.2} % within 10 ms, HTB {kernel:.2} %"));
    let case = "voice flow of 64 kb/s beside 20 TCP flows at 10 Mb/s, packets within 10 ms";
    let voice = Measurement::of(case, ours, "%").beside("HTB", kernel).promising(Bound::AtLeast, LIMIT);
    Ok(vec![voice.with_distribution(distribution)])
}

/// Returns the percentage of packets in time. `delays` holds the delays of the arriving packets in
/// milliseconds; the other packets count as late.
fn in_time(delays: &[f64]) -> f64 {
    let bound = BOUND.as_secs_f64() * 1e3;
    100.0 * delays.iter().filter(|delay| **delay <= bound).count() as f64 / PACKETS as f64
}

/// Returns the delays of the arriving voice packets while 20 TCP flows fill the link, in milliseconds.
fn beside_tcp(network: &Network) -> Result<Vec<f64>, BenchError> {
    let server = iperf3::server(network, Some(ENDS))?;
    let client = iperf3::client(network, Some(ENDS), 60, &["--parallel", "20"])?;
    crate::interrupt::pause(Duration::from_secs(2))?;
    let delays = voice(network)?;
    drop((client, server));
    Ok(delays)
}

/// Sends the voice packets; returns the delays of the arriving packets in milliseconds.
fn voice(network: &Network) -> Result<Vec<f64>, BenchError> {
    let socket = |error| BenchError::system("open a UDP socket")(error);
    let receiver = network.s.within(|| UdpSocket::bind((RECEIVER, PORT)))?.map_err(socket)?;
    receiver.set_read_timeout(Some(Duration::from_millis(500))).map_err(socket)?;
    let sender = network.g.within(|| UdpSocket::bind(("0.0.0.0", 0)))?.map_err(socket)?;
    let start = Instant::now();
    let nanos = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (mut delays, mut packet) = (Vec::with_capacity(PACKETS as usize), [0; PAYLOAD]);
            while let Ok(length) = receiver.recv(&mut packet) {
                let sent = packet[..length].first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
                delays.push(nanos().saturating_sub(sent) as f64 / 1e6);
            }
            delays
        });
        for number in 0..PACKETS {
            check()?;
            let due = start + INTERVAL * number as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let mut packet = [0; PAYLOAD];
            packet[..8].copy_from_slice(&nanos().to_be_bytes());
            // A packet that can't be sent counts as lost.
            let _ = sender.send_to(&packet, (RECEIVER, PORT));
        }
        receiving.join().map_err(|_| BenchError::measurement("voice", "the receiving thread panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_are_late_or_lost_are_not_in_time() {
        let mut delays = vec![1.0; PACKETS as usize / 2];
        delays.extend([10.0, 10.1]);
        let wanted = 100.0 * (PACKETS / 2 + 1) as f64 / PACKETS as f64;
        assert!((in_time(&delays) - wanted).abs() < 1e-9);
    }
}
