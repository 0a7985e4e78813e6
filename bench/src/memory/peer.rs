//! Peer of plain IPv4 forwarding: a plain loop over packets in memory with DPDK's libraries. It classifies no
//! packets.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::Path;

use super::case::Case;
use super::setup::{Chosen, QueueSetup, Setup, frames, network};
use crate::BenchError;
use crate::family::Family;
use crate::peer::{Peer, compile};
use crate::testbed::scratch::Scratch;

const SOURCE: &str = include_str!("../../peers/dpdk_forward.c");
const LIBRARY: &str = "libdpdk";
/// Size of a frame in bytes.
const FRAME: usize = 60;
const STRIDE: usize = 64;
/// Batch sizes that the peer tries; the fastest one counts.
const BATCHES: [u32; 3] = [32, 64, 256];

/// Name of the peer in results.
pub(super) const NAME: &str = "DPDK's libraries in a loop, rte_fib";

/// Forwarding loop in a separate process.
pub(super) struct Forwarder {
    peer: Peer,
    batch: u32,
    _files: Scratch,
}

impl Forwarder {
    /// Starts the peer for a case. Returns `None` if the case is not plain IPv4 forwarding, or DPDK or a
    /// compiler is absent.
    pub fn start(case: Case, setup: Setup, packets: u64) -> Result<Option<Self>, BenchError> {
        let plain = Setup { flows_max: 0, routes: setup.routes, ..Setup::default() };
        if case.family != Family::V4 || setup != plain || setup.queue != QueueSetup::Fifo {
            return Ok(None);
        }
        let files = Scratch::new()?;
        let Some(program) = compile(&files, "dpdk_forward", SOURCE, LIBRARY)? else { return Ok(None) };
        let file = files.file("packets");
        write(&file, case, setup).map_err(BenchError::system("write packets for the peer"))?;
        let processor = std::thread::available_parallelism().map_or(0, |count| count.get() - 1);
        let peer = Peer::start(&program, &[&file.to_string_lossy(), &processor.to_string()])?;
        let mut forwarder = Self { peer, batch: BATCHES[0], _files: files };
        let mut least = f64::INFINITY;
        for batch in BATCHES {
            // The first run warms up the caches.
            forwarder.run("forward", packets / 4, batch)?;
            let time = forwarder.run("forward", packets / 4, batch)?;
            if time < least {
                (least, forwarder.batch) = (time, batch);
            }
        }
        Ok(Some(forwarder))
    }

    /// Returns the peer's nanoseconds per packet, without its packet source.
    pub fn forward(&mut self, packets: u64) -> Result<f64, BenchError> {
        let source = self.run("source", packets, self.batch)?;
        Ok(self.run("forward", packets, self.batch)? - source)
    }

    fn run(&mut self, what: &str, packets: u64, batch: u32) -> Result<f64, BenchError> {
        let packets = packets / u64::from(batch) * u64::from(batch);
        let answer = self.peer.ask_numbers(&format!("{what} {packets} {batch}"))?;
        let problem = |problem: &str| BenchError::measurement(NAME, problem);
        let Some(&[time, done]) = answer.as_deref() else {
            return Err(problem("the peer sent an invalid answer"));
        };
        if what == "forward" && done != packets {
            return Err(problem(&format!("the peer forwarded only {done} of {packets} packets")));
        }
        Ok(time as f64 / packets as f64)
    }
}

fn write(file: &Path, case: Case, setup: Setup) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(file)?);
    let frames = frames(case, setup, Chosen::All);
    for word in [setup.routes, frames.len() as u32] {
        file.write_all(&word.to_ne_bytes())?;
    }
    for route in 0..setup.routes {
        if let IpAddr::V4(address) = network(case.family, route) {
            file.write_all(&address.to_bits().to_ne_bytes())?;
        }
    }
    for frame in frames {
        let mut bytes = [0; STRIDE];
        bytes[..FRAME].copy_from_slice(&frame[..FRAME]);
        file.write_all(&bytes)?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_forwards_every_packet() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let setup = Setup { flows_max: 0, routes: 10, ..Setup::default() };
        let case = Case { family: Family::V4, flows: 100 };
        let Some(mut forwarder) = Forwarder::start(case, setup, 10_240).unwrap() else {
            return println!("skipped: no compiler or no DPDK");
        };
        forwarder.forward(10_240).unwrap();
        assert!(Forwarder::start(case, Setup::default(), 10_240).unwrap().is_none());
    }
}
