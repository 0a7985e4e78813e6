//! `apply`: time to check and to apply a large configuration, and the pause of packets meanwhile.
//!
//! The benchmark starts its own router with ports in memory and a worker that sleeps between changes. It
//! applies a configuration with 10,000 filters and 100,000 routes, applies it again, and returns to the first
//! configuration. Then it adds the same filters and routes by lists of commands, one per line. No device is
//! involved.
//!
//! Control and the command-line client keep two processors busy, so the kernel takes the worker's processor
//! away for milliseconds. To measure the pause of the change alone, the worker has real-time priority in half
//! of the repetitions, which needs root.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::unistd::pipe2;
use serde_json::Value;

use crate::interrupt::{check, wait_until};
use crate::statistics::median;
use crate::testbed::process::{Running, prefer, run as run_command};
use crate::{BenchError, Bound, Measurement, Options};

/// Filters of the large configuration.
const FILTERS: u32 = 10_000;
const ROUTES: u32 = 100_000;
/// Repetitions; the result is their median.
const REPETITIONS: usize = 5;
/// Time limit for the start of the router.
const PATIENCE: Duration = Duration::from_secs(20);

/// Promised maximum: seconds to apply the large configuration.
const APPLY_LIMIT: f64 = 1.0;
/// Promised maximum: seconds to add the routes by a list, and to remove them again (100,000 per second).
const LIST_LIMIT: f64 = 1.0;
/// Promised maximum: seconds to check the large configuration.
const CHECK_LIMIT: f64 = 1.0;
/// Promised maximum: longest pause of packets during a change in microseconds.
const PAUSE_LIMIT: f64 = 100.0;

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let folder = Folder::new()?;
    let small = folder.write("small.toml", &base(&folder.0))?;
    let large = folder.write("large.toml", &large(&folder.0))?;
    let router = Router::start(&options.binary, &folder, &small)?;
    let (mut checks, mut applies, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let (mut back, mut pauses) = (Vec::new(), [Vec::<f64>::new(), Vec::new()]);
    let has_priority = (0..2 * REPETITIONS).map(|number| number % 2 == 0 && router.has_rights());
    for has_priority in has_priority {
        check()?;
        router.prefer_worker(has_priority)?;
        let checked =
            timed(&mut checks, || run_command(&options.binary.to_string_lossy(), &["check", &large]))?;
        expect(&checked, "is valid")?;
        router.ask(&["clear"])?;
        let applied = timed(&mut applies, || router.ask(&["apply", &large, "--json"]))?;
        pauses[usize::from(has_priority)].push(router.longest_change()?);
        let changes = count(&applied)?;
        let wanted = (FILTERS + ROUTES) as usize;
        if changes != wanted {
            return Err(BenchError::measurement(
                "apply",
                format!("the router made {changes} changes instead of {wanted}"),
            ));
        }
        expect(&timed(&mut again, || router.ask(&["apply", &large]))?, "nothing is changed")?;
        timed(&mut back, || router.ask(&["apply", &small, "--json"]))?;
        (options.progress)(&format!("applied in {:.3} s", applies.last().copied().unwrap_or_default()));
    }
    router.prefer_worker(false)?;
    let lists = lists(&router, &folder, options)?;
    router.stop()?;
    let what = format!("{FILTERS} filters and {ROUTES} routes");
    let mut results = vec![
        Measurement::of(format!("{what}: checked"), median(&checks), "s")
            .promising(Bound::AtMost, CHECK_LIMIT),
        Measurement::of(format!("{what}: applied"), median(&applies), "s")
            .promising(Bound::AtMost, APPLY_LIMIT),
        Measurement::of(format!("{what}: applied again, which changes nothing"), median(&again), "s"),
        Measurement::of(format!("{what}: taken back"), median(&back), "s"),
    ];
    let [others, alone] = &pauses;
    let turn = format!("{what}: the longest turn of the worker meanwhile");
    if alone.is_empty() {
        (options.progress)(
            "can't raise the worker's priority: the worker's share of a change is not measured",
        );
    } else {
        let measured = Measurement::median_of(&turn, alone, "us");
        results.push(measured.promising(Bound::AtMost, PAUSE_LIMIT));
    }
    let shared = format!("{turn}, while control and the command share its processor");
    results.push(Measurement::median_of(shared, others, "us"));
    results.extend(lists);
    Ok(results)
}

