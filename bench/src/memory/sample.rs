//! Cost of packets, in each unit that this machine can count.

use std::time::Instant;

use millrace_workbench::cycles;

use crate::counters::{Counter, Event};
use crate::statistics::median;

/// Names of the units in [`Costs`].
pub(super) const UNITS: [&str; 5] = [
    "ns/packet",
    "cycles of the time stamp counter/packet",
    "cycles/packet",
    "instructions/packet",
    "cache misses/packet",
];
/// Processor events that give the units from index 2 on.
const EVENTS: [Event; 3] = [Event::CYCLES, Event::INSTRUCTIONS, Event::CACHE_MISSES];

/// Cost of a packet in each unit; `None` for a unit that this machine can't count.
pub(super) type Costs = [Option<f64>; UNITS.len()];

/// Event counters of this machine.
pub(super) struct Counters([Option<Counter>; EVENTS.len()]);

impl Counters {
    pub fn open() -> Self {
        Self(EVENTS.map(Counter::open))
    }

    /// Whether any processor event is counted.
    pub fn has_events(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// Runs `work`, which returns its number of packets. Returns the cost per packet.
    pub fn count(&self, work: impl FnOnce() -> u64) -> Costs {
        let events =
            || self.0.each_ref().map(|counter| counter.as_ref().and_then(|counter| counter.read().ok()));
        let (before, stamp, start) = (events(), cycles(), Instant::now());
        let packets = work() as f64;
        let (time, end, after) = (start.elapsed(), cycles(), events());
        let difference =
            |before: Option<u64>, after: Option<u64>| Some((after?.wrapping_sub(before?)) as f64 / packets);
        let [core, instructions, misses] = [0, 1, 2].map(|event| difference(before[event], after[event]));
        [Some(time.as_secs_f64() * 1e9 / packets), difference(stamp, end), core, instructions, misses]
    }
}

/// Costs per repetition: of the source alone, and of the other code.
#[derive(Default)]
pub(super) struct Sample {
    source: Vec<Costs>,
    net: Vec<Costs>,
}

impl Sample {
    /// Adds a repetition: the costs of the source alone, and of the source and the other code together.
    pub fn add(&mut self, source: Costs, all: Costs) {
        let less = |unit: usize| Some(all[unit]? - source[unit]?);
        self.source.push(source);
        self.net.push(std::array::from_fn(less));
    }

    /// Returns the costs without the source, in a unit. Empty if this machine can't count the unit.
    pub fn net(&self, unit: usize) -> Vec<f64> {
        self.net.iter().filter_map(|costs| costs[unit]).collect()
    }

    /// Returns the median time of the source in nanoseconds.
    pub fn source(&self) -> f64 {
        median(&self.source.iter().filter_map(|costs| costs[0]).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_cost_is_subtracted_in_each_unit() {
        let mut sample = Sample::default();
        sample.add([Some(5.0), Some(10.0), None, None, None], [Some(12.0), Some(30.0), None, None, None]);
        assert_eq!((sample.net(0), sample.net(1), sample.net(2)), (vec![7.0], vec![20.0], vec![]));
        assert_eq!(sample.source(), 5.0);
    }

    #[test]
    fn time_is_counted_per_packet() {
        let costs = Counters::open().count(|| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            1000
        });
        assert!(costs[0].is_some_and(|nanoseconds| nanoseconds >= 2000.0), "{costs:?}");
    }
}
