//! Measurement of the machine, for a hardware file: cycles of processors, and costs of the switches between them.
//!
//! It takes less than a minute, with one run for each figure where the benchmark `levels` makes several.

use std::fs;
use std::time::{Duration, Instant};

use millrace_admission::hardware::{Line, Measured, MeasuredPort, Offload};
use millrace_offload::{VARIANTS, link_speed};
use millrace_pipeline::EBPF_VARIANT_LIMIT;

use crate::cpu::process::time_of_exchange;
use crate::levels::{
    Boundary, SIZES, TO_KERNEL, TO_WORKER, cycles_of_a_nanosecond, hand_over_time, offload_time,
};
use crate::memory::traffic::Size;
use crate::testbed::network::Network;
use crate::testbed::process::SessionFirst;
use crate::{BenchError, Options, interrupt};

/// Time after which no further figure is begun. A figure takes up to 12 s.
const PATIENCE: Duration = Duration::from_secs(45);
/// Smallest and largest plausible frequency of a processor, in cycles per nanosecond.
const FREQUENCIES: std::ops::RangeInclusive<f64> = 0.1..=10.0;

/// Length of the shortest frame without its check sequence, in bytes.
const SHORTEST: usize = 60;

/// Parts of the router that a hardware file describes.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Number of workers; by default two, or one on a machine with one processor.
    pub workers: Option<usize>,
    /// Share of a worker's processor that core may use, above 0 and below 1.
    pub core_ceiling: f64,
}

/// Measured machine.
#[derive(Debug)]
pub struct Machine {
    /// Figures.
    pub measured: Measured,
    /// Entries that the hardware file lacks.
    pub missing: Vec<Missing>,
}

/// Entry that a hardware file lacks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Missing {
    /// Entry.
    pub entry: &'static str,
    /// Reason.
    pub why: String,
}

/// Measures the machine in at most a minute.
///
/// # Errors
/// The measurement was interrupted, or the machine has no usable time-stamp counter.
pub fn measure(options: &mut Options<'_>, parts: Parts) -> Result<Machine, BenchError> {
    let _watch = interrupt::Interrupt::watch();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = parts.workers.unwrap_or(processors.min(2));
    let mut survey = Survey { start: Instant::now(), options, missing: Vec::new() };
    let measured = Measured {
        name: host_name(),
        processors,
        workers,
        cycles_per_second: frequency()? * 1e9,
        core_ceiling: parts.core_ceiling,
        memory: survey.known("memory", free_memory()),
        ports: survey.ports(),
        ..Measured::default()
    };
    let measured = survey.rings(measured)?;
    let measured = survey.levels(measured)?;
    Ok(Machine { measured, missing: survey.missing })
}

/// Measurement in progress.
struct Survey<'a, 'b> {
    start: Instant,
    options: &'a mut Options<'b>,
    missing: Vec<Missing>,
}

impl Survey<'_, '_> {
    fn lacks(&mut self, entry: &'static str, why: impl Into<String>) {
        let missing = Missing { entry, why: why.into() };
        (self.options.progress)(&format!("{}: left out: {}", missing.entry, missing.why));
        self.missing.push(missing);
    }

    fn known<T>(&mut self, entry: &'static str, found: Result<T, String>) -> Option<T> {
        found.map_err(|why| self.lacks(entry, why)).ok()
    }

    /// Measures times at both packet sizes, in nanoseconds. Returns a line for each time. `None` if the figures
    /// can't be measured, are implausible, or if there is no time left.
    fn lines<const N: usize>(
        &mut self,
        entry: &'static str,
        mut times: impl FnMut(Size, &Options<'_>) -> Result<[f64; N], BenchError>,
    ) -> Result<Option<[Line; N]>, BenchError> {
        let mut points = Vec::new();
        for size in SIZES {
            interrupt::check()?;
            if self.start.elapsed() > PATIENCE {
                self.lacks(entry, format!("no time left after {} s", PATIENCE.as_secs()));
                return Ok(None);
            }
            match times(size, self.options) {
                Ok(times) => {
                    let words: Vec<String> = times.iter().map(|time| format!("{time:.0}")).collect();
                    (self.options.progress)(&format!("{entry}, {}: {} ns", size.words(), words.join(", ")));
                    points.push((bytes(size), times));
                }
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    self.lacks(entry, error.to_string());
                    return Ok(None);
                }
            }
        }
        let lines = lines_through(&points);
        if lines.is_none() {
            self.lacks(entry, "a measured time is not from 0 to 1 ms: other work disturbs the machine");
        }
        Ok(lines)
    }

