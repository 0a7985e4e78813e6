//! `apply`: time to check and to apply a large configuration, and the pause of packets meanwhile.
//!
//! The benchmark starts its own router with ports in memory, and with a worker that sleeps between changes.
//! No device is involved. The benchmark applies a configuration with 10,000 filters and 100,000 routes,
//! applies it again, and returns to the first configuration. Then it adds the same filters and routes from
//! command lists, with one command per line.
//!
//! Control and the command-line client keep two processors busy, so the kernel takes the worker's processor
//! away for milliseconds. In half of the repetitions, the worker has real-time priority. These repetitions
//! measure only the pause that the change causes. Real-time priority needs root.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::interrupt::check;
use crate::statistics::median;
use crate::testbed::process::{prefer, run as run_command};
use crate::testbed::router::Router;
use crate::testbed::scratch::Scratch;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of filters in the large configuration.
const FILTERS: u32 = 10_000;
const ROUTES: u32 = 100_000;
/// Number of repetitions; the result is their median.
const REPETITIONS: usize = 5;

/// Promised maximum: seconds to apply the large configuration.
const APPLY_LIMIT: f64 = 1.0;
/// Promised maximum: seconds to add the routes by a list, and seconds to remove them (100,000 routes per
/// second).
const LIST_LIMIT: f64 = 1.0;
/// Promised maximum: seconds to check the large configuration.
const CHECK_LIMIT: f64 = 1.0;
/// Promised maximum: longest pause of packets during a change in microseconds.
const PAUSE_LIMIT: f64 = 100.0;

/// Runs all cases of the benchmark `apply`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let folder = Scratch::new()?;
    let state = folder.file("state");
    let (small, large) =
        (folder.write("small.toml", base(&state))?, folder.write("large.toml", large(&state))?);
    let mut command = Command::new(&options.binary);
    command.args(["run", "--config", &small]);
    let router = Router::launch(command, &options.binary, folder.file("router.sock"))?;
    let (mut checks, mut applies, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let (mut back, mut pauses) = (Vec::new(), [Vec::<f64>::new(), Vec::new()]);
    let has_priority = (0..2 * REPETITIONS).map(|number| number % 2 == 0 && has_rights());
    for has_priority in has_priority {
        check()?;
        prefer_worker(&router, has_priority)?;
        let checked =
            timed(&mut checks, || run_command(&options.binary.to_string_lossy(), &["check", &large]))?;
        expect(&checked, "is valid")?;
        router.tell(&["clear"])?;
        let applied = timed(&mut applies, || router.tell(&["apply", &large, "--json"]))?;
        pauses[usize::from(has_priority)].push(longest_change(&router)?);
        let changes = count(&applied)?;
        let wanted = (FILTERS + ROUTES) as usize;
        if changes != wanted {
            return Err(BenchError::measurement(
                "apply",
                format!("the router made {changes} changes instead of {wanted}"),
            ));
        }
        expect(&timed(&mut again, || router.tell(&["apply", &large]))?, "nothing is changed")?;
        timed(&mut back, || router.tell(&["apply", &small, "--json"]))?;
        (options.progress)(&format!("applied in {:.3} s", applies.last().copied().unwrap_or_default()));
    }
    prefer_worker(&router, false)?;
    let lists = lists(&router, &folder, options)?;
    router.stop()?;
    let what = format!("{FILTERS} filters and {ROUTES} routes");
    let mut results = vec![
        Measurement::of(format!("{what}: checked"), median(&checks), "s")
            .promising(Bound::AtMost, CHECK_LIMIT),
        Measurement::of(format!("{what}: applied"), median(&applies), "s")
            .promising(Bound::AtMost, APPLY_LIMIT),
        Measurement::of(format!("{what}: applied again without changes"), median(&again), "s"),
        Measurement::of(format!("{what}: rolled back"), median(&back), "s"),
    ];
    let [others, alone] = &pauses;
    let iteration = format!("{what}: longest worker iteration during the change");
    if alone.is_empty() {
        (options.progress)(
            "can't raise the worker's priority: the worker's share of a change is not measured",
        );
    } else {
        let measured = Measurement::median_of(&iteration, alone, "us");
        results.push(measured.promising(Bound::AtMost, PAUSE_LIMIT));
    }
    let shared = format!("{iteration}, on a processor shared with control and the command");
    results.push(Measurement::median_of(shared, others, "us"));
    results.extend(lists);
    Ok(results)
}

/// Measures `filter add --from` and `route add --from` with the same filters and routes. The times include
/// the client's time.
fn lists(
    router: &Router,
    folder: &Scratch,
    options: &mut Options<'_>,
) -> Result<Vec<Measurement>, BenchError> {
    let routes: String = routes().map(|(to, via)| format!("{to} via {via}\n")).collect();
    let filters: String = filters().map(|matches| format!("{matches} action drop gate firewall\n")).collect();
    let (routes, filters) = (folder.write("routes.txt", routes)?, folder.write("filters.txt", filters)?);
    let (mut added, mut removed, mut filtered) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        check()?;
        let done = timed(&mut added, || router.tell(&["route", "add", "--from", &routes]))?;
        expect(&done, &format!("{ROUTES} routes added"))?;
        let done = timed(&mut removed, || router.tell(&["route", "remove", "--from", &routes]))?;
        expect(&done, &format!("{ROUTES} routes removed"))?;
        let done = timed(&mut filtered, || router.tell(&["filter", "add", "--from", &filters, "--json"]))?;
        let ids = parse(&done)?["ids"].as_array().cloned().unwrap_or_default();
        let ids: Vec<String> = ids.iter().map(Value::to_string).collect();
        expect(&format!("{} filters", ids.len()), &format!("{FILTERS} filters"))?;
        for some in ids.chunks(1000) {
            let remove = ["filter", "remove"].into_iter().chain(some.iter().map(String::as_str));
            router.tell(&remove.collect::<Vec<_>>())?;
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
fn base(state: &Path) -> String {
    let state = Value::from(state.display().to_string());
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
fn large(state: &Path) -> String {
    let mut text = base(state);
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

/// Whether the process may set real-time priorities.
fn has_rights() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Gives the thread of a router's worker real-time priority, or the normal priority.
fn prefer_worker(router: &Router, is_preferred: bool) -> Result<(), BenchError> {
    if !has_rights() {
        return Ok(());
    }
    let tasks =
        fs::read_dir(format!("/proc/{}/task", router.pid())).map_err(BenchError::system("list threads"))?;
    for task in tasks.flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let number = task.file_name().to_str().and_then(|number| number.parse::<i32>().ok());
        if let Some(number) = number.filter(|_| name.starts_with("worker-")) {
            prefer(number, is_preferred)?;
        }
    }
    Ok(())
}

/// Returns the duration in microseconds of the longest iteration in which the router's worker carried out a
/// change, since the counters were cleared.
fn longest_change(router: &Router) -> Result<f64, BenchError> {
    let status = parse(&router.tell(&["show", "status", "--json"])?)?;
    let longest = status["iterations"]["longest_change"].as_f64();
    longest
        .ok_or_else(|| BenchError::measurement("apply", "the router's answer has no duration of the change"))
}
