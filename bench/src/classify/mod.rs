//! `classify`: lookups in the filter tables, compared with DPDK's ACL library, and linked DAGs.
//!
//! Each filter set has two traces, which are looked up in batches of 64 packets. One trace matches all
//! filters equally often, the other follows Zipf's law. All tables and the peer take turns on one processor.
//! Each table runs through the trace once before its timed run. The results of all tables and the peer must
//! be equal.

mod acl;
mod caches;
pub(crate) mod counted;
mod linked;
mod set;
mod table;

use std::time::{Duration, Instant};

use millrace_classify::Candidate;
use millrace_testkit::classbench::{FilterSet, Popularity, trace};

use self::acl::{Acl, Program, digest};
use self::caches::Caches;
use self::set::{Source, ranked};
use self::table::{KINDS, Kind, Table};
use crate::interrupt::check;
use crate::measurement::Bound;
use crate::statistics::{median, median_ratio};
use crate::testbed::process::{Processor, SessionFirst, is_installed, on_processor};
use crate::{BenchError, Measurement, Options};

pub(crate) use self::counted::run_measured;

/// Number of packets in a trace.
const PACKETS: usize = 32_768;
/// Number of packets per lookup call.
const BATCH: usize = 64;
/// Number of timed runs of each table through a trace; the result is their median.
const ROUNDS: usize = 9;
/// Time limit of one run through a trace. A slower table looks up only a part of the trace.
const LONGEST: Duration = Duration::from_millis(50);
/// Number of filters that are removed and added again to measure changes.
const CHANGES: usize = 2000;
/// Time limit for measuring changes.
const CHANGING: Duration = Duration::from_millis(500);
/// Number of packets whose memory accesses are counted. Before them, the same number of other packets fills
/// the simulated caches.
const COUNTED: usize = 8192;
/// Time limit for counting memory accesses.
const COUNTING: Duration = Duration::from_millis(250);
const TRACES: [(&str, Popularity); 2] = [("uniform", Popularity::Uniform), ("Zipf", Popularity::Zipf)];

/// Promised maximum: ratio of lookup times, default table to peer, with 10,000 filters.
const SLOWER: f64 = 2.0;
/// Promised maximum: time to change one filter, as a multiple of the peer's time to build its table.
const OF_A_BUILD: f64 = 1e-3;
/// Promised maximum: microseconds to change one filter.
const CHANGE: f64 = 1000.0;

/// Runs all cases of the benchmark `classify`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let _first = SessionFirst::begin();
    let processor = std::thread::available_parallelism().map_or(0, |count| count.get() - 1);
    let program = Program::compile()?;
    if program.is_none() {
        (options.progress)(
            "the peer is left out: it needs a C compiler, pkg-config and DPDK (package dpdk-dev)",
        );
    }
    let mut results = Vec::new();
    linked::run(options, processor, &mut results)?;
    for source in Source::all() {
        check()?;
        let Some(set) = source.load() else {
            (options.progress)(&format!("{source:?} is left out: the file is missing"));
            continue;
        };
        let mut case = Case { source, set, processor, options, results: &mut results };
        case.run(program.as_ref())?;
    }
    Ok(results)
}

/// Filter set under measurement.
struct Case<'a, 'b> {
    source: Source,
    set: FilterSet,
    processor: Processor,
    options: &'a mut Options<'b>,
    results: &'a mut Vec<Measurement>,
}

/// Filled table and its kind.
struct Filled {
    kind: &'static Kind,
    table: Box<dyn Table>,
}

impl Case<'_, '_> {
    fn run(&mut self, program: Option<&Program>) -> Result<(), BenchError> {
        let traces: Vec<_> =
            TRACES.iter().map(|(_, popularity)| trace(&self.set, *popularity, PACKETS, 2)).collect();
        let slices: Vec<&[Candidate]> = traces.iter().map(Vec::as_slice).collect();
        let mut peer = match program {
            Some(program) => program.start(&self.set.filters, &slices, self.processor)?,
            None => None,
        };
        if peer.is_none() && program.is_some() {
            self.tell("the peer is left out: building its table of these filters takes too long");
        }
        let mut tables = self.fill(peer.as_ref())?;
        for (number, trace) in traces.iter().enumerate() {
            self.compare(&tables, trace, peer.as_mut().map(|peer| (peer, number)))?;
            self.look_up(&tables, number, trace, &mut peer)?;
        }
        for filled in &mut tables {
            self.change(filled, peer.as_ref())?;
        }
        drop(peer);
        self.count(&tables)
    }

    fn tell(&mut self, what: &str) {
        (self.options.progress)(&format!("{}: {what}", self.set.name));
    }

    fn add(&mut self, measured: Measurement) {
        let case = format!("{}, {}", self.set.name, measured.case);
        self.results.push(Measurement { case, ..measured });
    }

    /// Returns `limit` if figures of this kind of table and this filter set have a promised limit; otherwise
    /// `None`.
    fn promised(&self, kind: &Kind, limit: f64) -> Option<f64> {
        (kind.name == KINDS[0].name && self.source.is_judged()).then_some(limit)
    }

