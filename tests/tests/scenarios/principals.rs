//! Principals: control groups that limit processes, from the configuration to the shutdown.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_testkit::{Ended, Ground, Line, Millrace, eventually, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_source_for};

pub(crate) const PORTS: &str = "[router]\non-death = \"kernel\"\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\n\
                     name = \"r2\"\ndevice = \"r2\"\n";
pub(crate) const VIDEO: &str = "[[principal]]\nname = \"video\"\ncpu = \"5 %\"\ncpu-limit = \"20 %\"\nmemory = \"20 MiB\"\n\
                     processes = 64\n";
/// Shell script that keeps a processor busy.
pub(crate) const BUSY: &str = "while :; do :; done";
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Starts a router that sees the control groups of this test. `ip netns exec` hides them, because it mounts
/// `/sys` again.
pub(crate) fn start(line: &Line, text: &str) -> (Millrace, String) {
    let path = line.write("router.toml", text).display().to_string();
    (start_with(line, &path).unwrap_or_else(|ended| panic!("{ended:?}")), path)
}

fn start_with(line: &Line, path: &str) -> Result<Millrace, Ended> {
    let mounts = format!("--mount=/proc/{}/ns/mnt", std::process::id());
    Millrace::try_start_by(&line.r, &["nsenter", &mounts], &format!("--config {path}"))
}

/// Whether this machine has control groups for processor time and memory; prints the reason if not.
pub(crate) fn has_groups() -> bool {
    let controllers = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let missing = ["cpu", "memory", "pids"].into_iter().find(|name| {
        let is_of = |line: &str| {
            line.contains(" - cgroup ") && line.rsplit(['/', ',', ' ']).any(|word| word == *name)
        };
        !controllers.lines().any(is_of)
    });
    if let Some(missing) = missing {
        skip(&format!("no control groups of version 1 with the controller {missing}"));
    }
    missing.is_none()
}

pub(crate) fn exec(router: &Millrace, principal: &str, command: &[&str]) -> Command {
    let mut client = router.client();
    client.args(["exec", "--principal", principal, "--"]).args(command);
    client
}

/// Process of a principal. Dropping it kills the process.
pub(crate) struct Running(Child);

