//! Lookups of keys that an attacker chose so that they collide, compared with random keys.

use std::net::Ipv4Addr;

use millrace_classify::{FlowTable, FlowTableConfig};
use millrace_packet::FlowKey;
use millrace_units::PortId;

use super::REPETITIONS;
use super::flows::key;
use super::lookups::{Timed, filled, look_up};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::traffic::Distribution;
use crate::statistics::{median, median_ratio};
use crate::{BenchError, Bound, Measurement};

const FLOWS: u32 = 1 << 17;
const PACKETS: usize = 1 << 19;
/// Promised maximum: time of a hit with chosen keys, as a multiple of its time with random keys.
const LIMIT: f64 = 1.1;
/// Number of candidate keys per chosen key. The attacker keeps candidates that collide in a flow table with
/// the attacker's own seed.
const ONE_OF: u64 = 64;

/// Measures each set of chosen keys alternately with random keys. All keys are read from memory, so reading
/// them costs the same.
pub(super) fn run() -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    let random_keys: Vec<FlowKey> = (0..FLOWS).map(|number| key(Family::V4, number)).collect();
    let mut random = filled(FLOWS, |number| random_keys[number as usize])?;
    let order = Distribution::Uniform.order(FLOWS, PACKETS);
    for (name, keys) in key_sets()? {
        let mut chosen = filled(FLOWS, |number| keys[number as usize])?;
        let (mut randoms, mut chosens) = (Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            check()?;
            let look_up = |table: &mut FlowTable, keys: &[FlowKey]| {
                look_up(table, &order, Timed::Search, |number| keys[number as usize]).0
            };
            randoms.push(look_up(&mut random, &random_keys));
            chosens.push(look_up(&mut chosen, &keys));
        }
        let result = Measurement::of(format!("attack, {name}, 128 K flows"), median(&chosens), "ns/packet")
            .beside("random keys", median(&randoms))
            .with_ratio(median_ratio(&chosens, &randoms))
            .promising_ratio(Bound::AtMost, LIMIT);
        results.push(result);
    }
    Ok(results)
}

/// Returns the names of the sets and their keys.
fn key_sets() -> Result<[(&'static str, Vec<FlowKey>); 3], BenchError> {
    // Sequential keys, such as from an address scan.
    let in_sequence = |number| plain(0x0a00_0001, 0xc0a8_0000 + number, 40_000);
    // Keys that differ only in high bits, which weak hash functions ignore.
    let far_apart = |number: u32| plain(number >> 8 << 16, number << 24, 0);
    // Keys chosen with the attacker's own table, which has another seed. In that table, the hashes of all
    // keys share bits.
    let config = FlowTableConfig { initial: 1, maximum: 1, seed: 1, ..FlowTableConfig::default() };
    let own = FlowTable::new(config).map_err(|error| BenchError::measurement("attack", error.to_string()))?;
    let candidates = (0..u32::MAX).map(|number| plain(number, 0x0a00_0001, 7));
    let colliding = candidates.filter(|key| own.hash(key).is_multiple_of(ONE_OF)).take(FLOWS as usize);
    Ok([
        ("sequential keys", (0..FLOWS).map(in_sequence).collect()),
        ("keys with different high bits", (0..FLOWS).map(far_apart).collect()),
        ("keys with collisions under another seed", colliding.collect()),
    ])
}

fn plain(source: u32, destination: u32, source_port: u16) -> FlowKey {
    let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
    FlowKey::v4(source, destination, 6, (source_port, 80), PortId(1))
}
