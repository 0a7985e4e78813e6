//! `connections`: cost and memory of the connection table alone, and assured connections in a flood of new ones.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant as Clock};

use millrace_connection::{
    ConnectionConfig, ConnectionRef, ConnectionTable, EndReason, Fragment, Packet, Refusal, Timeouts,
    Transport,
};
use millrace_packet::FlowKey;
use millrace_testkit::{Random, resident};
use millrace_units::{Instant, PortId};

use crate::interrupt::check;
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options};

/// Connections of the cases with many, and of the largest table.
const MANY: u32 = 128 << 10;
const LARGEST: u32 = 2_000_000;
/// Promised maximum of the memory of a connection, in bytes.
const MOST_BYTES: f64 = 192.0;
/// Flood: new connections per second, and its virtual time in seconds.
const FLOOD: u32 = 1_000_000;
const SECONDS: u64 = 60;
/// Assured connections during the flood, and connections in the table.
const ASSURED: u32 = 100_000;
const ROOM: u32 = 1_000_000;
/// Repetitions; the result is their median.
const REPETITIONS: usize = 7;
/// Packets of a repetition.
const PACKETS: u32 = 1 << 20;

/// Flags of a segment of TCP.
const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;

/// Packet with the octets that the table reads.
struct Made {
    key: FlowKey,
    header: [u8; 20],
}

impl Made {
    /// Makes a segment from port `from` of host `source` to port `to` of host `destination`.
    fn segment(
        (source, from): (u32, u16),
        (destination, to): (u32, u16),
        flags: u8,
        numbers: (u32, u32),
    ) -> Self {
        let [source, destination] = [source, destination].map(Ipv4Addr::from_bits);
        let mut header = [0; 20];
        header[4..8].copy_from_slice(&numbers.0.to_be_bytes());
        header[8..12].copy_from_slice(&numbers.1.to_be_bytes());
        (header[12], header[13], header[14]) = (0x50, flags, 0x80);
        Self { key: FlowKey::v4(source, destination, 6, (from, to), PortId(1)), header }
    }

    fn packet(&self) -> Packet<'_> {
        let (octets, length) = (&self.header[..], self.header.len());
        Packet { key: &self.key, transport: Transport { octets, length, fragment: Fragment::Whole } }
    }
}

/// Client and server of a connection with a number.
fn ends(number: u32) -> ((u32, u16), (u32, u16)) {
    let client = (0x0a00_0000 | number >> 8, 1024 + (number & 0xff) as u16);
    (client, (0xc0a8_0001, 80))
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for part in [packets, openings, memory, flood] {
        check()?;
        for result in part()? {
            (options.progress)(&format!("{}: {:.1} {}", result.case, result.ours, result.unit));
            results.push(result);
        }
    }
    Ok(results)
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::measurement("services", error.to_string())
}

fn table(maximum: u32) -> Result<ConnectionTable, BenchError> {
    let (per_source, timeouts) = (maximum, Timeouts::default());
    let config = ConnectionConfig { maximum, per_source, timeouts, adopts: false, seed: 0x0bad_5eed };
    ConnectionTable::new(&config, Instant::ZERO).map_err(failed)
}

/// Opens a connection by its three first segments.
fn open(table: &mut ConnectionTable, number: u32, now: Instant) -> Result<ConnectionRef, BenchError> {
    let (client, server) = ends(number);
    let mut connection = ConnectionRef::default();
    for segment in [
        Made::segment(client, server, SYN, (10, 0)),
        Made::segment(server, client, SYN_ACK, (70, 11)),
        Made::segment(client, server, ACK, (11, 71)),
    ] {
        let known = table.track(&segment.packet(), connection, now).known;
        connection = known.map_err(|_| failed("a handshake is refused"))?.connection;
    }
    Ok(connection)
}

