//! TCP stream between two hosts with default settings, through a pair of ports.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use millrace_packet::{Batch, Pool};
use millrace_port::Port;

use super::{Host, run, veth};

const BYTES: usize = 8 << 20;
const NOW: millrace_units::Instant = millrace_units::Instant::ZERO;

/// Two hosts, with links named `r1` and `r2` to this namespace. Offloads have the kernel's defaults, so the
/// receiver's kernel checks every checksum that a port completed.
pub struct Stream {
    client: Host,
    server: Host,
}

impl Stream {
    pub fn prepare() -> Self {
        Self { server: host("r2", "h2", "10.77.0.2", serve), client: host("r1", "h1", "10.77.0.1", send) }
    }

    /// Carries frames between the ports until the stream has arrived. Panics if it doesn't arrive in time.
    pub fn run(self, pool: &Pool, left: &mut dyn Port, right: &mut dyn Port) {
        self.server.start();
        self.client.start();
        let mut batch = Batch::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !(self.client.is_finished() && self.server.is_finished()) {
            assert!(Instant::now() < deadline, "{:?} {:?}", left.counters(), right.counters());
            left.receive(pool, NOW, &mut batch);
            right.transmit(pool, NOW, &mut batch);
            right.flush(pool, NOW);
            right.receive(pool, NOW, &mut batch);
            left.transmit(pool, NOW, &mut batch);
            left.flush(pool, NOW);
        }
        self.client.join();
        self.server.join();
    }
}

fn host(near: &str, far: &'static str, address: &'static str, work: fn()) -> Host {
    let host = Host::new(move || {
        run(&format!("ip addr add {address}/24 dev {far}"));
        run(&format!("ip link set {far} up"));
        run("ip link set lo up");
        work();
    });
    veth(near, far, 1500, 1);
    host.take(far);
    host
}

fn byte(n: usize) -> u8 {
    (n * 7 / 5) as u8
}

fn serve() {
    let (mut stream, _) = TcpListener::bind("10.77.0.2:5000").unwrap().accept().unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() == BYTES && bytes.iter().enumerate().all(|(n, found)| *found == byte(n)));
    stream.write_all(b"intact").unwrap();
}

fn send() {
    let mut tries = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        TcpStream::connect("10.77.0.2:5000")
    });
    let mut stream = tries.find_map(Result::ok).expect("the server listens");
    let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
    stream.write_all(&bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "intact");
}
