//! `user-process`: processor time, memory and disk transfer of user processes, compared with the allocation of their
//! principal.

use std::time::{Duration, Instant as Clock};

use serde_json::Value;

use super::failed;
use crate::interrupt::check;
use crate::testbed::network::Network;
use crate::testbed::process::{Running, is_installed};
use crate::testbed::router::Router;
use crate::{BenchError, Bound, Measurement, Options};

/// Promised greatest difference from an allocation, in percent of it.
const LIMIT: f64 = 5.0;
/// Limit of processor time, in percent of a processor.
const CPU: f64 = 20.0;
/// Memory limit, in bytes.
const MEMORY: f64 = (32 << 20) as f64;
/// Disk limit, in bytes per second; and the bytes of a run, written in blocks of 64 KiB.
const DISK: f64 = 2e6;
const BLOCKS: u32 = 192;
const WRITTEN: f64 = (BLOCKS * 65_536) as f64;
/// Time of a measurement of processor time, the time before it, and the number of measurements of each kind.
const TIME: Duration = Duration::from_secs(3);
const WARM_UP: Duration = Duration::from_millis(500);
const ROUNDS: usize = 3;
/// Longest time of a run.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shell script that keeps a processor busy.
const BUSY: &str = "while :; do :; done";
/// Shell script that takes memory without end: `tail` keeps its input, because it has no line breaks.
const FILL: &str = "head -c 1000000000 /dev/zero | tail > /dev/null";

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let network = Network::new()?;
    let router = Router::start(&options.binary, &network, None)?;
    let mut results = Vec::new();
    for (what, measure) in [
        ("processor time", cpu as fn(&Router) -> _),
        ("weights 1 to 3", weights),
        ("memory", memory),
        ("disk", disk),
    ] {
        let runs = (0..ROUNDS).map(|_| check().and_then(|()| measure(&router)));
        match runs.collect::<Result<Option<Vec<f64>>, _>>()? {
            None => (options.progress)(&format!("user-process: this machine can't divide {what}")),
            Some(errors) => {
                let name = format!("user process, {what}, difference from the allocation");
                let result = Measurement::median_of(name, &errors, "%").promising(Bound::AtMost, LIMIT);
                (options.progress)(&format!("{}: {:.2} %", result.case, result.ours));
                results.push(result);
            }
        }
    }
    router.stop()?;
    Ok(results)
}

/// Measures a busy process with a limit. Returns the difference in percent; `None` if no group counts its time.
fn cpu(router: &Router) -> Result<Option<f64>, BenchError> {
    let _principal = Principal::add(router, "user", &format!("cpu-limit={CPU}%"))?;
    let _busy = start(router, "user", BUSY)?;
    std::thread::sleep(WARM_UP);
    let (begun, Some(before)) = (Clock::now(), used(router, "user")?) else { return Ok(None) };
    std::thread::sleep(TIME);
    let Some(after) = used(router, "user")? else { return Ok(None) };
    let percent = 100.0 * (after - before) / begun.elapsed().as_secs_f64();
    Ok(Some(difference(percent, CPU)))
}

/// Measures busy processes of two principals that share a processor by weight.
fn weights(router: &Router) -> Result<Option<f64>, BenchError> {
    if !is_installed("taskset") {
        return Ok(None);
    }
    let _one = Principal::add(router, "one", "weight=100")?;
    let _three = Principal::add(router, "three", "weight=300")?;
    let pinned = format!("exec taskset -c 0 sh -c '{BUSY}'");
    let _running = [start(router, "one", &pinned)?, start(router, "three", &pinned)?];
    std::thread::sleep(WARM_UP);
    let both = || Ok::<_, BenchError>(used(router, "one")?.zip(used(router, "three")?));
    let Some((one, three)) = both()? else { return Ok(None) };
    std::thread::sleep(TIME);
    let Some((one_after, three_after)) = both()? else { return Ok(None) };
    let (one, three) = (one_after - one, three_after - three);
    Ok(Some(difference(100.0 * one / (one + three), 25.0)))
}

/// Fills the memory of a principal until the kernel ends the process. Returns the difference of the highest use.
fn memory(router: &Router) -> Result<Option<f64>, BenchError> {
    let _principal = Principal::add(router, "user", &format!("memory={MEMORY}B"))?;
    // The kernel kills the process.
    start(router, "user", FILL)?.finish(PATIENCE).err();
    let peak = usage(router, "user")?.get("memory_peak").and_then(Value::as_f64);
    Ok(peak.map(|peak| difference(peak, MEMORY)))
}

/// Writes to a disk. Returns the difference of the rate; `None` if the directory of temporary files is in memory.
fn disk(router: &Router) -> Result<Option<f64>, BenchError> {
    let _principal = Principal::add(router, "user", &format!("disk={DISK}B/s"))?;
    let file = std::env::temp_dir().join(format!("millrace-bench-disk-{}", std::process::id()));
    let write = format!("exec dd if=/dev/zero of={} oflag=direct bs=64k count={BLOCKS}", file.display());
    let begun = Clock::now();
    let ended = start(router, "user", &write)?.finish(PATIENCE);
    let rate = WRITTEN / begun.elapsed().as_secs_f64();
    // The file doesn't exist if the directory refuses direct writes.
    let _ = std::fs::remove_file(&file);
    Ok(ended.is_ok().then(|| difference(rate, DISK)))
}

/// Returns the difference of a figure from its allocation, in percent of the allocation.
fn difference(figure: f64, allocation: f64) -> f64 {
    100.0 * (figure - allocation).abs() / allocation
}

/// Principal of a running router. Dropping it removes the principal.
struct Principal<'a> {
    router: &'a Router,
    name: &'static str,
}

impl<'a> Principal<'a> {
    fn add(router: &'a Router, name: &'static str, setting: &str) -> Result<Self, BenchError> {
        router.tell(&["principal", "add", name, setting])?;
        Ok(Self { router, name })
    }
}

impl Drop for Principal<'_> {
    fn drop(&mut self) {
        // A principal that is left has no processes, and ends with the router.
        let _ = self.router.tell(&["principal", "remove", self.name]);
    }
}

/// Starts a shell script as a user process of a principal.
fn start(router: &Router, principal: &str, script: &str) -> Result<Running, BenchError> {
    Running::start(&mut router.command(&["exec", "--principal", principal, "--", "sh", "-c", script]))
}

fn usage(router: &Router, principal: &str) -> Result<Value, BenchError> {
    let shown = router.tell(&["principal", "show", principal, "--json"])?;
    let mut shown: Value = serde_json::from_str(&shown).map_err(failed)?;
    Ok(shown.get_mut("usage").map(Value::take).unwrap_or_default())
}

/// Returns the processor time of a principal's processes so far, in seconds.
fn used(router: &Router, principal: &str) -> Result<Option<f64>, BenchError> {
    Ok(usage(router, principal)?.get("cpu_seconds").and_then(Value::as_f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_a_part_of_the_allocation() {
        assert_eq!((difference(19.0, 20.0), difference(22.0, 20.0)), (5.0, 10.0));
    }
}
