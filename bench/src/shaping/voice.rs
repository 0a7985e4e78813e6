//! A voice-like flow through a link that is full.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::{Discipline, ENDS, ROUTER, htb};
use crate::interrupt::check;
use crate::network::{Network, RECEIVER};
use crate::router::Router;
use crate::{BenchError, Bound, Measurement, Options, iperf3};

/// The link in megabits a second.
const LINK: u32 = 10;
/// 64 kb/s: 80 bytes every 10 ms.
const PAYLOAD: usize = 80;
const INTERVAL: Duration = Duration::from_millis(10);
const PACKETS: u64 = 2000;
/// How long a packet may take.
const BOUND: Duration = Duration::from_millis(10);
/// Promised: percent of the packets within the bound.
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
    let ours = beside_tcp(network)?;
    router.stop()?;
    (options.progress)(&format!("voice beside 20 TCP flows: {ours:.2} % within 10 ms, HTB {kernel:.2} %"));
    let case = "voice of 64 kb/s beside 20 TCP flows at 10 Mb/s, within 10 ms";
    Ok(vec![Measurement::of(case, ours, "%").beside("HTB", kernel).promising(Bound::AtLeast, LIMIT)])
}

/// Percent of the voice packets that come within the bound while 20 TCP flows fill the link.
fn beside_tcp(network: &Network) -> Result<f64, BenchError> {
    let server = iperf3::server(network, Some(ENDS))?;
    let client = iperf3::client(network, Some(ENDS), 60, &["--parallel", "20"])?;
    crate::interrupt::pause(Duration::from_secs(2))?;
    let within = voice(network)?;
    drop((client, server));
    Ok(100.0 * within as f64 / PACKETS as f64)
}

/// Sends the packets; how many came in time.
fn voice(network: &Network) -> Result<u64, BenchError> {
    let socket = |error| BenchError::system("open a UDP socket")(error);
    let receiver = network.s.within(|| UdpSocket::bind((RECEIVER, PORT)))?.map_err(socket)?;
    receiver.set_read_timeout(Some(Duration::from_millis(500))).map_err(socket)?;
    let sender = network.g.within(|| UdpSocket::bind(("0.0.0.0", 0)))?.map_err(socket)?;
    let start = Instant::now();
    let nanos = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (mut in_time, mut packet) = (0, [0; PAYLOAD]);
            while let Ok(length) = receiver.recv(&mut packet) {
                let sent = packet[..length].first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
                in_time += u64::from(nanos().saturating_sub(sent) <= BOUND.as_nanos() as u64);
            }
            in_time
        });
        for number in 0..PACKETS {
            check()?;
            let due = start + INTERVAL * number as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let mut packet = [0; PAYLOAD];
            packet[..8].copy_from_slice(&nanos().to_be_bytes());
            // One that can't be sent is one that does not come.
            let _ = sender.send_to(&packet, (RECEIVER, PORT));
        }
        receiving.join().map_err(|_| BenchError::measurement("voice", "its receiver failed"))
    })
}
