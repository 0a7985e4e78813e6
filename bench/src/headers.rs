//! `headers`: packets whose headers cost the parsers the most work, compared with plain packets of the same
//! length. Measures the pipeline without devices.
//!
//! The compared figure is the 99th percentile of a batch's time, minus the generator's cost. For long
//! packets, most of this time is the copying of frames, which both kinds of packets need equally.

use std::time::Instant;

use millrace_port::memory::Generator;
use millrace_wire::MacAddr;
use millrace_wire::checksum::Sum;

use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{IN_MAC, MTU, OUT_MAC, Pipeline, Setup, Source, frame};
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of packets per batch.
const BATCH: u64 = 256;
/// Number of batches per repetition.
const BATCHES: usize = 1000;
/// Number of repetitions; the result is their median.
const REPETITIONS: usize = 9;
/// Promised maximum: time of a packet with any headers, as a multiple of a plain packet's time.
const LIMIT: f64 = 2.0;

/// Length of the link header in bytes.
const LINK: usize = 14;
const FIXED: usize = 40;

const CASE: Case = Case { family: Family::V6, flows: 1 };

/// Runs all cases of the benchmark `headers`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let packets = [
        ("100 destination options headers", chained()),
        ("hop-by-hop options header with 1,006 octets of padding", padded()),
        ("37 nested packets", nested()),
    ];
    packets.into_iter().map(|(name, frame)| compare(name, frame, options)).collect()
}

/// Measures the time of a packet and the time of a plain packet of the same length, alternately.
fn compare(name: &str, frame: Vec<u8>, options: &mut Options<'_>) -> Result<Measurement, BenchError> {
    let mut plain = Kind::new(plain(frame.len()))?;
    let mut other = Kind::new(frame)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        check()?;
        theirs.push(plain.time());
        ours.push(other.time());
    }
    plain.pipeline.check(CASE)?;
    other.pipeline.check(CASE)?;
    (options.progress)(&format!(
        "{name}: {:.1} ns per packet at the 99th percentile, plain {:.1}",
        median(&ours),
        median(&theirs)
    ));
    Ok(Measurement::median_of(name, &ours, "ns/packet, 99th percentile of batches")
        .beside_pairs("plain packet of equal length", &ours, &theirs)
        .promising_ratio(Bound::AtMost, LIMIT))
}

/// Setup for one kind of packet: a router that receives only such packets, and their generator.
struct Kind {
    pipeline: Pipeline,
    source: Source,
}

impl Kind {
    fn new(frame: Vec<u8>) -> Result<Self, BenchError> {
        let input = || Generator::new(MacAddr(IN_MAC), MTU, vec![frame.clone()], u64::MAX);
        let output = Generator::new(MacAddr(OUT_MAC), MTU, Vec::new(), 0);
        let mut pipeline = Pipeline::between(CASE, Setup::default(), Box::new(input()), Box::new(output))?;
        pipeline.forward(100 * BATCH);
        Ok(Self { pipeline, source: Source::of(input())? })
    }

    /// Returns the nanoseconds per packet: the 99th percentile over batches, minus the generator's median.
    fn time(&mut self) -> f64 {
        let of_batch = |work: &mut dyn FnMut() -> u64| {
            let mut times: Vec<f64> = (0..BATCHES)
                .map(|_| {
                    let start = Instant::now();
                    let packets = work();
                    start.elapsed().as_secs_f64() * 1e9 / packets as f64
                })
                .collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let bare = of_batch(&mut || self.source.make(BATCH))[BATCHES / 2];
        of_batch(&mut || self.pipeline.forward(BATCH))[BATCHES * 99 / 100] - bare
    }
}

/// Returns an IPv6 frame through the router; `payload` follows the fixed header and begins with a
/// `next_header` header.
fn with_payload(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame(Family::V6, 30, 0)[..LINK + FIXED].to_vec();
    bytes[LINK + 4..LINK + 6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    bytes[LINK + 6] = next_header;
    bytes.extend(payload);
    bytes
}

/// Returns a UDP datagram with `data` bytes of data. Its checksum fits the addresses of the frame.
fn udp(data: usize) -> Vec<u8> {
    let length = (8 + data) as u16;
    let mut udp = [1024, 9, length, 0].map(u16::to_be_bytes).concat();
    udp.resize(usize::from(length), 0);
    let addresses = &frame(Family::V6, 30, 0)[LINK + 8..LINK + FIXED];
    let sum = Sum::new().bytes(addresses).word(17).word(length).bytes(&udp).checksum();
    udp[6..8].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
    udp
}

/// Returns a plain packet in a frame of a given length.
fn plain(length: usize) -> Vec<u8> {
    with_payload(17, &udp(length - LINK - FIXED - 8))
}

/// Returns a packet with 100 headers of destination options, each with four octets of padding.
fn chained() -> Vec<u8> {
    let header = |number: usize| [if number == 99 { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0];
    let headers: Vec<u8> = (0..100).flat_map(header).collect();
    with_payload(60, &[headers, udp(8)].concat())
}

/// Returns a packet with hop-by-hop options that consist of one-octet padding only.
fn padded() -> Vec<u8> {
    let header = [&[17, 125][..], &[0; 1006]].concat();
    with_payload(0, &[header, udp(8)].concat())
}

/// Returns a packet of at most 1,500 bytes with as many nested packets as fit.
fn nested() -> Vec<u8> {
    let inner = (0..35).fold(with_payload(17, &udp(8))[LINK..].to_vec(), |inner, _| {
        with_payload(41, &inner)[LINK..].to_vec()
    });
    with_payload(41, &inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_packet_comes_out_at_the_other_port() {
        for bytes in [plain(900), chained(), padded(), nested()] {
            assert!(bytes.len() <= usize::from(MTU) + LINK, "{} bytes", bytes.len());
            let mut kind = Kind::new(bytes).unwrap();
            kind.pipeline.check(CASE).unwrap();
        }
    }
}