impl Running {
    pub fn start(router: &Millrace, principal: &str, script: &str) -> Self {
        let mut command = exec(router, principal, &["sh", "-c", script]);
        Self(command.stdout(Stdio::null()).spawn().expect("the client can be started"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn shown(router: &Millrace, name: &str) -> Value {
    router.json(&["principal", "show", name])
}

fn used(router: &Millrace, name: &str) -> f64 {
    shown(router, name)["usage"]["cpu_seconds"].as_f64().expect("processor time is measured")
}

/// Returns the share of a processor that a principal uses during 2 s.
fn share(router: &Millrace, name: &str) -> f64 {
    sleep(Duration::from_millis(200));
    let (start, before) = (Instant::now(), used(router, name));
    sleep(Duration::from_secs(2));
    (used(router, name) - before) / start.elapsed().as_secs_f64()
}

pub(crate) fn directories(router: &Millrace, name: &str) -> Vec<PathBuf> {
    let shown = shown(router, name);
    let listed = shown["directories"].as_array().cloned().unwrap_or_default();
    listed.iter().filter_map(Value::as_str).map(PathBuf::from).collect()
}

/// Returns the existing directories among those of a principal and of its router.
fn left(directories: &[PathBuf]) -> Vec<&Path> {
    let all = directories.iter().flat_map(|path| [Some(path.as_path()), path.parent()]).flatten();
    all.filter(|path| path.exists()).collect()
}

#[test]
fn processor_limit_holds_and_changes_at_run_time() {
    let Some(_ground) = Ground::enter_alone(&["nsenter", "timeout"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let (router, _) = start(&line, &format!("{PORTS}{VIDEO}"));
    let busy = Running::start(&router, "video", BUSY);
    let limited = share(&router, "video");
    println!("{:.1} % of a processor, limit 20 %", limited * 100.0);
    assert!((0.15..=0.25).contains(&limited), "{limited}");
    let throttled = shown(&router, "video")["usage"]["throttled_seconds"].as_f64();
    assert!(throttled > Some(0.5), "{throttled:?}");

    router.ask(&["principal", "set", "video", "cpu-limit=40%"]);
    let doubled = share(&router, "video");
    println!("{:.1} % of a processor, limit 40 %", doubled * 100.0);
    assert!((0.33..=0.47).contains(&doubled), "{doubled}");
    drop(busy);
    let metrics = router.ask(&["metrics"]);
    assert!(metrics.contains("millrace_principal_cpu_seconds_total{principal=\"video\"}"), "{metrics}");
    let table = router.ask(&["principal", "list"]);
    assert!(table.contains("video") && table.contains("40 %"), "{table}");
}

#[test]
fn command_of_a_principal_gives_its_exit_status_and_gets_signals() {
    let Some(_ground) = Ground::enter(&["nsenter"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let (router, _) = start(&line, &format!("{PORTS}{VIDEO}"));
    let status = exec(&router, "video", &["sh", "-c", "exit 7"]).status().unwrap();
    assert_eq!(status.code(), Some(7));
    let output = exec(&router, "video", &["cat", "/proc/self/cgroup"]).output().unwrap();
    let groups = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(groups.contains("/millrace-") && groups.contains("/video"), "{groups}");
    let mut sleeper = Running::start(&router, "video", "exec sleep 60");
    eventually("the command runs", PATIENCE, || {
        (shown(&router, "video")["usage"]["processes"] == 1).then_some(())
    });
    kill(Pid::from_raw(sleeper.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(sleeper.0.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    let ask = |arguments: &[&str]| router.try_ask(&[&["exec"], arguments].concat());
    ask(&["--principal", "vidoe", "--", "true"]).assert_refused(1, &["\"vidoe\"", "did you mean \"video\"?"]);
    ask(&["--principal", "video", "--", "/no/program"]).assert_refused(1, &["/no/program", "doesn't exist"]);
}

#[test]
fn memory_limit_kills_the_command_and_not_the_router() {
    let Some(_ground) = Ground::enter(&["nsenter", "tail"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let (mut router, _) = start(&line, &format!("{PORTS}{VIDEO}"));
    // `tail` keeps its input in memory, because it has no line breaks.
    let script = "head -c 100000000 /dev/zero | tail > /dev/null";
    let status = exec(&router, "video", &["sh", "-c", script]).status().unwrap();
    assert!(!status.success(), "{status}");
    let usage = shown(&router, "video")["usage"].clone();
    assert!(usage["oom_kills"].as_u64() > Some(0), "{usage}");
    assert!(usage["memory_peak"].as_u64() <= Some(20 << 20), "{usage}");
    assert!(router.is_running());
    assert_eq!(exec(&router, "video", &["true"]).status().unwrap().code(), Some(0));
}

#[test]
fn removal_and_shutdown_leave_no_groups() {
    let Some(_ground) = Ground::enter(&["nsenter"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let (mut router, _) = start(&line, PORTS);
    assert_eq!(router.ask(&["principal", "add", "a", "cpu-limit=50%"]), "principal a added\n");
    router.ask(&["principal", "add", "b", "weight=3"]);
    let (a, b) = (directories(&router, "a"), directories(&router, "b"));
    assert!(!a.is_empty() && left(&a).len() == 2 * a.len(), "{a:?}");
    let sleeper = Running::start(&router, "a", "exec sleep 60");
    eventually("the command runs", PATIENCE, || {
        (shown(&router, "a")["usage"]["processes"] == 1).then_some(())
    });
    let removed = router.ask(&["principal", "remove", "a"]);
    assert_eq!(removed, "principal a removed; its processes continue without limits\n");
    assert!(a.iter().all(|path| !path.exists()), "{a:?}");
    assert_eq!(left(&b).len(), 2 * b.len());
    router.ask(&["principal", "remove", "b"]);
    assert_eq!(left(&b), [] as [&Path; 0], "the router's group goes with the last principal");
    router.ask(&["principal", "add", "c"]);
    let c = directories(&router, "c");
    assert!(router.end_by(Signal::SIGTERM).success());
    assert_eq!(left(&c), [] as [&Path; 0]);
    drop(sleeper);
}

#[test]
fn principals_are_applied_rolled_back_saved_and_restarted() {
    let Some(_ground) = Ground::enter(&["nsenter"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let (router, path) = start(&line, PORTS);
    let file = line.write("more.toml", &format!("{PORTS}{VIDEO}")).display().to_string();
    assert_eq!(
        router.try_ask(&["diff", &file]).stdout.trim_end(),
        "principal add video 'cpu=5 %' 'cpu-limit=20 %' memory=20MiB processes=64"
    );
    router.ask(&["apply", &file]);
    assert_eq!(shown(&router, "video")["cpu_limit"], "20 %");
    let groups = directories(&router, "video");
    router.ask(&["rollback"]);
    assert_eq!(router.json(&["principal", "list"]).as_array().map(Vec::len), Some(0));
    assert_eq!(left(&groups), [] as [&Path; 0]);
    router.ask(&["principal", "add", "disk", "disk=2MB/s", "memory=8MiB"]);
    router.ask(&["save", &path]);
    drop(router);
    let router = start_with(&line, &path).unwrap_or_else(|ended| panic!("{ended:?}"));
    let disk = shown(&router, "disk");
    assert_eq!(
        (&disk["disk"], &disk["memory"], &disk["weight"]),
        (&"2 MB/s".into(), &"8MiB".into(), &100.into())
    );
}

#[test]
fn refused_principals_change_nothing() {
    let Some(_ground) = Ground::enter(&["nsenter"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let (router, _) = start(&line, &format!("{PORTS}{VIDEO}"));
    let refused = |arguments: &[&str], words: &[&str]| {
        router.try_ask(&[&["principal"], arguments].concat()).assert_refused(1, words);
    };
    refused(&["add", "video"], &["principal \"video\" exists already", "`principal set`"]);
    refused(&["add", "a/b"], &["invalid principal name \"a/b\": give 1 to 63"]);
    refused(&["add", "core"], &["reserved for the router itself"]);
    refused(&["add", "a", "cpu=5"], &["\"5\" has no unit: write \"5 %\""]);
    refused(&["add", "a", "cpus=5%"], &["\"cpus\"", "did you mean \"cpu\"?"]);
    refused(&["add", "a", "cpu=5%", "weight=2"], &["weight is set beside cpu"]);
    refused(&["add", "a", "cpu=100000%"], &["cpu is 100000 %, but the other principals leave", "give less"]);
    refused(&["set", "video", "cpu-limit=3%"], &["cpu-limit is 3 %, below cpu 5 %: give at least 5 %"]);
    refused(&["set", "video", "name=b"], &["no setting of a principal is named \"name\""]);
    refused(&["set", "vidoe", "cpu=3%"], &["no principal is named \"vidoe\": did you mean \"video\"?"]);
    refused(&["remove", "a"], &["no principal is named \"a\""]);
    let file = line.write("whole.toml", &format!("{PORTS}{VIDEO}").replace("5 %", "100000 %"));
    let text = std::fs::read_to_string(&file).unwrap().replace("cpu-limit = \"20 %\"\n", "");
    std::fs::write(&file, text).unwrap();
    let applied = router.try_ask(&["apply", &file.display().to_string()]);
    applied.assert_refused(1, &["whole.toml:11:7: principal \"video\": cpu is 100000 %"]);
    assert_eq!(shown(&router, "video")["cpu"], "5 %");
}

#[test]
fn machine_without_control_groups_refuses_principals_alone() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let file = line.write("router.toml", &format!("{PORTS}{VIDEO}")).display().to_string();
    // `ip netns exec` hides the control groups.
    let ended = Millrace::try_start(&line.r, &format!("--config {file}")).map(drop).unwrap_err();
    let obstacle = ["no control group can be created here", "is mounted; mount the version-2 hierarchy"];
    ended.assert_refused(1, &obstacle);
    let router = Millrace::start(&line.r, "--port r1 --port r2");
    for setting in ["processes=64", "disk=2MB/s", "process=[\"bgpd\"]"] {
        router.try_ask(&["principal", "add", "video", "memory=20MiB", setting]).assert_refused(1, &obstacle);
    }
    let applied = router.try_ask(&["apply", &file]);
    applied.assert_refused(1, &["`principal add video", obstacle[0], "nothing was changed"]);
    assert_eq!(router.json(&["principal", "list"]).as_array().map(Vec::len), Some(0));
    router.ask(&["filter", "add", "dport 9", "--action", "drop"]);
    // A share of the workers needs no control group.
    router.ask(&["principal", "add", "flows", "cpu=10%"]);
    assert!(shown(&router, "flows")["obstacle"].as_str().unwrap().contains(obstacle[0]));
    // The workers limit memory themselves, except that of processes.
    router.ask(&["principal", "set", "flows", "memory=20MiB"]);
    assert_eq!(shown(&router, "flows")["memory"], "20MiB");
    router.try_ask(&["exec", "--principal", "flows", "--", "true"]).assert_refused(1, &obstacle[..1]);
}

#[test]
fn plugin_process_is_in_the_group_of_the_principal_that_pays() {
    let Some(_ground) = Ground::enter(&["nsenter", "cc"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let file = build_source_for(&line, "native", ("counter", "1.0.0"), COUNTER_KEYS, COUNTER);
    let trust = "[plugins]\nshared-objects = \"allow\"\nunsigned = \"allow\"\n";
    let (router, _) = start(&line, &format!("{PORTS}{VIDEO}{trust}"));
    router.ask(&["plugin", "load", &file]);
    router.ask(&["instance", "create", "counter", "p1"]);
    let has = |count: u64| {
        eventually(&format!("{count} processes in the group"), PATIENCE, || {
            (shown(&router, "video")["usage"]["processes"] == count).then_some(())
        });
    };
    has(0);
    router.ask(&["bind", "p1", "--gate", "process", "--filter", "dport 9001", "--principal", "video"]);
    has(1);
    assert_eq!(shown(&router, "video")["obstacle"], Value::Null);
    let second = ["bind", "p1", "--gate", "process", "--filter", "dport 9002"];
    router.ask(&second);
    has(0);
    router.ask(&["unbind", "p1", "--gate", "process", "--filter", "dport 9002"]);
    has(1);
    router.ask(&["unbind", "p1", "--gate", "process", "--filter", "dport 9001"]);
    has(0);
}
