//! Sources of packets: each sends as its token bucket allows, from the moment that an epoch plans for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::flows::{Flow, LINK, PROCESSOR};
use crate::deadline::grant::nanoseconds;
use crate::random::Random;

/// Intervals of the slowest flow in an epoch, about.
const INTERVALS: usize = 100;

/// Token bucket of a flow, as a time at which it would be full (the generic cell rate algorithm of ATM, ITU-T
/// I.371).
#[derive(Clone, Copy, Debug)]
struct Source {
    interval: u64,
    burst: u64,
    full: u64,
    /// Granted times at processor and link, and the whole bound, in nanoseconds.
    times: [u64; 3],
    /// Whether the source ignores its token bucket.
    is_rogue: bool,
}

impl Source {
    /// Returns the earliest time of the next packet.
    fn earliest(&self) -> u64 {
        self.full.saturating_sub((self.burst - 1) * self.interval)
    }
}

/// Sources, and their next packets.
pub(super) struct Sources {
    sources: Vec<Source>,
    arrivals: BinaryHeap<Reverse<(u64, usize)>>,
    /// End of the epoch.
    end: u64,
}

impl Sources {
    /// Creates a source for each flow. A rogue is the first one.
    pub fn new(flows: &[Flow], rogue: bool) -> Self {
        let source = |(number, Flow { grant, .. }): (usize, &Flow)| {
            let time = |name| grant.stage(name).map_or(0, |stage| nanoseconds(stage.time));
            Source {
                interval: nanoseconds(grant.interval),
                burst: grant.burst.into(),
                full: 0,
                times: [time(PROCESSOR), time(LINK), nanoseconds(grant.bound())],
                is_rogue: rogue && number == 0,
            }
        };
        Self { sources: flows.iter().enumerate().map(source).collect(), arrivals: BinaryHeap::new(), end: 0 }
    }

    /// Returns the time of the next packet, in nanoseconds.
    pub fn next(&self) -> u64 {
        self.arrivals.peek().map_or(u64::MAX, |Reverse((time, _))| *time)
    }

    /// Whether no packet is planned.
    pub fn is_silent(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Whether all token buckets are full.
    pub fn is_ready(&self, now: u64) -> bool {
        self.sources.iter().all(|source| source.full <= now)
    }

    /// Sends the next packet. Returns its flow.
    pub fn send(&mut self, now: u64) -> Option<usize> {
        let Reverse((_, flow)) = self.arrivals.pop()?;
        let source = self.sources.get_mut(flow)?;
        source.full = source.full.max(now) + source.interval;
        let next = if source.is_rogue { now + source.interval / 2 } else { source.earliest().max(now) };
        if next < self.end {
            self.arrivals.push(Reverse((next, flow)));
        }
        Some(flow)
    }

    /// Plans an epoch that begins at `begin`.
    pub fn plan(&mut self, begin: u64, random: &mut Random) {
        let slowest = self.sources.iter().map(|source| source.interval).max().unwrap_or(0);
        let longest = self.sources.iter().map(|source| source.times[2]).max().unwrap_or(0);
        let common = begin + 2 * longest + slowest * random.below(INTERVALS) as u64;
        let kind = random.below(8);
        let target = random.below(self.sources.len());
        let of_target = self.sources.get(target).map_or(0, |source| source.times[1]);
        for (flow, source) in self.sources.iter().enumerate() {
            let [processor, link, bound] = source.times;
            // First packet at `begin` or later such that a later packet arrives `time` before `end`.
            let before = |end: u64, time: u64| begin + (end - begin).saturating_sub(time) % source.interval;
            let first = match kind {
                0 => begin,
                1 => begin + longest - bound,
                2 => begin + random.below(source.interval as usize) as u64,
                3 => before(common, processor + link),
                // Deadlines just before those of the target.
                _ if processor > 0 => before(common - u64::from(flow != target), processor),
                _ => before(common + of_target - 1, link),
            };
            self.arrivals.push(Reverse((first, flow)));
        }
        self.end = common + 2 * slowest;
    }
}