    /// Measures the switches that need no devices: rings between workers, and rings of processes.
    fn rings(&mut self, mut measured: Measured) -> Result<Measured, BenchError> {
        if measured.processors < 2 || measured.workers < 2 {
            self.lacks("worker rings", "they need two workers, on a machine with two processors");
        } else {
            // Each of the two workers has half of the time.
            let times = |size, _: &Options<'_>| Ok([hand_over_time(size)? / 2.0]);
            measured.worker_rings = self.lines("worker rings", times)?.map(|[line]| line);
        }
        // A call carries the windows of packets, whatever their sizes are, so one figure is that of all sizes.
        let mut known = None;
        let times = |_, options: &Options<'_>| {
            let time = match known {
                Some(time) => time,
                None => time_of_exchange(&options.binary)?,
            };
            known = Some(time);
            Ok([time])
        };
        measured.process_rings = self.lines("process rings", times)?.map(|[line]| line);
        Ok(measured)
    }

    /// Measures the offload and the switches between the levels, in network namespaces.
    fn levels(&mut self, mut measured: Measured) -> Result<Measured, BenchError> {
        let why = if !nix::unistd::geteuid().is_root() {
            Some("needs root, for network namespaces".to_owned())
        } else if measured.processors < 2 {
            Some("needs two processors: one generates the packets".to_owned())
        } else {
            None
        };
        let network = match why {
            Some(why) => Err(why),
            None => network().map_err(|error| error.to_string()),
        };
        let network = match network {
            Ok(network) => network,
            Err(why) => {
                for entry in ["socket rings", "offload and XDP redirect", "host and kernel hand-over"] {
                    self.lacks(entry, why.clone());
                }
                return Ok(measured);
            }
        };
        let _first = SessionFirst::begin();
        let run = |boundary: Boundary, size, options: &Options<'_>| boundary.run(&network, size, options);
        let worker = self.lines("socket rings", |size, options| {
            let run = run(TO_WORKER, size, options)?;
            Ok([run.worker, run.offload])
        })?;
        let Some([through_worker, pass]) = worker else {
            for entry in ["offload and XDP redirect", "host and kernel hand-over"] {
                self.lacks(entry, "the socket rings to the worker were not measured");
            }
            return Ok(measured);
        };
        measured.socket_rings = Some(through_worker);
        let redirect = self.lines("offload and XDP redirect", |size, options| {
            Ok([offload_time(&network, size, options)?])
        })?;
        measured.offload = redirect.map(|[redirect]| Offload {
            instructions: EBPF_VARIANT_LIMIT,
            programs: VARIANTS,
            redirect,
            pass,
        });
        let kernel = self.lines("host and kernel hand-over", |size, options| {
            let through = through_worker.at(bytes(size));
            Ok([run(TO_KERNEL, size, options)?.worker - through])
        })?;
        measured.kernel_hand_over = kernel.map(|[line]| line);
        Ok(measured)
    }

    /// Returns the ports of the machine that report a link speed, grouped by it.
    fn ports(&mut self) -> Vec<MeasuredPort> {
        let mut ports: Vec<MeasuredPort> = Vec::new();
        for bits in physical_devices().iter().filter_map(|device| link_speed(device)) {
            let name = format!("{}mbit", bits / 1_000_000);
            match ports.iter_mut().find(|port| port.name == name) {
                Some(port) => port.count += 1,
                None => ports.push(MeasuredPort { name, count: 1, bits_per_second: bits as f64 }),
            }
        }
        if ports.is_empty() {
            self.lacks("ports", "no device of this machine reports a link speed");
        }
        ports
    }
}

