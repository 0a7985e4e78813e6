//! Peer: DPDK's access control library, `rte_acl`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use ipnet::IpNet;
use millrace_classify::{Candidate, Filter, PortRange};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::BenchError;
use crate::peer::{Peer, compile};
use crate::testbed::process::{Processor, dedicate};
use crate::testbed::scratch::Scratch;

const SOURCE: &str = include_str!("../../peers/dpdk_acl.c");
const LIBRARY: &str = "libdpdk";
/// Time limit for the peer to build a table.
const PATIENCE: Duration = Duration::from_secs(15);
/// Name of the peer in results.
pub(super) const NAME: &str = "DPDK rte_acl";

/// Compiled C program that builds tables from filter sets.
pub(super) struct Program {
    files: Scratch,
    path: PathBuf,
}

impl Program {
    /// Compiles the program; returns `None` without DPDK or a compiler.
    pub fn compile() -> Result<Option<Self>, BenchError> {
        let files = Scratch::new()?;
        let path = compile(&files, "dpdk_acl", SOURCE, LIBRARY)?;
        Ok(path.map(|path| Self { files, path }))
    }

    /// Starts the program, which builds a table of `filters`. They must be sorted: the filter with the
    /// highest precedence first. Returns `None` if DPDK fails.
    pub fn start(
        &self,
        filters: &[Filter],
        traces: &[&[Candidate]],
        processor: Processor,
    ) -> Result<Option<Acl>, BenchError> {
        let mut arguments = vec![self.files.write("rules", rules_text(filters))?, processor.to_string()];
        for (number, trace) in traces.iter().enumerate() {
            arguments.push(self.files.write(&format!("trace{number}"), trace_bytes(trace))?);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut peer = Peer::start(&self.path, &arguments)?;
        // Binding to a processor needs root. Without it, both sides are equally noisy.
        let _ = dedicate(Pid::from_raw(peer.pid().cast_signed()), processor);
        let built = build(&mut peer);
        crate::interrupt::check()?;
        let Some([build, memory]) = built.as_deref() else { return Ok(None) };
        let (build, memory) = (*build, *memory);
        Ok(Some(Acl { peer, build: build as f64 / 1e6, memory }))
    }
}

/// Makes the peer build its table. Returns the build time in nanoseconds and the size of the table in bytes.
/// Returns `None` if the peer fails or takes longer than [`PATIENCE`].
fn build(peer: &mut Peer) -> Option<Vec<u64>> {
    let process = Pid::from_raw(peer.pid().cast_signed());
    let (done, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // The peer is a child that nobody has waited for, so its process id is still valid.
                let _ = kill(process, Signal::SIGKILL);
            }
        });
        let built = peer.ask_numbers("build");
        drop(done);
        built.ok().flatten()
    })
}

/// Table of DPDK's ACL library. A separate process holds it.
pub(super) struct Acl {
    peer: Peer,
    /// Time to build the table in milliseconds.
    pub build: f64,
    /// Size of the table in bytes.
    pub memory: u64,
}

impl Acl {
    /// Looks up all packets of a trace; returns the total nanoseconds.
    pub fn look_up(&mut self, trace: usize) -> Result<f64, BenchError> {
        Ok(self.peer.ask_number(&format!("lookup {trace}"))? as f64)
    }

    /// Returns the digest ([`digest`]) of the lookup results of a trace.
    pub fn digest(&mut self, trace: usize) -> Result<u64, BenchError> {
        self.peer.ask_number(&format!("digest {trace}"))
    }
}

/// Computes a digest of lookup results; equal results have equal digests. Results are filter numbers from 1,
/// or 0 for no match.
pub(super) fn digest(found: impl Iterator<Item = u32>) -> u64 {
    // FNV-1a over words, as in the C program.
    found.fold(0xcbf2_9ce4_8422_2325, |digest, number| {
        (digest ^ u64::from(number)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Returns one line per filter, in the format of the C program.
fn rules_text(filters: &[Filter]) -> String {
    let mut text = String::new();
    let v6 = filters.iter().flat_map(|filter| [filter.source(), filter.destination()]).flatten();
    let family = if v6.clone().any(|net| net.addr().is_ipv6()) { 6 } else { 4 };
    let prefix = |net: Option<IpNet>| match net {
        Some(net) => net.to_string(),
        None if family == 6 => "::/0".to_owned(),
        None => "0.0.0.0/0".to_owned(),
    };
    let ports = |range| match range {
        PortRange::Any => "0 65535".to_owned(),
        PortRange::Ports { first, last } => format!("{first} {last}"),
    };
    for filter in filters {
        let protocol = filter.protocol().map_or(-1, |protocol| i32::from(protocol.0));
        let (source, destination) = (prefix(filter.source()), prefix(filter.destination()));
        let (from, to) = (ports(filter.source_port()), ports(filter.destination_port()));
        let _ = writeln!(text, "{family} {source} {destination} {protocol} {from} {to}");
    }
    text
}

/// Returns the trace in the C program's format: a record of 48 bytes for each packet.
fn trace_bytes(trace: &[Candidate]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(48 * trace.len());
    for packet in trace {
        let key = &packet.key;
        let padded = |address| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        bytes.extend(padded(key.source()).to_be_bytes());
        bytes.extend(padded(key.destination()).to_be_bytes());
        bytes.extend(key.source_port.to_be_bytes());
        bytes.extend(key.destination_port.to_be_bytes());
        bytes.push(key.protocol);
        bytes.extend([0; 11]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use millrace_packet::Family;
    use millrace_testkit::classbench::{Popularity, Style, generate, trace};

    use super::super::table::{KINDS, Ranked};
    use super::*;

    #[test]
    fn peer_matches_the_same_rules() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let Some(program) = Program::compile().unwrap() else {
            return crate::testbed::network::skip("no compiler or no DPDK");
        };
        for family in [Family::V4, Family::V6] {
            let set = generate(Style::Ipc, family, 500, 5);
            let packets = trace(&set, Popularity::Uniform, 1000, 6);
            let Some(mut acl) = program.start(&set.filters, &[&packets], 0).unwrap() else {
                return crate::testbed::network::skip("DPDK doesn't start");
            };
            let filters: Vec<Ranked> = (0..500)
                .map(|place| (set.filters[place].compile(|_| None).unwrap(), set.priority(place)))
                .collect();
            let (table, _) = KINDS[0].fill(&filters).unwrap();
            let found = |packet| table.lookup(packet).map_or(0, |(_, number)| *number);
            assert_eq!(acl.digest(0).unwrap(), digest(packets.iter().map(found)));
            assert!(acl.look_up(0).unwrap() > 0.0 && acl.build > 0.0 && acl.memory > 0);
        }
    }
}
