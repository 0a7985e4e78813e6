//! Processor time of core for the packets that each port received, over the last minute.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use millrace_pipeline::PortCount;
use millrace_units::{Cycles, Instant, PortId, PrincipalId};

use super::shares::Promised;
use super::windows::WINDOWS;
use crate::model::Model;
use crate::view::{CoreInputView, CoreInputWindowView};

/// Processor time for the ports at one time.
#[derive(Debug)]
struct Sample {
    at: Instant,
    ports: BTreeMap<PortId, Cycles>,
}

/// Samples of the last minute, the oldest first, about one a second.
#[derive(Debug, Default)]
pub(crate) struct CoreInputs {
    samples: VecDeque<Sample>,
}

impl CoreInputs {
    /// Keeps the processor times of the ports. Call this about once a second.
    pub fn sample(&mut self, at: Instant, ports: &[(PortId, PortCount)]) {
        let times = ports.iter().filter(|(_, count)| count.core > Cycles(0));
        self.samples.push_back(Sample { at, ports: times.map(|(id, count)| (*id, count.core)).collect() });
        while self.samples.len() > WINDOWS[2] as usize + 1 {
            self.samples.pop_front();
        }
    }

    /// Returns the processor time of each port that core has worked for, in the order of the ports' numbers.
    /// Empty while there is no promise to core.
    pub fn view(&self, model: &Model, promised: &[(PrincipalId, Promised)]) -> Vec<CoreInputView> {
        let core = promised.iter().find(|(id, _)| *id == PrincipalId::CORE);
        let (Some((_, promised)), Some(last)) = (core, self.samples.back()) else { return Vec::new() };
        let view = |(id, used): (&PortId, &Cycles)| CoreInputView {
            port: model.port_name(*id).to_owned(),
            used_seconds: promised.seconds(used.0),
            windows: WINDOWS.iter().filter_map(|seconds| self.window(*id, promised, *seconds)).collect(),
        };
        last.ports.iter().map(view).collect()
    }

    /// Returns the part of the processor that a port needed in the last `seconds`, or in the time since the first
    /// sample if that is shorter; `None` before the second sample.
    fn window(&self, port: PortId, promised: &Promised, seconds: u64) -> Option<CoreInputWindowView> {
        let last = self.samples.back()?;
        let old_enough =
            |sample: &&Sample| last.at.since(sample.at) >= Duration::from_millis(seconds * 1000 - 300);
        let earlier = || self.samples.iter().rev().skip(1);
        let first = earlier().find(old_enough).or_else(|| earlier().last())?;
        let (now, before) = (last.ports.get(&port)?.0, first.ports.get(&port).map_or(0, |time| time.0));
        // Cleared counters start from zero.
        let used = now.checked_sub(before).unwrap_or(now);
        let length = last.at.since(first.at).as_secs_f64();
        Some(CoreInputWindowView { seconds: length, used: 100.0 * promised.seconds(used) / length.max(1e-3) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_the_time_of_their_own_seconds() {
        let promised = Promised {
            share: 50.0,
            is_reserved: true,
            limit: None,
            most: 50.0,
            frequency: 1_000_000_000,
            slice: 50e-6,
        };
        let mut inputs = CoreInputs::default();
        let mut used = 0;
        for second in 0..=100 {
            // A burst in the last five seconds.
            used += if second > 95 { 400_000_000 } else { 100_000_000 };
            let count = PortCount { core: Cycles(used), ..PortCount::default() };
            inputs.sample(Instant::ZERO + Duration::from_secs(second), &[(PortId(3), count)]);
        }
        let used = |seconds| inputs.window(PortId(3), &promised, seconds).unwrap().used;
        for (seconds, expected) in [(1, 40.0), (10, 25.0), (60, 12.5)] {
            assert!((used(seconds) - expected).abs() < 1e-6, "{seconds} s: {}", used(seconds));
        }
        assert!(inputs.window(PortId(4), &promised, 1).is_none());
        let cleared = PortCount { core: Cycles(50_000_000), ..PortCount::default() };
        inputs.sample(Instant::ZERO + Duration::from_secs(101), &[(PortId(3), cleared)]);
        assert!((inputs.window(PortId(3), &promised, 1).unwrap().used - 5.0).abs() < 1e-6);
    }
}
