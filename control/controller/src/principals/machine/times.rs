//! Processor time of the processes in control groups over the last seconds and minute, beside what was promised.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use millrace_principals::Usage;
use millrace_units::Instant;

use crate::principals::windows::WINDOWS;
use crate::view::ProcessWindowView;

/// Processor times of groups, by name.
type Times = BTreeMap<String, (Duration, Option<Duration>)>;

/// Processor times over the last minute, about one sample a second, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ProcessTimes {
    samples: VecDeque<(Instant, Times)>,
}

impl ProcessTimes {
    /// Keeps the processor times of groups. Call this about once a second.
    pub fn sample(&mut self, at: Instant, usages: impl Iterator<Item = (String, Usage)>) {
        let times: Times =
            usages.filter_map(|(name, usage)| Some((name, (usage.cpu?, usage.throttled)))).collect();
        if times.is_empty() {
            return self.samples.clear();
        }
        self.samples.push_back((at, times));
        while self.samples.len() > WINDOWS[2] as usize + 1 {
            self.samples.pop_front();
        }
    }

    /// Returns the processor time of a group over the windows. `promised`: its share in percent of a processor.
    pub fn windows(&self, name: &str, promised: Option<f64>) -> Vec<ProcessWindowView> {
        WINDOWS.iter().filter_map(|seconds| self.window(name, promised, *seconds)).collect()
    }

    /// Returns the window of the last `seconds`, or since the first sample of the group if that is later; `None`
    /// before the second sample.
    fn window(&self, name: &str, promised: Option<f64>, seconds: u64) -> Option<ProcessWindowView> {
        let (end, times) = self.samples.back()?;
        let (used, throttled) = *times.get(name)?;
        let earlier = || {
            let samples = self.samples.iter().rev().skip(1);
            // A group that was created again starts at zero.
            samples
                .map_while(|(at, times)| Some((*at, *times.get(name)?)))
                .take_while(|(_, (before, _))| *before <= used)
        };
        let least = Duration::from_millis(seconds * 1000 - 300);
        let (begin, (used_before, throttled_before)) =
            earlier().find(|(at, _)| end.since(*at) >= least).or_else(|| earlier().last())?;
        let length = end.since(begin).as_secs_f64();
        let percent = |time: Duration| 100.0 * time.as_secs_f64() / length.max(1e-3);
        let delivered = percent(used - used_before);
        Some(ProcessWindowView {
            seconds: length,
            delivered,
            idle: promised.map(|promised| (promised - delivered).max(0.0)),
            throttled: throttled
                .zip(throttled_before)
                .map(|(now, before)| percent(now.saturating_sub(before))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu: f64, throttled: f64) -> Usage {
        let [cpu, throttled] = [cpu, throttled].map(|seconds| Some(Duration::from_secs_f64(seconds)));
        Usage { cpu, throttled, ..Usage::default() }
    }

    #[test]
    fn windows_have_the_processor_time_beside_the_promise() {
        let mut times = ProcessTimes::default();
        // 10 % of a processor for 50 s, then 30 %.
        for second in 0..=70_u64 {
            let time = second as f64;
            let used = 0.1 * time + 0.2 * (time - 50.0).max(0.0);
            let at = Instant::ZERO + Duration::from_secs(second);
            times.sample(at, [("video".to_owned(), usage(used, 0.5 * time))].into_iter());
        }
        let windows = times.windows("video", Some(20.0));
        let near = |values: &[f64], expected: [f64; 3]| {
            values.iter().zip(expected).all(|(value, expected)| (value - expected).abs() < 0.01)
        };
        let delivered: Vec<f64> = windows.iter().map(|window| window.delivered).collect();
        assert!(near(&delivered, [30.0, 30.0, 10.0 + 20.0 / 3.0]), "{delivered:?}");
        let idle: Vec<f64> = windows.iter().filter_map(|window| window.idle).collect();
        assert!(near(&idle, [0.0, 0.0, 10.0 / 3.0]), "{idle:?}");
        let throttled: Vec<f64> = windows.iter().filter_map(|window| window.throttled).collect();
        assert!(near(&throttled, [50.0, 50.0, 50.0]), "{throttled:?}");
        assert_eq!(times.windows("video", None)[0].idle, None);
        assert!(times.windows("other", None).is_empty());
    }

    #[test]
    fn group_that_was_created_again_starts_anew() {
        let mut times = ProcessTimes::default();
        for (second, used) in [(0, 5.0), (1, 6.0), (2, 0.1), (3, 0.3)] {
            let at = Instant::ZERO + Duration::from_secs(second);
            times.sample(at, [("video".to_owned(), usage(used, 0.0))].into_iter());
        }
        let windows = times.windows("video", None);
        assert!(windows.iter().all(|window| (window.delivered - 20.0).abs() < 0.01), "{windows:?}");
        times.sample(Instant::ZERO + Duration::from_secs(4), std::iter::empty());
        assert!(times.windows("video", None).is_empty());
    }
}
