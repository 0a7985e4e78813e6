//! Processor time of core for the packets that each port received, and by function, over the last minute.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use millrace_config::CoreOrder;
use millrace_pipeline::PortCount;
use millrace_units::{Cycles, Instant, PortId, PrincipalId};

use super::shares::Promised;
use super::windows::WINDOWS;
use crate::model::Model;
use crate::view::{CoreFunctionView, CoreInputView, CoreInputWindowView};

/// Part of core's time that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// All work for the packets that a port received.
    Received(PortId),
    /// The function of receiving at a port.
    Input(PortId),
    Forwarding,
    /// The function of sending at a port.
    Output(PortId),
}

/// Processor time of each part at one time.
#[derive(Debug)]
struct Sample {
    at: Instant,
    times: BTreeMap<Part, Cycles>,
}

/// Samples of the last minute, the oldest first, about one a second.
#[derive(Debug, Default)]
pub(crate) struct CoreInputs {
    samples: VecDeque<Sample>,
}

impl CoreInputs {
    /// Keeps the processor times of the ports, by function if `core` is divided so. Call this about once a second.
    pub fn sample(&mut self, at: Instant, (ports, core): (&[(PortId, PortCount)], CoreOrder)) {
        let mut times = BTreeMap::new();
        let by_function = matches!(core, CoreOrder::Share | CoreOrder::ShareByFunction);
        let mut forwarding = Cycles(0);
        for (id, PortCount { core, .. }) in ports {
            let input = Cycles(core.received.0.saturating_sub(core.forwarding.0));
            let parts = [(Part::Input(*id), input), (Part::Output(*id), core.output)];
            times.insert(Part::Received(*id), core.received);
            times.extend(parts.into_iter().filter(|_| by_function));
            forwarding += core.forwarding;
        }
        times.extend(by_function.then_some((Part::Forwarding, forwarding)));
        times.retain(|_, time| *time > Cycles(0));
        self.samples.push_back(Sample { at, times });
        while self.samples.len() > WINDOWS[2] as usize + 1 {
            self.samples.pop_front();
        }
    }

    /// Returns the processor time of each port that core has worked for, in the order of the ports' numbers.
    /// Empty while there is no promise to core.
    pub fn view(&self, model: &Model, promised: &[(PrincipalId, Promised)]) -> Vec<CoreInputView> {
        let view = |(part, used_seconds, windows)| match part {
            Part::Received(id) => {
                Some(CoreInputView { port: model.port_name(id).to_owned(), used_seconds, windows })
            }
            Part::Input(_) | Part::Forwarding | Part::Output(_) => None,
        };
        self.parts(promised).into_iter().filter_map(view).collect()
    }

    /// Returns the processor time of each function that core has worked for. Empty while there is no promise to core,
    /// or core isn't divided by function.
    pub fn functions(&self, model: &Model, promised: &[(PrincipalId, Promised)]) -> Vec<CoreFunctionView> {
        let view = |(part, used_seconds, windows)| {
            let (function, port) = match part {
                Part::Received(_) => return None,
                Part::Input(id) => ("input", Some(id)),
                Part::Forwarding => ("forwarding", None),
                Part::Output(id) => ("output", Some(id)),
            };
            let port = port.map(|id| model.port_name(id).to_owned());
            Some(CoreFunctionView { function, port, used_seconds, windows })
        };
        self.parts(promised).into_iter().filter_map(view).collect()
    }

    /// Returns the seconds that each part of core has used, and its windows.
    fn parts(&self, promised: &[(PrincipalId, Promised)]) -> Vec<(Part, f64, Vec<CoreInputWindowView>)> {
        let core = promised.iter().find(|(id, _)| *id == PrincipalId::CORE);
        let (Some((_, promised)), Some(last)) = (core, self.samples.back()) else { return Vec::new() };
        let of = |(part, used): (&Part, &Cycles)| {
            let windows = WINDOWS.iter().filter_map(|seconds| self.window(*part, promised, *seconds));
            (*part, promised.seconds(used.0), windows.collect())
        };
        last.times.iter().map(of).collect()
    }

    /// Returns the part of the processor that a part of core needed in the last `seconds`, or in the time since the first
    /// sample if that is shorter; `None` before the second sample.
    fn window(&self, part: Part, promised: &Promised, seconds: u64) -> Option<CoreInputWindowView> {
        let last = self.samples.back()?;
        let old_enough =
            |sample: &&Sample| last.at.since(sample.at) >= Duration::from_millis(seconds * 1000 - 300);
        let earlier = || self.samples.iter().rev().skip(1);
        let first = earlier().find(old_enough).or_else(|| earlier().last())?;
        let (now, before) = (last.times.get(&part)?.0, first.times.get(&part).map_or(0, |time| time.0));
        // Cleared counters start from zero.
        let used = now.checked_sub(before).unwrap_or(now);
        let length = last.at.since(first.at).as_secs_f64();
        Some(CoreInputWindowView { seconds: length, used: 100.0 * promised.seconds(used) / length.max(1e-3) })
    }
}

#[cfg(test)]
mod tests {
    use millrace_pipeline::PortCoreTime;

    use super::*;

    /// Counts of a port with `used` cycles for its packets, half of them in forwarding, and a quarter for sending.
    fn count(used: u64) -> [(PortId, PortCount); 1] {
        let core =
            PortCoreTime { received: Cycles(used), forwarding: Cycles(used / 2), output: Cycles(used / 4) };
        [(PortId(3), PortCount { core, ..PortCount::default() })]
    }

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
            inputs.sample(Instant::ZERO + Duration::from_secs(second), (&count(used), CoreOrder::Share));
        }
        let used_by = |part, seconds| inputs.window(part, &promised, seconds).unwrap().used;
        let used = |seconds| used_by(Part::Received(PortId(3)), seconds);
        for (seconds, expected) in [(1, 40.0), (10, 25.0), (60, 12.5)] {
            assert!((used(seconds) - expected).abs() < 1e-6, "{seconds} s: {}", used(seconds));
        }
        let functions =
            [(Part::Input(PortId(3)), 20.0), (Part::Forwarding, 20.0), (Part::Output(PortId(3)), 10.0)];
        for (part, expected) in functions {
            assert!((used_by(part, 1) - expected).abs() < 1e-6, "{part:?}");
        }
        assert!(inputs.window(Part::Received(PortId(4)), &promised, 1).is_none());
        inputs
            .sample(Instant::ZERO + Duration::from_secs(101), (&count(50_000_000), CoreOrder::ShareByInput));
        assert!((inputs.window(Part::Received(PortId(3)), &promised, 1).unwrap().used - 5.0).abs() < 1e-6);
        assert!(inputs.window(Part::Forwarding, &promised, 1).is_none());
    }
}