/// Packets of established connections, whose flows know them.
fn packets() -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for (connections, name) in [(1, "1 connection"), (MANY, "128 K connections")] {
        let mut table = table(MANY)?;
        let refs: Vec<_> = (0..connections)
            .map(|number| open(&mut table, number, Instant::ZERO))
            .collect::<Result<_, _>>()?;
        let mut random = Random::new(7);
        let chosen: Vec<u32> = (0..PACKETS).map(|_| random.below(connections as usize) as u32).collect();
        let mut times = Vec::new();
        for _ in 0..REPETITIONS {
            check()?;
            let start = Clock::now();
            for number in &chosen {
                let (client, server) = ends(*number);
                let segment = Made::segment(client, server, ACK, (11, 71));
                black_box(table.track(&segment.packet(), refs[*number as usize], Instant::ZERO));
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(PACKETS));
        }
        let case = format!("connections, packet of an established one, {name}");
        results.push(Measurement::of(case, median(&times), "ns/packet"));
    }
    Ok(results)
}

/// New connections per second: all three segments of the handshake.
fn openings() -> Result<Vec<Measurement>, BenchError> {
    let mut rates = Vec::new();
    for _ in 0..REPETITIONS {
        check()?;
        let mut table = table(MANY)?;
        let start = Clock::now();
        for number in 0..MANY {
            open(&mut table, number, Instant::ZERO)?;
        }
        rates.push(f64::from(MANY) / start.elapsed().as_secs_f64());
    }
    Ok(vec![Measurement::of("connections, opened per second", median(&rates), "connections/s")])
}

fn memory() -> Result<Vec<Measurement>, BenchError> {
    let before = resident(std::process::id());
    let mut table = table(LARGEST)?;
    for number in 0..LARGEST {
        open(&mut table, number, Instant::ZERO)?;
    }
    let bytes = resident(std::process::id()).saturating_sub(before) as f64 / f64::from(LARGEST);
    Ok(vec![
        Measurement::of("connections, memory of each of 2 million", bytes, "bytes")
            .promising(Bound::AtMost, MOST_BYTES),
    ])
}

/// A flood of new connections from random sources, in virtual time, with expiry as in a worker.
fn flood() -> Result<Vec<Measurement>, BenchError> {
    let mut table = table(ROOM)?;
    let assured: Vec<_> =
        (0..ASSURED).map(|number| open(&mut table, number, Instant::ZERO)).collect::<Result<_, _>>()?;
    let (mut random, mut refused, mut lost) = (Random::new(9), 0u64, 0u64);
    let start = Clock::now();
    for millisecond in 0..SECONDS * 1000 {
        if millisecond % 1000 == 0 {
            check()?;
        }
        let now = Instant::ZERO + Duration::from_millis(millisecond);
        for _ in 0..FLOOD / 1000 {
            let bits = random.bits();
            let source = (0x0b00_0000 | (bits as u32 & 0x00ff_ffff), (bits >> 32) as u16);
            let syn = Made::segment(source, (0xc0a8_0001, 80), SYN, (10, 0));
            let tracked = table.track(&syn.packet(), ConnectionRef::default(), now);
            refused += u64::from(tracked.known == Err(Refusal::TableFull));
            lost += u64::from(tracked.ended.is_some_and(|ended| ended.reason != EndReason::Recycled));
        }
        let mut budget = FLOOD / 1000;
        while table.expire(now, &mut budget).is_some() {}
    }
    let new = f64::from(FLOOD) * SECONDS as f64;
    let rate = new / start.elapsed().as_secs_f64();
    let now = Instant::ZERO + Duration::from_secs(SECONDS);
    let lives = |number: &u32| {
        let (client, server) = ends(*number);
        let segment = Made::segment(client, server, ACK, (11, 71));
        table.track(&segment.packet(), assured[*number as usize], now).known.is_ok()
    };
    let alive = (0..ASSURED).filter(lives).count();
    Ok(vec![
        Measurement::of(
            "connections, flood: assured ones lost",
            f64::from(ASSURED) - alive as f64,
            "connections",
        )
        .promising(Bound::AtMost, 0.0),
        Measurement::of("connections, flood: new ones refused", (refused + lost) as f64, "connections")
            .promising(Bound::AtMost, 0.0),
        Measurement::of("connections, flood: new ones per second", rate, "connections/s"),
    ])
}
