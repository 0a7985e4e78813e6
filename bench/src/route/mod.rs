//! `route`: route tables of the Internet's size, compared with DPDK's tables.
//!
//! The tables have a million IPv4 or 200,000 IPv6 prefixes over 256 routes. Lookups come in batches of 256
//! addresses. The addresses hit all prefixes equally often (random), or some prefixes far more often than
//! others (Zipf). Millrace's table and the peer's take turns on one processor.

mod contention;
pub(crate) mod counted;
mod fib;
mod ours;
mod tables;

use millrace_testkit::resident;

use self::contention::Pace;
use self::fib::Fib;
use self::ours::{Addresses, Ours};
use self::tables::Prefix;
use crate::family::Family;
use crate::interrupt::check;
use crate::measurement::Bound;
use crate::statistics::median;
use crate::testbed::process::{Processor, SessionFirst, on_processor};
use crate::{BenchError, Measurement, Options};

/// Number of pairs of runs; the result is their median ratio.
const PAIRS: usize = 15;
/// Divisor that selects the updated prefixes: the measurement of updates removes and adds every prefix whose
/// number is a multiple of it. With more prefixes, DPDK 22.11 fails: its `rte_fib6` counts room freed by
/// deletions as used, and is full after about 150,000 deletions.
const UPDATED: usize = 10;
/// Promised maximum: milliseconds to update one prefix that is longer than 8 bits.
const SLOWEST: f64 = 1.0;
/// Names of the two address streams.
const STREAMS: [&str; 2] = ["random", "Zipf"];

/// Runs all cases of the benchmark `route`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let _first = SessionFirst::begin();
    let last = std::thread::available_parallelism().map_or(0, |count| count.get() - 1);
    let mut results = Vec::new();
    for (family, count) in [(Family::V4, 1_000_000), (Family::V6, 200_000)] {
        let mut case = Case { family, processor: last, options, results: &mut results };
        case.run(count)?;
    }
    Ok(results)
}

struct Case<'a, 'b> {
    family: Family,
    processor: Processor,
    options: &'a mut Options<'b>,
    results: &'a mut Vec<Measurement>,
}

impl Case<'_, '_> {
    fn run(&mut self, count: usize) -> Result<(), BenchError> {
        let table = tables::table(self.family, count);
        let bits = [tables::random(&table, tables::ADDRESSES), tables::zipf(&table)];
        self.tell(&format!("{} prefixes with {} different routes", table.len(), tables::ROUTES));
        let before = resident(std::process::id());
        let mut ours = Ours::new(self.family)?;
        table.iter().try_for_each(|prefix| ours.insert(prefix))?;
        let memory = resident(std::process::id()).saturating_sub(before);
        let peer = Fib::start(self.family, &table, &[&bits[0], &bits[1]], self.processor)?;
        if peer.is_none() {
            self.tell("the peer is left out: it needs a C compiler, pkg-config and DPDK (package dpdk-dev)");
        }
        let streams = bits.map(|bits| Addresses::new(self.family, &bits));
        let mut pair = Pair { ours, peer };
        for (number, stream) in streams.iter().enumerate() {
            self.look_up(&mut pair, number, stream)?;
        }
        self.update(&mut pair, &table)?;
        self.memory(&pair, memory);
        pair.peer = None;
        self.slowest(&mut pair.ours, &table)?;
        self.contention(&mut pair.ours, &table, &streams[0])
    }

    fn tell(&mut self, what: &str) {
        (self.options.progress)(&format!("{}: {what}", self.family));
    }

    fn add(&mut self, measured: Measurement) {
        let case = format!("{}, {}", self.family, measured.case);
        self.results.push(Measurement { case, ..measured });
    }