/// Measures adding the same filters and routes with `--from`. The times include the client's.
fn lists(
    router: &Router,
    folder: &Folder,
    options: &mut Options<'_>,
) -> Result<Vec<Measurement>, BenchError> {
    let routes: String = routes().map(|(to, via)| format!("{to} via {via}\n")).collect();
    let filters: String = filters().map(|matches| format!("{matches} action drop gate firewall\n")).collect();
    let (routes, filters) = (folder.write("routes.txt", &routes)?, folder.write("filters.txt", &filters)?);
    let (mut added, mut removed, mut filtered) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        check()?;
        let done = timed(&mut added, || router.ask(&["route", "add", "--from", &routes]))?;
        expect(&done, &format!("{ROUTES} routes added"))?;
        let done = timed(&mut removed, || router.ask(&["route", "remove", "--from", &routes]))?;
        expect(&done, &format!("{ROUTES} routes removed"))?;
        let done = timed(&mut filtered, || router.ask(&["filter", "add", "--from", &filters, "--json"]))?;
        let ids = parse(&done)?["ids"].as_array().cloned().unwrap_or_default();
        let ids: Vec<String> = ids.iter().map(Value::to_string).collect();
        expect(&format!("{} filters", ids.len()), &format!("{FILTERS} filters"))?;
        for some in ids.chunks(1000) {
            let remove = ["filter", "remove"].into_iter().chain(some.iter().map(String::as_str));
            router.ask(&remove.collect::<Vec<_>>())?;
        }
        let last = |times: &[f64]| times.last().copied().unwrap_or_default();
        (options.progress)(&format!(
            "{ROUTES} routes added as one list in {:.3} s, removed in {:.3} s",
            last(&added),
            last(&removed)
        ));
    }
    Ok(vec![
        Measurement::of(format!("{ROUTES} routes added by a list"), median(&added), "s")
            .promising(Bound::AtMost, LIST_LIMIT),
        Measurement::of(format!("{ROUTES} routes removed by a list"), median(&removed), "s")
            .promising(Bound::AtMost, LIST_LIMIT),
        Measurement::of(format!("{FILTERS} filters added by a list"), median(&filtered), "s"),
    ])
}

/// Returns the match expressions of the filters.
fn filters() -> impl Iterator<Item = String> {
    (0..FILTERS).map(|filter| {
        let (high, low, port) = (filter / 250, filter % 250, 1024 + filter % 30_000);
        format!("src 172.16.{high}.{low} proto udp dport {port} in a")
    })
}

/// Returns the prefixes and next hops of the routes.
fn routes() -> impl Iterator<Item = (String, String)> {
    (0..ROUTES).map(|route| {
        let (one, two, three) = (20 + route / 65_536, route / 256 % 256, route % 256);
        (format!("{one}.{two}.{three}.0/24"), format!("10.2.0.{}", 2 + route % 200))
    })
}

/// Returns the configuration of two ports in memory.
fn base(folder: &Path) -> String {
    let state = serde_json::Value::from(folder.join("state").display().to_string());
    let mut text = format!("[router]\nmode = \"interrupt\"\n\n[plugins]\nstate = {state}\n");
    for (name, network) in [("a", 1), ("b", 2)] {
        let _ = write!(
            text,
            "\n[[port]]\nname = \"{name}\"\nkind = \"memory\"\naddress = [\"10.{network}.0.1/24\"]\n"
        );
    }
    text
}

/// Returns the base configuration with the filters and routes.
fn large(folder: &Path) -> String {
    let mut text = base(folder);
    for matches in filters() {
        let _ = write!(text, "\n[[filter]]\nmatch = \"{matches}\"\naction = \"drop\"\ngate = \"firewall\"\n");
    }
    for (to, via) in routes() {
        let _ = write!(text, "\n[[route]]\nto = \"{to}\"\nvia = \"{via}\"\n");
    }
    text
}

