//! Compares two ways to send frames from a worker to a veth device, by the number of frames per call. One is
//! the AF_XDP socket. The other is batch sending ([`BatchSender`]), by an XDP program that runs on the
//! frames.
//!
//! The time of each way covers all work of a worker's port, from the packets to their freed memory. On veth,
//! the far end receives on the same processor, so the times also include the far end's work.

use std::time::{Duration, Instant as Clock};

use millrace_offload::BatchSender;
use millrace_packet::{Batch, Pool};
use millrace_port::af_xdp::{LEAST_BATCH, Options as PortOptions};
use millrace_port::{AfXdp, Port};
use millrace_units::Instant;
use millrace_wire::MacAddr;
use nix::unistd::Pid;

use super::{Size, frame};
use crate::interrupt::check;
use crate::statistics::median;
use crate::testbed::arrivals::WORKER;
use crate::testbed::network::{Network, SINK};
use crate::testbed::process::dedicate;
use crate::testbed::sink::{no_sink, sink};
use crate::{BenchError, Measurement, Options};

pub(super) const CASE: &str = "crossover";
/// Numbers of frames per call that are measured.
const COUNTS: [usize; 12] = [1, 2, 4, 8, 12, 16, 20, 24, 32, 64, 128, 256];
/// Number of repetitions per number of frames. The two ways alternate.
const ROUNDS: usize = 7;
/// Number of frames per repetition.
const FRAMES: usize = 4096;
const CALLS: usize = 128;
/// Number of memory frames in the pool.
const MEMORY: u32 = 8192;
const MTU: u16 = 1500;
/// Maximum share of sent frames that may be lost: 1 in this number. A lost frame costs less than an arriving
/// frame, so losses would falsify the time.
const LOST: u64 = 1000;

/// Times of both ways to send, for one number of frames per call: nanoseconds per frame, one value per
/// repetition.
#[derive(Clone, Debug, Default)]
struct Point {
    frames: usize,
    socket: Vec<f64>,
    batch: Vec<f64>,
}

/// Measures both ways to send, for all numbers of frames per call. Also determines the number of frames from
/// which batch sending is cheaper.
pub(super) fn measure(
    network: &Network,
    size: Size,
    options: &mut Options<'_>,
) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    let by_program = {
        let _sink = sink(&network.s, "s0")?;
        points_of(network, size)?
    };
    network.s.shell("ethtool -K s0 gro on")?;
    let by_host = points_of(network, size);
    network.s.shell("ethtool -K s0 gro off")?;
    for (name, points) in [("peer with an XDP program", by_program), ("peer with GRO", by_host?)] {
        results.extend(told(&format!("{CASE}, {}, to a {name}", size.words()), &points, options));
    }
    Ok(results)
}

fn told(case: &str, points: &[Point], options: &mut Options<'_>) -> Vec<Measurement> {
    let measured = |point: &Point| {
        let frames = point.frames;
        Measurement::median_of(format!("{case}, {frames} frames per call: batch"), &point.batch, "ns")
            .beside_runs("socket", &point.socket)
    };
    let mut results: Vec<Measurement> = points.iter().map(measured).collect();
    let medians: Vec<(f64, f64)> = points
        .iter()
        .map(|point| (point.frames as f64, median(&point.batch) - median(&point.socket)))
        .collect();
    match crossover(&medians) {
        Some(frames) => {
            (options.progress)(&format!(
                "{case}: a batch is cheaper from {frames:.1} frames on; the router uses a batch from {LEAST_BATCH} on"
            ));
            results.push(
                Measurement::of(format!("{case}: break-even number of frames"), frames, "frames")
                    .beside("threshold of the router", LEAST_BATCH as f64),
            );
        }
        None => {
            (options.progress)(&format!("{case}: batch or socket, one is cheaper for all numbers of frames"))
        }
    }
    results
}

/// Returns the number of frames per call from which batch sending is cheaper. `points`: number of frames, and
/// time of batch sending minus time of the socket. Interpolates linearly between the points. Returns `None`
/// if the last difference is not below 0, or if no difference is above 0 (Karlin's thesis, section 3.3.1).
fn crossover(points: &[(f64, f64)]) -> Option<f64> {
    let last_above = points.iter().rposition(|(_, more)| *more > 0.0)?;
    let [(from, above), (to, below)] = [points[last_above], *points.get(last_above + 1)?];
    Some(from + (to - from) * above / (above - below))
}

fn points_of(network: &Network, size: Size) -> Result<Vec<Point>, BenchError> {
    let index = network.r.index("r2")?;
    let arrived = || network.s.received("s0");
    let before = arrived()?;
    let (points, sent) = network.r.within(|| {
        dedicate(Pid::from_raw(0), WORKER)?;
        Ways::open(index, &frame(SINK, size))?.all()
    })??;
    let arrived = arrived()? - before;
    if arrived + sent / LOST < sent {
        let problem = format!("only {arrived} of {sent} frames arrived");
        return Err(BenchError::measurement(CASE, problem));
    }
    Ok(points)
}