    /// Looks up a stream in both tables alternately.
    fn look_up(&mut self, pair: &mut Pair, number: usize, stream: &Addresses) -> Result<(), BenchError> {
        let reader = pair.ours.fib.reader();
        let way = pair.peer.as_mut().map(|peer| peer.best_way(number)).transpose()?;
        let (mut ours, mut peers, mut single) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            check()?;
            let (time, sum) = on_processor(self.processor, || stream.look_up(&reader))?;
            ours.push(time);
            if let (Some(peer), Some(way)) = (&mut pair.peer, way)
                && let Some((peers_time, peers_sum)) = peer.look_up(number, way)?
            {
                if peers_sum != sum {
                    let case = self.family.to_string();
                    return Err(BenchError::measurement(
                        &case,
                        "DPDK's lookup results differ from Millrace's",
                    ));
                }
                peers.push(peers_time);
            }
        }
        // Make these runs last. Between the pairs, they would evict Millrace's table from the caches.
        for _ in 0..PAIRS / 3 {
            check()?;
            single.push(on_processor(self.processor, || stream.look_up_singly(&reader))?.0);
        }
        let (what, single) = (STREAMS[number], median(&single));
        self.tell(&format!(
            "{what}: {:.1} ns per lookup, unbatched {single:.1}, peer {:.1}",
            median(&ours),
            median(&peers)
        ));
        let mut measured = Measurement::median_of(format!("{what} lookups"), &ours, "ns/lookup");
        if let Some(way) = way {
            measured = measured.beside_pairs(&way.name(self.family), &ours, &peers);
        }
        self.add(measured.promising_ratio(Bound::AtMost, 1.0));
        self.add(Measurement::of(format!("{what} lookups, unbatched"), single, "ns/lookup"));
        Ok(())
    }

    /// Removes and adds prefixes in Millrace's and the peer's table alternately.
    fn update(&mut self, pair: &mut Pair, table: &[Prefix]) -> Result<(), BenchError> {
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        let count = table.len() / UPDATED;
        let rate = |seconds: f64| 2.0 * count as f64 / seconds;
        for _ in 0..3 {
            check()?;
            let time = on_processor(self.processor, || pair.ours.update(table, count))??;
            ours.push(rate(time.as_secs_f64()));
            if let Some(peer) = &mut pair.peer {
                peers.push(rate(peer.update(count)?));
            }
        }
        let (ours, peers) = (median(&ours), median(&peers));
        self.tell(&format!("{ours:.0} updates/s, peer {peers:.0}"));
        let measured = Measurement::of("updates without lookups", ours, "updates/s");
        self.add(measured.beside("DPDK", pair.peer.is_some().then_some(peers)));
        Ok(())
    }

    fn memory(&mut self, pair: &Pair, memory: u64) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let looked_at = pair.ours.fib.memory();
        let looked_at = if self.family == Family::V4 { looked_at.v4 } else { looked_at.v6 };
        let peer = pair.peer.as_ref().map(|peer| mib(peer.memory));
        let (all, readers) = (mib(memory), mib(looked_at as u64));
        self.tell(&format!("{all:.0} MiB, of them {readers:.0} for readers at most"));
        self.add(Measurement::of("memory", mib(memory), "MiB").beside("DPDK", peer));
    }

    /// Measures the slowest single change, for several prefix lengths.
    fn slowest(&mut self, ours: &mut Ours, table: &[Prefix]) -> Result<(), BenchError> {
        let mut worst = 0.0f64;
        let lengths: &[u8] = match self.family {
            Family::V4 => &[1, 4, 8, 9, 12, 16, 20, 24, 28, 32],
            Family::V6 => &[1, 4, 8, 9, 12, 16, 20, 24, 32, 40, 48, 64, 128],
        };
        for &length in lengths {
            check()?;
            let time = on_processor(self.processor, || ours.slowest(table, length))??.as_secs_f64() * 1e3;
            self.tell(&format!("a prefix of {length} bits comes or goes in at most {time:.4} ms"));
            if length > 8 {
                worst = worst.max(time);
            }
        }
        let measured = Measurement::of("slowest update of a prefix longer than 8 bits", worst, "ms");
        self.add(measured.promising(Bound::AtMost, SLOWEST));
        Ok(())
    }

    /// Measures lookups during updates.
    fn contention(
        &mut self,
        ours: &mut Ours,
        table: &[Prefix],
        stream: &Addresses,
    ) -> Result<(), BenchError> {
        if self.processor == 0 {
            self.tell("updates beside lookups are left out: they need two processors");
            return Ok(());
        }
        let processors = [self.processor, self.processor - 1];
        let mut run = |pace| contention::run(ours, table, stream, processors, pace);
        let (idle, paced, full) = (run(Pace::Idle)?, run(Pace::Promised)?, run(Pace::Full)?);
        self.tell(&format!(
            "{:.1} ns per lookup; {:.1} ns during {:.0} updates/s, {:.1} ns during {:.0} updates/s",
            idle.lookup, paced.lookup, paced.updates, full.lookup, full.updates
        ));
        let measured = Measurement::of("updates during lookups", full.updates, "updates/s");
        self.add(measured.promising(Bound::AtLeast, contention::PROMISED));
        let measured = Measurement::of("random lookups during 100,000 updates/s", paced.lookup, "ns/lookup");
        self.add(measured.beside("without updates", idle.lookup));
        Ok(())
    }
}

/// Millrace's table and the peer's table.
struct Pair {
    ours: Ours,
    peer: Option<Fib>,
}
