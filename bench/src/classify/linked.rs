//! Classification of new flows at three gates with linked DAGs, compared with the same gates without links.
//!
//! In one case, all gates have the same filters. In the other case, each gate lacks a different third of
//! these filters. Lookups follow the pipeline's order: a whole batch at one gate, then at the next.

use millrace_classify::{Candidate, DagTable, FilterTable, Links, MemoryBound, TupleSpace};
use millrace_packet::Family;
use millrace_testkit::classbench::{FilterSet, Popularity, Style, generate, read, trace};

use super::caches::Caches;
use super::{BATCH, COUNTED, PACKETS, ROUNDS, timed};
use crate::interrupt::check;
use crate::statistics::median;
use crate::testbed::process::{Processor, on_processor};
use crate::{BenchError, Measurement, Options};

const GATES: usize = 3;
/// Number of filters at each gate.
const FILTERS: usize = 10_000;

/// Similarity of the gates' filters: all gates have the same filters, or each gate lacks a different third of
/// them.
#[derive(Clone, Copy)]
enum Sharing {
    Same,
    Similar,
}

/// Runs all cases of this part of the benchmark.
pub(super) fn run(
    options: &mut Options<'_>,
    processor: Processor,
    results: &mut Vec<Measurement>,
) -> Result<(), BenchError> {
    let lists = read("acl1", "10k").unwrap_or_else(|| generate(Style::Acl, Family::V4, FILTERS, 1));
    for set in [flows(), lists] {
        for (sharing, name) in [(Sharing::Same, "same filters"), (Sharing::Similar, "similar filters")] {
            check()?;
            let case = format!("{}, {name} at {GATES} gates", set.name);
            let Some(gates) = Gates::new(&set, sharing) else {
                (options.progress)(&format!("{case}: left out, because the memory of a DAG is full"));
                continue;
            };
            let packets = trace(&set, Popularity::Uniform, PACKETS, 7);
            gates.compare(&case, &packets)?;
            let figures = gates.measure(processor, &packets)?;
            (options.progress)(&format!(
                "{case}: {:.0} ns by links, {:.0} without, {:.0} by tuple space search; {} of {} filters linked, in {:.1} ms",
                figures.linked,
                figures.alone,
                figures.tuples,
                gates.ahead(),
                gates.filters(),
                gates.linking
            ));
            let new_flow = format!("{case}, new flow");
            let beside = |figure, unit, other| {
                Measurement::of(new_flow.clone(), figure, unit).beside("DAGs without links", other)
            };
            results.push(beside(figures.linked, "ns", figures.alone));
            results.push(beside(figures.accesses[0], "accesses", figures.accesses[1]));
            results.push(
                Measurement::of(format!("{new_flow}, tuple space"), figures.tuples, "ns")
                    .beside("linked DAGs", figures.linked),
            );
            results.push(Measurement::of(format!("{case}, creation of the links"), gates.linking, "ms"));
        }
    }
    Ok(())
}

/// Returns a set of filters, each of which matches exactly one flow.
fn flows() -> FilterSet {
    let filter = |number: usize| {
        let (source, destination) = (number * 7919 % 5003, number * 4099 % 3001);
        let text = format!(
            "src 10.1.{}.{} dst 10.2.{}.{} proto udp sport {} dport {}",
            source / 256,
            source % 256,
            destination / 256,
            destination % 256,
            1024 + number,
            53 + number % 5
        );
        text.parse().expect("a filter is made of good parts")
    };
    FilterSet { name: "10k flows".to_owned(), filters: (0..FILTERS).map(filter).collect() }
}

/// Tables of the gates, and the gate links into each gate but the first.
struct Gates {
    tables: Vec<DagTable<u32>>,
    links: Vec<Links>,
    tuples: Vec<TupleSpace<u32>>,
    /// Time to create the links in milliseconds.
    linking: f64,
}

/// Cost to classify a new flow at all gates.
struct Figures {
    linked: f64,
    alone: f64,
    tuples: f64,
    /// Memory accesses per flow: with links, and without.
    accesses: [f64; 2],
}

/// Lookup results of a batch at a gate: for each packet, the number of the matching filter.
type Winners = [Option<u32>; BATCH];

impl Gates {
    /// Creates the tables and links; returns `None` if a table's memory is full.
    fn new(set: &FilterSet, sharing: Sharing) -> Option<Self> {
        let mut tables: Vec<DagTable<u32>> = (0..GATES).map(|_| DagTable::default()).collect();
        let mut tuples: Vec<TupleSpace<u32>> = (0..GATES).map(|_| TupleSpace::new()).collect();
        for (gate, (table, tuples)) in tables.iter_mut().zip(&mut tuples).enumerate() {
            for (place, filter) in set.filters.iter().enumerate() {
                if matches!(sharing, Sharing::Similar) && place % GATES == gate {
                    continue;
                }
                let filter = filter.compile(|_| None).ok()?;
                table.try_insert(filter, set.priority(place), place as u32).ok()?;
                tuples.insert(filter, set.priority(place), place as u32);
            }
        }
        let begun = std::time::Instant::now();
        let pairs = tables.windows(2);
        let links = pairs.map(|pair| {
            let filters = pair[0].entries().map(|entry| (entry.value as usize, &entry.filter));
            Links::new(&pair[1], filters)
        });
        let links = links.collect();
        let linking = begun.elapsed().as_secs_f64() * 1e3;
        Some(Self { tables, links, tuples, linking })
    }