/// Both ways to send frames to one device: the socket and the batch sender.
struct Ways<'a> {
    frame: &'a [u8],
    pool: Pool,
    port: AfXdp,
    sender: BatchSender,
    sent: u64,
}

impl<'a> Ways<'a> {
    fn open(index: u32, frame: &'a [u8]) -> Result<Self, BenchError> {
        let failed = |error: &dyn std::error::Error| BenchError::measurement(CASE, error.to_string());
        let pool = Pool::new(MEMORY).map_err(|error| failed(&error))?;
        let options = PortOptions::new("r2", index, MacAddr([2, 0, 0, 0, 2, 2]), MTU);
        let port = AfXdp::open(&pool, options).map_err(|error| failed(&error))?;
        let sender = BatchSender::new(index).map_err(no_sink)?;
        Ok(Self { frame, pool, port, sender, sent: 0 })
    }

    /// Measures all numbers of frames; also returns the total number of sent frames.
    fn all(mut self) -> Result<(Vec<Point>, u64), BenchError> {
        let mut points = COUNTS.map(|frames| Point { frames, ..Point::default() });
        for round in 0..=ROUNDS {
            for point in &mut points {
                check()?;
                let socket = self.repeat(point.frames, Self::by_socket)?;
                let batch = self.repeat(point.frames, Self::by_batch)?;
                // Skip the first repetition, which warms up the caches and raises the processor's clock rate.
                if round > 0 {
                    point.socket.push(socket);
                    point.batch.push(batch);
                }
            }
        }
        Ok((points.into(), self.sent))
    }

    /// Returns the nanoseconds per frame for a given number of frames per call.
    fn repeat(
        &mut self,
        frames: usize,
        send: fn(&mut Self, &mut Batch) -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        let (mut batch, mut spent) = (Batch::new(), Duration::ZERO);
        let calls = FRAMES.div_ceil(frames).max(CALLS);
        for _ in 0..calls {
            for _ in 0..frames {
                let packet = self.pool.packet_from(self.frame);
                let packet = packet.ok_or_else(|| BenchError::measurement(CASE, "no packet memory"))?;
                // Pushing can't fail: a batch has room for the largest number of frames per call.
                let _ = batch.push(packet);
            }
            let start = Clock::now();
            send(self, &mut batch)?;
            spent += start.elapsed();
        }
        let sent = (calls * frames) as u64;
        self.sent += sent;
        Ok(spent.as_secs_f64() * 1e9 / sent as f64)
    }

    fn by_socket(&mut self, batch: &mut Batch) -> Result<(), BenchError> {
        self.port.transmit(&self.pool, Instant::ZERO, batch);
        self.port.flush(&self.pool, Instant::ZERO);
        Ok(())
    }

    /// Sends a batch by the batch sender, as the router's ports do. If the packets exceed one call, makes
    /// further calls.
    fn by_batch(&mut self, batch: &mut Batch) -> Result<(), BenchError> {
        let mut rest = &batch[..];
        while !rest.is_empty() {
            let given =
                rest.iter().take_while(|packet| self.sender.put(packet.len(), packet.frames())).count();
            if given == 0 {
                return Err(BenchError::measurement(CASE, "the frame is too long for a batch"));
            }
            self.sender.send()?;
            rest = &rest[given..];
        }
        batch.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_between_points_cross_where_the_difference_is_nothing() {
        assert_eq!(crossover(&[(1.0, 5000.0), (8.0, 300.0), (16.0, -100.0), (32.0, -200.0)]), Some(14.0));
        assert_eq!(crossover(&[(1.0, 5.0), (2.0, -1.0), (4.0, 3.0), (8.0, -3.0)]), Some(6.0), "for good");
        assert_eq!(crossover(&[(1.0, 5.0), (2.0, 1.0)]), None);
        assert_eq!(crossover(&[(1.0, -5.0), (2.0, -1.0)]), None);
    }

    #[test]
    fn frames_arrive_by_socket_and_by_batch() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        if crate::testbed::network::is_skipped() {
            return;
        }
        let network = Network::new().unwrap();
        let _sink = sink(&network.s, "s0").unwrap();
        let index = network.r.index("r2").unwrap();
        let before = network.s.received("s0").unwrap();
        let sent = network.r.within(|| {
            let frame = frame(SINK, Size::Longest);
            let mut ways = Ways::open(index, &frame).unwrap();
            // 256 long frames need more than one call.
            for (frames, by_batch) in [(20, false), (20, true), (256, true)] {
                let send = if by_batch { Ways::by_batch } else { Ways::by_socket };
                assert!(ways.repeat(frames, send).unwrap() > 0.0);
            }
            ways.sent
        });
        assert!(network.s.received("s0").unwrap() - before >= sent.unwrap());
    }
}