    /// Fills all tables that can hold the filter set.
    fn fill(&mut self, peer: Option<&Acl>) -> Result<Vec<Filled>, BenchError> {
        let (filters, mut tables) = (ranked(&self.set)?, Vec::new());
        for kind in KINDS {
            check()?;
            match on_processor(self.processor, || kind.fill(&filters))? {
                Ok((table, time)) => {
                    let (name, bytes) = (kind.name, table.memory() as f64 / filters.len() as f64);
                    let time = time.as_secs_f64() * 1e3;
                    self.tell(&format!("{name}: built in {time:.1} ms, {bytes:.0} bytes per filter"));
                    let built = Measurement::of(format!("build, {name}"), time, "ms");
                    self.add(built.beside(acl::NAME, peer.map(|peer| peer.build)));
                    let theirs = peer.map(|peer| peer.memory as f64 / filters.len() as f64);
                    let taken = Measurement::of(format!("memory, {name}"), bytes, "bytes/filter");
                    self.add(taken.beside(acl::NAME, theirs));
                    tables.push(Filled { kind, table });
                }
                Err(unfit) => self.tell(&format!("{}: left out, because {unfit}", kind.name)),
            }
        }
        Ok(tables)
    }

    /// Returns an error if the results of two tables, or of a table and the peer, differ.
    fn compare(
        &self,
        tables: &[Filled],
        trace: &[Candidate],
        peer: Option<(&mut Acl, usize)>,
    ) -> Result<(), BenchError> {
        let differ = |name: &str| {
            let problem = format!("{name} finds other filters than {}", KINDS[0].name);
            Err(BenchError::measurement(&self.set.name, problem))
        };
        let Some((first, others)) = tables.split_first() else { return Ok(()) };
        let found =
            |table: &dyn Table, packet: &Candidate| table.lookup(packet).map_or(0, |(_, number)| *number);
        if let Some((peer, number)) = peer
            && peer.digest(number)? != digest(trace.iter().map(|packet| found(&*first.table, packet)))
        {
            return differ(acl::NAME);
        }
        for other in others {
            check()?;
            // Compare only some packets: a linear table is slow.
            let mut some = trace.iter().take(1000);
            if some.any(|packet| found(&*first.table, packet) != found(&*other.table, packet)) {
                return differ(other.kind.name);
            }
        }
        Ok(())
    }

    /// Looks up a trace with all tables and the peer alternately.
    fn look_up(
        &mut self,
        tables: &[Filled],
        number: usize,
        trace: &[Candidate],
        peer: &mut Option<Acl>,
    ) -> Result<(), BenchError> {
        let parts = tables.iter().map(|filled| affordable(&*filled.table, trace)).collect::<Vec<_>>();
        let mut times = vec![Vec::new(); tables.len()];
        let (mut single, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            check()?;
            for ((filled, part), times) in tables.iter().zip(&parts).zip(&mut times) {
                times.push(on_processor(self.processor, || {
                    timed(part, |part| in_batches(&*filled.table, part))
                })?);
            }
            if let Some(first) = tables.first() {
                single.push(on_processor(self.processor, || {
                    timed(trace, |part| one_by_one(&*first.table, part))
                })?);
            }
            if let Some(peer) = peer {
                peers.push(peer.look_up(number)? / trace.len() as f64);
            }
        }
        let name = TRACES[number].0;
        for (filled, times) in tables.iter().zip(&times) {
            let (kind, time) = (filled.kind, median(times));
            self.tell(&format!("{name}: {} {time:.1} ns per lookup, peer {:.1}", kind.name, median(&peers)));
            let case = format!("{name} lookups, {}", kind.name);
            let mut measured = Measurement::of(&case, time, "ns/lookup");
            if !peers.is_empty() {
                measured = measured.beside(acl::NAME, median(&peers)).with_ratio(median_ratio(times, &peers));
            }
            self.add(measured.promising_ratio(Bound::AtMost, self.promised(kind, SLOWER)));
            for (figure, unit) in memory_read(&*filled.table, trace) {
                self.add(Measurement::of(&case, figure, unit));
            }
        }
        let case = format!("{name} lookups, unbatched, {}", KINDS[0].name);
        self.add(Measurement::of(case, median(&single), "ns/lookup"));
        Ok(())
    }