    fn filters(&self) -> usize {
        self.links.iter().map(Links::filters).sum()
    }

    fn ahead(&self) -> usize {
        self.links.iter().map(Links::ahead).sum()
    }

    /// Looks up a batch at a gate. `winners` holds the results of the previous gate, and is overwritten with
    /// the results of this gate.
    fn linked(&self, gate: usize, batch: &[Candidate], winners: &mut Winners) {
        for (packet, winner) in batch.iter().zip(winners) {
            let found = match gate.checked_sub(1) {
                Some(links) => {
                    let before = winner.map(|number| number as usize);
                    self.tables[gate].lookup_linked(&self.links[links], before, packet)
                }
                None => self.tables[gate].lookup(packet),
            };
            *winner = found.map(|(_, number)| *number);
        }
    }

    /// Returns an error if a lookup by links and a full lookup have different results.
    fn compare(&self, case: &str, packets: &[Candidate]) -> Result<(), BenchError> {
        for batch in packets.chunks(BATCH) {
            let mut winners = [None; BATCH];
            for gate in 0..GATES {
                self.linked(gate, batch, &mut winners);
                let found = |packet| self.tables[gate].lookup(packet).map(|(_, number)| *number);
                let tuples = |packet| self.tuples[gate].lookup(packet).map(|(_, number)| *number);
                let differs = |(packet, winner)| found(packet) != winner || tuples(packet) != winner;
                if batch.iter().zip(winners).any(differs) {
                    let problem = "lookup by links finds other filters than a full lookup";
                    return Err(BenchError::measurement(case, problem));
                }
            }
        }
        Ok(())
    }

    fn measure(&self, processor: Processor, packets: &[Candidate]) -> Result<Figures, BenchError> {
        let sum = |winners: &Winners| winners.iter().flatten().map(|number| u64::from(*number)).sum::<u64>();
        let linked = |packets: &[Candidate]| {
            let batches = packets.chunks(BATCH).map(|batch| {
                let mut winners = [None; BATCH];
                (0..GATES).for_each(|gate| self.linked(gate, batch, &mut winners));
                sum(&winners)
            });
            batches.sum()
        };
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            check()?;
            times[0].push(on_processor(processor, || timed(packets, linked))?);
            times[1].push(on_processor(processor, || timed(packets, |part| at_each(&self.tables, part)))?);
            times[2].push(on_processor(processor, || timed(packets, |part| at_each(&self.tuples, part)))?);
        }
        let [linked, alone, tuples] = times.map(|times| median(&times));
        Ok(Figures { linked, alone, tuples, accesses: self.accesses(packets) })
    }

    /// Returns the memory accesses per packet at all gates: with links, and without.
    fn accesses(&self, packets: &[Candidate]) -> [f64; 2] {
        let packets = &packets[..packets.len().min(COUNTED)];
        let (mut linked, mut alone) = (Caches::new(), Caches::new());
        for packet in packets {
            let mut before = None;
            for (gate, table) in self.tables.iter().enumerate() {
                let found = table.lookup_counted(packet, &mut alone).map(|(_, number)| *number as usize);
                if let Some(links) = gate.checked_sub(1).map(|gate| &self.links[gate]) {
                    table.lookup_linked_counted(links, before, packet, &mut linked);
                } else {
                    table.lookup_counted(packet, &mut linked);
                }
                before = found;
            }
        }
        [linked, alone].map(|mut caches| caches.take_counts().accesses as f64 / packets.len() as f64)
    }
}

/// Looks up packets at all gates, without links.
fn at_each(tables: &[impl FilterTable<u32>], packets: &[Candidate]) -> u64 {
    let mut sum = 0;
    for batch in packets.chunks(BATCH) {
        for table in tables {
            let mut found = [None; BATCH];
            table.lookup_batch(batch, &mut found);
            sum += found.iter().flatten().map(|(_, number)| u64::from(**number)).sum::<u64>();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_give_the_same_match_as_a_full_lookup() {
        for sharing in [Sharing::Same, Sharing::Similar] {
            let set = FilterSet { name: "few".to_owned(), filters: flows().filters[..300].to_vec() };
            let gates = Gates::new(&set, sharing).unwrap();
            let packets = trace(&set, Popularity::Uniform, 512, 1);
            gates.compare("few", &packets).unwrap();
            let [linked, alone] = gates.accesses(&packets);
            assert!(linked < alone, "{linked} and {alone}");
            assert_eq!(gates.ahead(), gates.filters());
        }
    }
}
