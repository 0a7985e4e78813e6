//! Times of each processor, with the time that the hypervisor took (`proc_stat(5)`).

use std::path::Path;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

use crate::error::GroupError;
use crate::files::read;
use crate::thread::Processor;

/// Times of a processor since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessorTimes {
    /// Number of the processor.
    pub processor: Processor,
    /// Time with work of processes, of the kernel, of interrupts and of guests.
    pub busy: Duration,
    /// Time without work, also while waiting for disks.
    pub idle: Duration,
    /// Time during which the processor had work, but the hypervisor ran something else.
    pub steal: Duration,
}

impl ProcessorTimes {
    /// Returns the times since an earlier reading of the same processor.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            processor: self.processor,
            busy: self.busy.saturating_sub(earlier.busy),
            idle: self.idle.saturating_sub(earlier.idle),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// Returns the stolen part of the time, in parts per million.
    pub fn steal_ppm(&self) -> u32 {
        let all = (self.busy + self.idle + self.steal).as_micros().max(1);
        u32::try_from(self.steal.as_micros() * 1_000_000 / all).unwrap_or(u32::MAX)
    }
}

/// Reads the times of all processors.
///
/// # Errors
/// `/proc/stat` can't be read.
pub fn processor_times() -> Result<Vec<ProcessorTimes>, GroupError> {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok());
    Ok(read_processor_times(&read(Path::new("/proc/stat"))?, per_second.unwrap_or(100)))
}

/// Reads the times of all processors in the text of `/proc/stat`, which counts ticks, `per_second` of them a
/// second. Malformed lines are left out. Old kernels without steal time have none.
pub fn read_processor_times(text: &str, per_second: u64) -> Vec<ProcessorTimes> {
    text.lines().filter_map(|line| processor(line, per_second)).collect()
}

/// Reads a line: `cpu0 USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL GUEST GUEST_NICE`. User time contains
/// the time of guests. The line `cpu` of all processors has no number.
fn processor(line: &str, per_second: u64) -> Option<ProcessorTimes> {
    let (name, counts) = line.strip_prefix("cpu")?.split_once(' ')?;
    let processor = Processor(name.parse().ok()?);
    let counts: Vec<u64> = counts.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, waiting, interrupts, deferred, rest @ ..] = counts.as_slice() else {
        return None;
    };
    let time = |ticks: &[u64]| {
        let ticks = ticks.iter().fold(0u64, |sum, ticks| sum.saturating_add(*ticks));
        Duration::from_micros(ticks.saturating_mul(1_000_000) / per_second.max(1))
    };
    Some(ProcessorTimes {
        processor,
        busy: time(&[*user, *nice, *system, *interrupts, *deferred]),
        idle: time(&[*idle, *waiting]),
        steal: time(rest.get(..1).unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_each_processor_are_read() {
        let text = "cpu  30 0 0 50 0 0 0 20 0 0\ncpu0 10 1 2 40 5 3 4 20 9 9\ncpu12 1 0 0 0 0 0 0\n\
                    intr 17 0\nctxt 5\n";
        let milliseconds = Duration::from_millis;
        let times = |processor, busy, idle, steal| ProcessorTimes {
            processor: Processor(processor),
            busy: milliseconds(busy),
            idle: milliseconds(idle),
            steal: milliseconds(steal),
        };
        assert_eq!(read_processor_times(text, 100), [times(0, 200, 450, 200), times(12, 10, 0, 0)]);
    }

    #[test]
    fn malformed_lines_are_left_out() {
        let text = "cpu0\ncpu0 1 2 3\ncpux 1 2 3 4 5 6 7 8\ncpu99999999 1 2 3 4 5 6 7 8\n";
        assert_eq!(read_processor_times(text, 100), []);
        let huge = format!("cpu0 {0} {0} 0 {0} 0 0 0 {0}", u64::MAX);
        assert_eq!(read_processor_times(&huge, 0).len(), 1);
    }

    #[test]
    fn steal_is_a_part_of_the_time_between_two_readings() {
        let [earlier, later] = ["cpu0 100 0 0 100 0 0 0 0", "cpu0 130 0 0 150 0 0 0 20"]
            .map(|text| read_processor_times(text, 100)[0]);
        assert_eq!(later.since(&earlier).steal_ppm(), 200_000);
        assert_eq!(earlier.since(&later).steal_ppm(), 0);
    }

    #[test]
    fn this_machine_has_processors() {
        let times = processor_times().unwrap();
        assert!(!times.is_empty());
        assert!(times.iter().any(|one| one.busy > Duration::ZERO));
    }
}
