//! Counts instructions and cache misses of a part of this binary's run, with valgrind's callgrind.
//!
//! Callgrind counts cache misses in two simulated caches of 32 KiB and 512 KiB, both eight-way and without
//! prefetching. The simulated caches differ from the machine's, but they are the same for all code and in
//! every run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::BenchError;
use crate::testbed::process::Running;
use crate::testbed::scratch::Scratch;

/// Units of the counts: instructions, and read misses of each simulated cache.
pub(crate) const UNITS: [&str; 3] = ["instructions", "misses of 32 KiB", "misses of 512 KiB"];

/// Returns the command-line name for a part of a benchmark that runs in its own process: `BENCH/PART`, with
/// the part as JSON.
pub(crate) fn name_of(bench: &str, part: &impl Serialize) -> String {
    format!("{bench}/{}", serde_json::to_string(part).unwrap_or_default())
}

/// Parses a name that [`name_of`] has returned; returns `None` for any other name.
pub(crate) fn part_of<T: DeserializeOwned>(bench: &str, name: &str) -> Option<T> {
    serde_json::from_str(name.strip_prefix(bench)?.strip_prefix('/')?).ok()
}

/// Counts the cost of `millrace bench NAME` within functions named `callgrind_measured`, in [`UNITS`].
/// Returns `None` if the binary has no function names.
pub(crate) fn count(binary: &Path, name: &str, patience: Duration) -> Result<Option<[f64; 3]>, BenchError> {
    run(binary, name, &["--cache-sim=yes", "--D1=32768,8,64", "--LL=524288,8,64"], patience)
}

/// Counts only instructions, without simulated caches.
pub(crate) fn instructions(binary: &Path, name: &str, patience: Duration) -> Result<Option<f64>, BenchError> {
    Ok(run(binary, name, &[], patience)?.map(|[instructions, ..]| instructions))
}

/// Runs `work`. Callgrind counts only inside this function.
#[inline(never)]
pub(crate) fn callgrind_measured<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Marks the end of a part of the work for [`parts`].
#[inline(never)]
pub(crate) fn callgrind_part_ends(part: usize) {
    std::hint::black_box(part);
}

/// Counts the instructions of each part of `millrace bench NAME`, in order. A part is the work within
/// `callgrind_measured` up to the next `callgrind_part_ends`. Returns no parts if the binary has no function
/// names.
pub(crate) fn parts(binary: &Path, name: &str, patience: Duration) -> Result<Vec<f64>, BenchError> {
    let scratch = Scratch::new()?;
    let file = scratch.file("parts");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--combine-dumps=yes", "--dump-line=no", "--collect-atstart=no"]);
    command.args(["--toggle-collect=*callgrind_measured*", "--dump-before=*callgrind_part_ends*"]);
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.env(LIBRARY.0, LIBRARY.1).arg(binary).args(["bench", name]);
    Running::start(&mut command)?.finish(patience)?;
    let text =
        std::fs::read_to_string(&file).map_err(BenchError::system(format!("read {}", file.display())))?;
    Ok(parts_of(&text))
}

/// Environment variable with its value. With it, the C library copies memory with the same code on every
/// processor.
const LIBRARY: (&str, &str) =
    ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-FSRM,-AVX512VL,-AVX512F");

/// Returns the counts of callgrind's dumps. Omits the last dump, which callgrind writes at the end of the
/// program.
fn parts_of(text: &str) -> Vec<f64> {
    let mut parts: Vec<f64> =
        text.lines().filter_map(|line| line.strip_prefix("summary:")?.trim().parse().ok()).collect();
    parts.pop();
    parts
}

fn run(
    binary: &Path,
    name: &str,
    options: &[&str],
    patience: Duration,
) -> Result<Option<[f64; 3]>, BenchError> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.args(options).arg("--toggle-collect=*callgrind_measured*").arg(binary);
    command.args(["bench", name]);
    Ok(collected(&Running::start(&mut command)?.finish(patience)?))
}

/// Parses instructions, and read misses of the first and the last level, from callgrind's summary.
fn collected(output: &str) -> Option<[f64; 3]> {
    let line = output.lines().find_map(|line| line.split_once("Collected :"))?.1;
    let mut counts: Vec<f64> = line.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    // Columns: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw. Callgrind omits zeros at the end.
    counts.resize(9, 0.0);
    let [instructions, _, _, _, first, _, _, last, _] = counts[..] else { return None };
    (instructions > 0.0).then_some([instructions, first, last])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_without_the_programs_end() {
        let text = "part: 1\nsummary: 1200\nfn=(1)\n0 1200\ntotals: 1200\npart: 2\nsummary: 34\npart: 3\nsummary: 0\n";
        assert_eq!(parts_of(text), [1200.0, 34.0]);
        assert!(parts_of("").is_empty());
    }

    #[test]
    fn the_sums_are_found() {
        let line = "==7== Collected : 800 200 50 4 90 5 3 40 2\n";
        assert_eq!(collected(line), Some([800.0, 90.0, 40.0]));
        assert_eq!(collected("==7== Collected : 800 200 50 4 90\n"), Some([800.0, 90.0, 0.0]));
        assert_eq!(
            collected("==7== Events    : Ir\n==7== Collected : 1234\n==7==\n"),
            Some([1234.0, 0.0, 0.0])
        );
        assert_eq!(collected("==7== Collected : 0 0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(collected("nothing"), None);
    }
}