fn timed<T>(times: &mut Vec<f64>, work: impl FnOnce() -> Result<T, BenchError>) -> Result<T, BenchError> {
    let start = Instant::now();
    let done = work()?;
    times.push(start.elapsed().as_secs_f64());
    Ok(done)
}

/// Parses the JSON object in a command's output; progress lines may precede the object.
fn parse(text: &str) -> Result<Value, BenchError> {
    let object = text.find("\n{").map_or(text, |at| &text[at..]);
    serde_json::from_str(object).map_err(|error| BenchError::measurement("apply", format!("{error}: {text}")))
}

fn count(applied: &str) -> Result<usize, BenchError> {
    Ok(parse(applied)?["changes"].as_array().map_or(0, Vec::len))
}

fn expect(text: &str, word: &str) -> Result<(), BenchError> {
    match text.contains(word) {
        true => Ok(()),
        false => {
            Err(BenchError::measurement("apply", format!("expected {word:?} in the answer, got {text:?}")))
        }
    }
}

/// Temporary folder. Dropping it removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, BenchError> {
        let path = std::env::temp_dir().join(format!("millrace-bench-apply-{}", std::process::id()));
        fs::create_dir(&path).map_err(BenchError::system(format!("make {}", path.display())))?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> Result<String, BenchError> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(BenchError::system(format!("write {}", path.display())))?;
        Ok(path.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Remaining files are in the system's folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Measured router. Dropping it kills the process.
struct Router {
    running: Running,
    binary: String,
    socket: String,
}

impl Router {
    fn start(binary: &Path, folder: &Folder, config: &str) -> Result<Self, BenchError> {
        let (ready, announce) =
            pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(BenchError::system("make a pipe"))?;
        fcntl(&announce, FcntlArg::F_SETFD(FdFlag::empty())).map_err(BenchError::system("prepare a pipe"))?;
        let socket = folder.0.join("router.sock").display().to_string();
        let mut command = Command::new(binary);
        command.args(["--socket", &socket, "run", "--config", config]);
        command.args(["--ready-fd", &announce.as_raw_fd().to_string()]);
        let binary = binary.display().to_string();
        let mut router = Self { running: Running::start(&mut command)?, binary, socket };
        drop(announce);
        let mut ready = File::from(ready);
        let forwards = wait_until(PATIENCE, || {
            if ready.read(&mut [0; 16]).is_ok_and(|length| length > 0) {
                return Ok(true);
            }
            match router.running.ended()? {
                Some(status) => Err(router.running.failure(&status.to_string())),
                None => Ok(false),
            }
        })?;
        if forwards {
            Ok(router)
        } else {
            Err(router.running.failure(&format!("not ready after {PATIENCE:?}")))
        }
    }

    /// Whether the process may set real-time priorities.
    fn has_rights(&self) -> bool {
        nix::unistd::geteuid().is_root()
    }

    /// Gives the worker's thread real-time priority, or the normal priority.
    fn prefer_worker(&self, is_preferred: bool) -> Result<(), BenchError> {
        if !self.has_rights() {
            return Ok(());
        }
        let tasks = fs::read_dir(format!("/proc/{}/task", self.running.pid()))
            .map_err(BenchError::system("list threads"))?;
        for task in tasks.flatten() {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let number = task.file_name().to_str().and_then(|number| number.parse::<i32>().ok());
            if let Some(number) = number.filter(|_| name.starts_with("worker-")) {
                prefer(number, is_preferred)?;
            }
        }
        Ok(())
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, BenchError> {
        let mut all = vec!["--socket", &*self.socket];
        all.extend(arguments);
        run_command(&self.binary, &all)
    }

    /// Returns the duration of the longest iteration with a change since the counters were cleared, in
    /// microseconds.
    fn longest_change(&self) -> Result<f64, BenchError> {
        let status = parse(&self.ask(&["show", "status", "--json"])?)?;
        let longest = status["turns"]["longest_change"].as_f64();
        longest.ok_or_else(|| {
            BenchError::measurement("apply", "the router's answer has no duration of the change")
        })
    }

    fn stop(self) -> Result<(), BenchError> {
        self.running.stop(Signal::SIGTERM).map(drop)
    }
}