/// Returns the length of a frame, without its check sequence.
fn bytes(size: Size) -> f64 {
    size.of(0).max(SHORTEST) as f64
}

/// Returns a line for each time through its points; `None` if a time is implausible.
fn lines_through<const N: usize>(points: &[(f64, [f64; N])]) -> Option<[Line; N]> {
    let [small, large] = points else { return None };
    let mut lines = [Line::default(); N];
    for (line, (one, other)) in lines.iter_mut().zip(small.1.into_iter().zip(large.1)) {
        *line = Line::through([(small.0, one), (large.0, other)])?;
    }
    Some(lines)
}

fn network() -> Result<Network, BenchError> {
    let network = Network::new()?;
    network.connect_beside()?;
    Ok(network)
}

/// Returns the cycles per nanosecond of the time-stamp counter, in which the router accounts processor time.
fn frequency() -> Result<f64, BenchError> {
    let case = "cycles of a processor";
    let cycles = cycles_of_a_nanosecond()
        .ok_or_else(|| BenchError::measurement(case, "the machine has no time-stamp counter"))?;
    if FREQUENCIES.contains(&cycles) {
        Ok(cycles)
    } else {
        Err(BenchError::measurement(case, format!("{cycles} cycles per ns are not from 0.1 to 10")))
    }
}

/// Returns the devices with hardware of their own in the calling thread's namespace.
fn physical_devices() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return Vec::new() };
    let physical = entries.flatten().filter(|entry| entry.path().join("device").exists());
    let mut names: Vec<String> =
        physical.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "this machine".to_owned() } else { name.trim().to_owned() }
}

/// Returns the memory in bytes that services could use.
fn free_memory() -> Result<f64, String> {
    let text = fs::read_to_string("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    available(&text).ok_or_else(|| "/proc/meminfo has no MemAvailable".to_owned())
}

fn available(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_services_could_use_is_read_in_bytes() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2048.0 * 1024.0));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn two_sizes_give_a_line_for_each_time() {
        let lines = lines_through(&[(100.0, [10.0, 30.0]), (200.0, [20.0, 30.0])]).unwrap();
        assert_eq!(lines, [Line { packet: 0.0, byte: 0.1 }, Line { packet: 30.0, byte: 0.0 }]);
        assert_eq!(lines_through(&[(100.0, [10.0])]), None);
        assert_eq!(lines_through(&[(100.0, [-1.0]), (200.0, [5.0])]), None);
    }

    #[test]
    fn failed_figure_is_left_out_with_its_reason_and_an_interruption_ends_the_measurement() {
        let _alone = interrupt::FLAG_IN_USE.lock().unwrap();
        let _watch = interrupt::Interrupt::watch();
        let mut progress = |_: &str| {};
        let mut options =
            Options { binary: "/nonexistent".into(), workload: None, case: None, progress: &mut progress };
        let mut survey = Survey { start: Instant::now(), options: &mut options, missing: Vec::new() };
        let failed = |_, _: &Options<'_>| Err::<[f64; 1], _>(BenchError::measurement("case", "broken"));
        assert!(survey.lines("one", failed).unwrap().is_none());
        assert!(survey.lines("two", |_, _| Ok([-5.0])).unwrap().is_none());
        let stopped = |_, _: &Options<'_>| Err::<[f64; 1], _>(BenchError::Interrupted);
        assert!(matches!(survey.lines("three", stopped), Err(BenchError::Interrupted)));
        survey.start = Instant::now().checked_sub(PATIENCE * 2).unwrap();
        assert!(survey.lines("four", |_, _| Ok([5.0])).unwrap().is_none());
        let entries: Vec<_> = survey.missing.iter().map(|missing| missing.entry).collect();
        assert_eq!(entries, ["one", "two", "four"]);
        assert!(survey.missing[0].why.contains("broken"), "{:?}", survey.missing);
    }
}