    /// Removes filters and adds them again, one after the other.
    fn change(&mut self, filled: &mut Filled, peer: Option<&Acl>) -> Result<(), BenchError> {
        check()?;
        let table = &mut filled.table;
        let mut times = on_processor(self.processor, || changes(&mut **table))?;
        times.sort_by(f64::total_cmp);
        let at = |part: f64| {
            times.get((times.len() as f64 * part) as usize).or(times.last()).copied().unwrap_or(0.0)
        };
        let (kind, middle, late, slowest) = (filled.kind, at(0.5), at(0.99), at(1.0));
        let name = kind.name;
        self.tell(&format!("{name}: a change takes {middle:.1} µs, p99 {late:.1}, at most {slowest:.1}"));
        let changed = Measurement::of(format!("filter change, {name}"), middle / 1e3, "ms")
            .beside(&format!("{}, rebuild", acl::NAME), peer.map(|peer| peer.build));
        self.add(changed.promising_ratio(Bound::AtMost, self.promised(kind, OF_A_BUILD)));
        let changed = Measurement::of(format!("filter change, 99th percentile, {name}"), late, "µs");
        self.add(changed.promising(Bound::AtMost, self.promised(kind, CHANGE)));
        Ok(())
    }

    /// Counts instructions per lookup.
    fn count(&mut self, tables: &[Filled]) -> Result<(), BenchError> {
        if !self.source.is_judged() {
            return Ok(());
        }
        if !is_installed("valgrind") {
            self.tell("valgrind is not installed: instructions are not counted");
            return Ok(());
        }
        for filled in tables {
            match counted::count(&self.options.binary, self.source, filled.kind) {
                Ok(Some(figure)) => {
                    let case = format!("uniform lookups, {}", filled.kind.name);
                    self.add(Measurement::of(case, figure, "instructions/lookup"));
                }
                Ok(None) => self.tell("callgrind found no function names: instructions are not counted"),
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => self.tell(&format!("instructions are not counted: {error}")),
            }
        }
        Ok(())
    }
}

/// Returns three figures with their units: memory accesses per packet of a trace, and misses of each
/// simulated cache.
fn memory_read(table: &dyn Table, trace: &[Candidate]) -> [(f64, &'static str); 3] {
    let mut caches = Caches::new();
    let mut pass = |packets: &[Candidate]| {
        let begun = Instant::now();
        let in_time = packets.chunks(BATCH).take_while(|_| begun.elapsed() < COUNTING);
        let looked_up = in_time.flatten().map(|packet| table.look(packet, &mut caches)).count();
        (looked_up.max(1) as f64, caches.take_counts())
    };
    let half = (trace.len() / 2).min(COUNTED);
    pass(&trace[..half]);
    let (packets, counts) = pass(&trace[half..][..half]);
    [
        (counts.accesses as f64 / packets, "accesses/lookup"),
        (counts.first_misses as f64 / packets, "misses of 32 KiB/lookup"),
        (counts.last_misses as f64 / packets, "misses of 512 KiB/lookup"),
    ]
}

/// Returns the beginning of a trace: as many packets as the table can look up within the time limit.
fn affordable<'a>(table: &dyn Table, trace: &'a [Candidate]) -> &'a [Candidate] {
    let probe = &trace[..trace.len().min(BATCH)];
    let start = Instant::now();
    in_batches(table, probe);
    let each = start.elapsed().as_secs_f64() / probe.len().max(1) as f64;
    let most = (LONGEST.as_secs_f64() / each) as usize;
    &trace[..trace.len().min(most.max(BATCH))]
}

/// Runs `run` twice. Returns the nanoseconds per packet of the second run.
fn timed(trace: &[Candidate], run: impl Fn(&[Candidate]) -> u64) -> f64 {
    std::hint::black_box(run(trace));
    let start = Instant::now();
    std::hint::black_box(run(trace));
    start.elapsed().as_secs_f64() * 1e9 / trace.len() as f64
}

/// Looks up a trace in batches and returns the sum of the results.
fn in_batches(table: &dyn Table, trace: &[Candidate]) -> u64 {
    let mut sum = 0;
    for batch in trace.chunks(BATCH) {
        let mut found = [None; BATCH];
        table.lookup_batch(batch, &mut found);
        sum += found.iter().flatten().map(|(_, number)| u64::from(**number)).sum::<u64>();
    }
    sum
}

fn one_by_one(table: &dyn Table, trace: &[Candidate]) -> u64 {
    trace.iter().filter_map(|packet| table.lookup(packet)).map(|(_, number)| u64::from(*number)).sum()
}

/// Removes filters that are spread over the set, and adds each again. Returns the microseconds of each
/// change.
fn changes(table: &mut dyn Table) -> Vec<f64> {
    let entries: Vec<_> = table.entries().map(|entry| (entry.id, entry.filter, entry.priority)).collect();
    let mut times = Vec::with_capacity(2 * CHANGES);
    let begun = Instant::now();
    let mut timed = |change: &mut dyn FnMut()| {
        let start = Instant::now();
        change();
        times.push(start.elapsed().as_secs_f64() * 1e6);
    };
    // A prime step width visits every filter once before it visits one again.
    for turn in 0..CHANGES.min(entries.len()) {
        if begun.elapsed() > CHANGING {
            break;
        }
        let (id, filter, priority) = entries[turn * 7919 % entries.len()];
        let mut value = None;
        timed(&mut || value = table.remove(id));
        if let Some(value) = value {
            timed(&mut || _ = table.insert(filter, priority, value));
        }
    }
    times
}
