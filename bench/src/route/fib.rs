//! Peer: DPDK's forwarding tables, `rte_fib` and `rte_fib6`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use millrace_testkit::resident;

use super::tables::{ADDRESSES, Prefix};
use crate::BenchError;
use crate::family::Family;
use crate::peer::{Peer, compile};
use crate::testbed::process::{Processor, dedicate};
use crate::testbed::scratch::Scratch;

const SOURCE: &str = include_str!("../../peers/dpdk_fib.c");
const LIBRARY: &str = "libdpdk";

/// DPDK route table in a process of its own.
pub(super) struct Fib {
    peer: Peer,
    family: Family,
    /// Memory used to build the table in bytes.
    pub memory: u64,
    _files: Scratch,
}

/// Way to look up addresses: DPDK's lookup function and the batch size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    function: u32,
    batch: u32,
}

impl Way {
    /// Returns DPDK's name of the lookup function.
    pub fn name(self, family: Family) -> String {
        let name = match (family, self.function) {
            (Family::V4, 1) => "rte_fib DIR24_8 scalar macro",
            (Family::V4, 2) => "rte_fib DIR24_8 scalar inline",
            (Family::V4, 3) => "rte_fib DIR24_8 scalar uni",
            (Family::V4, _) => "rte_fib DIR24_8 AVX-512",
            (Family::V6, 1) => "rte_fib6 TRIE scalar",
            (Family::V6, _) => "rte_fib6 TRIE AVX-512",
        };
        format!("DPDK {name}, batches of {}", self.batch)
    }
}

impl Fib {
    /// Starts the program, which creates a table and fills it with prefixes. `streams` hold the addresses to
    /// look up as numbers, in the format of the tables. Returns `None` if DPDK or a compiler is absent.
    pub fn start(
        family: Family,
        table: &[Prefix],
        streams: &[&[u128]],
        processor: Processor,
    ) -> Result<Option<Self>, BenchError> {
        let files = Scratch::new()?;
        let Some(program) = compile(&files, "dpdk_fib", SOURCE, LIBRARY)? else { return Ok(None) };
        let file = files.file("table");
        write(&file, family, table, streams).map_err(BenchError::system("write a table for the peer"))?;
        let mut peer = Peer::start(&program, &[&file.to_string_lossy(), &processor.to_string()])?;
        let before = resident(peer.pid());
        peer.ask("build")?;
        let memory = resident(peer.pid()).saturating_sub(before);
        // Binding to a processor needs root. Without it, both sides are equally noisy.
        let _ = dedicate(nix::unistd::Pid::from_raw(peer.pid().cast_signed()), processor);
        Ok(Some(Self { peer, family, memory, _files: files }))
    }

    /// Returns the fastest lookup function and batch size for a stream on this machine.
    pub fn best_way(&mut self, stream: usize) -> Result<Way, BenchError> {
        let functions = if self.family == Family::V4 { 1..=4 } else { 1..=2 };
        let mut best: Option<(f64, Way)> = None;
        for way in functions.flat_map(|function| [64, 256].map(|batch| Way { function, batch })) {
            for _ in 0..3 {
                let Some((time, _)) = self.look_up(stream, way)? else { break };
                if best.is_none_or(|(least, _)| time < least) {
                    best = Some((time, way));
                }
            }
        }
        let none = || BenchError::measurement("rte_fib", "the peer has no such lookup function");
        best.map(|(_, way)| way).ok_or_else(none)
    }

    /// Looks up a stream of addresses. Returns the nanoseconds per lookup, and the sum of the found route
    /// numbers, which start at 1. Returns `None` if this machine doesn't support the lookup function.
    pub fn look_up(&mut self, stream: usize, way: Way) -> Result<Option<(f64, u64)>, BenchError> {
        let line = format!("lookup {stream} {} {}", way.function, way.batch);
        match self.peer.ask_numbers(&line)?.as_deref() {
            None => Ok(None),
            Some(&[time, sum]) => Ok(Some((time as f64 / ADDRESSES as f64, sum))),
            Some(_) => Err(BenchError::measurement("rte_fib", "the peer sent an invalid answer")),
        }
    }

    /// Removes `count` prefixes and adds them again; returns the seconds that this took.
    pub fn update(&mut self, count: usize) -> Result<f64, BenchError> {
        let time = self.peer.ask_number(&format!("update {count}"))?;
        Ok(time as f64 / 1e9)
    }
}

fn write(file: &Path, family: Family, table: &[Prefix], streams: &[&[u128]]) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(file)?);
    let word = |word: u32, file: &mut BufWriter<File>| file.write_all(&word.to_ne_bytes());
    let number = if family == Family::V4 { 4 } else { 6 };
    for head in [number, table.len() as u32, streams.len() as u32, ADDRESSES as u32] {
        word(head, &mut file)?;
    }
    for prefix in table {
        file.write_all(&prefix.bits.to_be_bytes())?;
        word(prefix.length.into(), &mut file)?;
        word(prefix.route + 1, &mut file)?;
    }
    for bits in streams.iter().flat_map(|stream| stream.iter()) {
        match family {
            Family::V4 => word((bits >> 96) as u32, &mut file)?,
            Family::V6 => file.write_all(&bits.to_be_bytes())?,
        }
    }
    file.flush()
}
