//! Greedy flows, each of which sends more than its share of the link.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::ENDS;
use crate::BenchError;
use crate::testbed::network::{Network, RECEIVER};
use crate::testbed::process::dedicate;

/// UDP or TCP port of the first flow. The other flows use the following ports.
pub(super) const FIRST_PORT: u16 = 9000;
const FLOWS: u16 = 3;
/// Payload bytes of a packet: the maximum for an Ethernet frame.
const PAYLOAD: usize = 1472;
/// Total sending rate as a multiple of the link rate. The flows get parts of this rate in the ratio 1:2:5, by
/// `ORDER`, which assigns each of eight packets to a flow.
const EXCESS: f64 = 1.4;
const ORDER: [u16; 8] = [2, 1, 2, 0, 2, 1, 2, 2];
/// Time that the sender sleeps between two bursts.
const INTERVAL: Duration = Duration::from_micros(300);
const BURST: u64 = 64;
/// Read timeout of a connection. After a timeout, the thread checks whether to end.
const LOOK: Duration = Duration::from_millis(200);

/// Transport protocol of the flows.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Greedy {
    /// UDP: slightly more than the flow's share, however many packets are lost.
    Udp,
    /// TCP: as much as the kernel's congestion control allows.
    Tcp,
}

impl Greedy {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// Runs `work` while the flows together send more than the link's rate of `link` Mb/s.
pub(super) fn while_greedy<T>(
    network: &Network,
    greedy: Greedy,
    link: u32,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    match greedy {
        Greedy::Udp => {
            let _ends = unread(network)?;
            while_flooded(network, link, &ORDER.map(|flow| FIRST_PORT + flow), work)
        }
        Greedy::Tcp => while_transferred(network, work),
    }
}

/// Runs `work` while one UDP flow sends more than the link's rate of `link` Mb/s.
pub(super) fn while_one_floods<T>(
    network: &Network,
    link: u32,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let _ends = unread(network)?;
    while_flooded(network, link, &[FIRST_PORT], work)
}

/// Opens a socket per flow. The sockets receive packets, but nobody reads them.
fn unread(network: &Network) -> Result<Vec<UdpSocket>, BenchError> {
    let bind = |port: u16| UdpSocket::bind((RECEIVER, port));
    network.s.within(|| ports().map(bind).collect::<Result<_, _>>())?.map_err(socket)
}

fn socket(error: std::io::Error) -> BenchError {
    BenchError::system("open a socket")(error)
}

fn ports() -> impl Iterator<Item = u16> {
    FIRST_PORT..FIRST_PORT + FLOWS
}

/// Runs `work` while a sender sends UDP packets to the given ports in rotation, at more than the link's rate
/// of `link` Mb/s.
pub(super) fn while_flooded<T>(
    network: &Network,
    link: u32,
    to: &[u16],
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let sender = network.g.within(|| UdpSocket::bind(("0.0.0.0", 0)))?.map_err(socket)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            at_ends();
            let (start, rate) = (Instant::now(), EXCESS * f64::from(link) * 1e6 / (8.0 * PAYLOAD as f64));
            let mut sent = 0;
            while !done.load(Ordering::Relaxed) {
                let due = (start.elapsed().as_secs_f64() * rate) as u64;
                sent = sent.max(due.saturating_sub(BURST));
                for packet in sent..due {
                    let port = to[packet as usize % to.len()];
                    // Ignore errors: a packet that can't be sent now would only be dropped at the router.
                    let _ = sender.send_to(&[0; PAYLOAD], (RECEIVER, port));
                }
                sent = due;
                std::thread::sleep(INTERVAL);
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Binds the calling thread to the processor of senders and receivers.
fn at_ends() {
    // Without permission to bind, the figures are only noisier.
    let _ = dedicate(Pid::from_raw(0), ENDS);
}

fn while_transferred<T>(
    network: &Network,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let listen = |port: u16| TcpListener::bind((RECEIVER, port));
    let listeners: Vec<TcpListener> =
        network.s.within(|| ports().map(listen).collect::<Result<_, _>>())?.map_err(socket)?;
    let connect = |port: u16| TcpStream::connect((RECEIVER, port));
    let senders: Vec<TcpStream> =
        network.g.within(|| ports().map(connect).collect::<Result<_, _>>())?.map_err(socket)?;
    let accept = |listener: &TcpListener| listener.accept().map(|(stream, _)| stream);
    let receivers: Vec<TcpStream> = listeners.iter().map(accept).collect::<Result<_, _>>().map_err(socket)?;
    for stream in senders.iter().chain(&receivers) {
        stream.set_write_timeout(Some(LOOK)).map_err(socket)?;
        stream.set_read_timeout(Some(LOOK)).map_err(socket)?;
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut stream in &senders {
            let done = &done;
            // Ignore errors: they come from the timeout, or from the end of the connection.
            scope.spawn(move || {
                at_ends();
                while !done.load(Ordering::Relaxed) {
                    let _ = stream.write(&[0; 16_384]);
                }
            });
        }
        for mut stream in &receivers {
            let (done, mut bytes) = (&done, [0; 65_536]);
            scope.spawn(move || {
                at_ends();
                while !done.load(Ordering::Relaxed) {
                    let _ = stream.read(&mut bytes);
                }
            });
        }
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}
