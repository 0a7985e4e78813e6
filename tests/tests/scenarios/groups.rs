//! Control groups of the router's own threads, of plugins with several payers, and of running processes, in both
//! versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use millrace_testkit::{Ground, Line, Millrace, eventually, skip};
use serde_json::Value;

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_source_for};
use crate::principals::{BUSY, PATIENCE, PORTS, Running, VIDEO, directories, has_groups, shown, start};

/// Process that doesn't belong to a router. Dropping it ends it.
struct Stranger(Child);

impl Stranger {
    /// Starts a shell script as a program of this name.
    fn start(line: &Line, name: &str, script: &str) -> Self {
        let program = line.write(name, &format!("#!/bin/sh\n{script}\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).unwrap();
        Self(Command::new(program).stdin(Stdio::null()).spawn().unwrap())
    }

    fn groups(&self) -> String {
        fs::read_to_string(format!("/proc/{}/cgroup", self.0.id())).unwrap_or_default()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the names of the router's threads, each with its control groups.
fn threads(router: &Millrace) -> Vec<(String, String)> {
    let process = router.json(&["show", "status"])["pid"].as_u64().unwrap();
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten().map(|task| task.path());
    let read = |path: PathBuf| fs::read_to_string(path).ok();
    threads.filter_map(|path| Some((read(path.join("comm"))?, read(path.join("cgroup"))?))).collect()
}

/// Checks that each thread is in the group of the workers or in that of control.
fn assert_grouped(router: &Millrace) {
    let threads = threads(router);
    assert!(threads.iter().any(|(name, _)| name.starts_with("worker-")), "{threads:?}");
    for (name, groups) in threads {
        let group = if name.starts_with("worker-") { "/router/workers\n" } else { "/router/control\n" };
        assert!(groups.contains(group), "{name}: {groups}");
    }
}

fn thread_group(router: &Millrace, name: &str) -> Value {
    let promises = router.json(&["show", "promises"]);
    let groups = promises["thread_groups"].as_array().unwrap().iter();
    groups.clone().find(|one| one["group"] == name).cloned().unwrap_or_default()
}

/// Returns the promise to the processes of a group.
fn processes(router: &Millrace, group: &str) -> Option<Value> {
    let promises = router.json(&["show", "promises"]);
    promises["processes"].as_array().unwrap().iter().find(|one| one["group"] == group).cloned()
}

#[test]
fn threads_of_the_router_have_groups_while_principals_exist() {
    let Some(_ground) = Ground::enter(&["nsenter"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let (router, _) = start(&line, PORTS);
    assert_eq!(router.json(&["show", "promises"])["thread_groups"], serde_json::json!([]));
    router.ask(&["principal", "add", "a"]);
    assert_grouped(&router);
    for (name, weight) in [("workers", 100), ("control", 100)] {
        let group = thread_group(&router, name);
        assert_eq!((&group["obstacle"], &group["weight"]), (&Value::Null, &weight.into()), "{group}");
        assert!(group["threads"].as_u64() > Some(0) && group["cpu_seconds"].as_f64() > Some(0.0), "{group}");
    }
    assert_eq!(thread_group(&router, "workers")["threads"], 1);
    let account = router.json(&["principal", "show", "control"]);
    assert!(account["directories"].to_string().contains("/router/control"), "{account}");
    let doctor = router.try_ask(&["doctor"]).stdout;
    assert!(doctor.contains("workers 1 thread"), "{doctor}");
    router.ask(&["principal", "remove", "a"]);
    assert!(
        threads(&router).iter().all(|(_, groups)| !groups.contains("millrace-")),
        "{:?}",
        threads(&router)
    );
}

#[test]
fn plugin_with_several_payers_has_a_group_with_parts_of_their_weights_and_limits() {
    let Some(_ground) = Ground::enter(&["nsenter", "cc"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let file = build_source_for(&line, "native", ("counter", "1.0.0"), COUNTER_KEYS, COUNTER);
    let trust = "[plugins]\nshared-objects = \"allow\"\nunsigned = \"allow\"\n";
    let two = "[[principal]]\nname = \"a\"\nweight = 300\n[[principal]]\nname = \"b\"\nweight = 40\ncpu-limit = \"30 %\"\n";
    let (router, _) = start(&line, &format!("{PORTS}{two}{trust}"));
    router.ask(&["plugin", "load", &file]);
    router.ask(&["instance", "create", "counter", "p1"]);
    let bind = |port: &str, principal: &str| {
        let filter = format!("dport {port}");
        router.ask(&["bind", "p1", "--gate", "process", "--filter", &filter, "--principal", principal]);
    };
    let group = directories(&router, "a")[0].parent().unwrap().join("plugin=counter");
    let members =
        |path: &Path| fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines().count();
    let has = |what: &str, path: &Path| {
        eventually(what, PATIENCE, || (members(path) == 1).then_some(()));
    };
    bind("9001", "a");
    has("the process of the single payer", &directories(&router, "a")[0]);
    assert!(!group.exists());
    bind("9002", "b");
    has("the process of both payers", &group);
    let value = |group: &str, name: &str| {
        let groups = directories(&router, "a").into_iter();
        let files = groups.map(|path| path.parent().unwrap().join(group).join(name));
        let text = files.filter_map(|file| fs::read_to_string(file).ok()).next().unwrap_or_default();
        text.trim().to_owned()
    };
    // Half of the weights 300 and 40: each principal also has a group of its own.
    let limits = ["plugin=counter", "a", "b"]
        .map(|group| ["cpu.shares", "cpu.cfs_quota_us"].map(|name| value(group, name)));
    assert_eq!(limits, [["1740", "-1"], ["1536", "-1"], ["204", "15000"]]);
    router.ask(&["bind", "p1", "--gate", "process", "--filter", "dport 9003"]);
    eventually("a part of the default principal", PATIENCE, || {
        (value("plugin=counter", "cpu.shares") == "2764").then_some(())
    });
    router.ask(&["unbind", "p1", "--gate", "process", "--filter", "dport 9003"]);
    let promise = eventually("the processor time", PATIENCE, || processes(&router, "plugin=counter"));
    assert_eq!(promise["principals"], serde_json::json!(["a", "b"]));
    router.ask(&["unbind", "p1", "--gate", "process", "--filter", "dport 9001"]);
    has("the process of the other payer", &directories(&router, "b")[0]);
    assert!(!group.exists());
    assert_eq!([value("a", "cpu.shares"), value("b", "cpu.cfs_quota_us")], ["3072", "30000"]);
}

#[test]
fn named_process_that_runs_already_moves_to_its_principal() {
    let Some(_ground) = Ground::enter(&["nsenter"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let name = format!("mrproc{}", std::process::id() % 100_000);
    let process = Stranger::start(&line, &name, "while :; do sleep 0.1; done");
    let (router, _) = start(&line, &format!("{PORTS}[[principal]]\nname = \"a\"\nprocess = [\"{name}\"]\n"));
    let is_in = |principal: &str| {
        let end = format!("/{principal}\n");
        eventually(&format!("process in {principal}"), PATIENCE, || {
            let groups = process.groups();
            (groups.contains("/millrace-") && groups.contains(&end)).then_some(())
        });
    };
    is_in("a");
    assert!(shown(&router, "a")["usage"]["processes"].as_u64() > Some(0));
    // The process is not moved while another principal has it.
    router.ask(&["principal", "set", "a", "process=[]"]);
    router.ask(&["principal", "remove", "a"]);
    assert!(!process.groups().contains("/millrace-"), "{}", process.groups());
    router.ask(&["principal", "add", "b", &format!("process=[\"{name}\"]")]);
    is_in("b");
}

#[test]
fn processor_time_of_processes_is_shown_beside_the_promise() {
    let Some(_ground) = Ground::enter_alone(&["nsenter"]) else { return };
    if !has_groups() {
        return;
    }
    let line = Line::new();
    let (router, _) = start(&line, &format!("{PORTS}{VIDEO}"));
    assert!(processes(&router, "video").is_none(), "no process has run");
    let busy = Running::start(&router, "video", BUSY);
    let promise = eventually("three seconds of the window", 3 * PATIENCE, || {
        let promise = processes(&router, "video")?;
        (promise["windows"][1]["seconds"].as_f64() > Some(3.5)).then_some(promise)
    });
    assert_eq!((&promise["promised"], &promise["limit"]), (&5.0.into(), &20.0.into()), "{promise}");
    assert_eq!((&promise["reserved"], &promise["principals"]), (&true.into(), &serde_json::json!(["video"])));
    let delivered = promise["windows"][0]["delivered"].as_f64().unwrap();
    println!("{delivered:.1} % of a processor in the last second, limit 20 %");
    assert!((12.0..28.0).contains(&delivered), "{promise}");
    assert_eq!(promise["windows"][0]["idle"], 0.0);
    assert!(promise["windows"][0]["throttled"].as_f64() > Some(20.0), "{promise}");
    drop(busy);
    let table = router.ask(&["show", "promises"]);
    assert!(table.contains("processes of") && table.contains("threads of"), "{table}");
    let metrics = router.ask(&["metrics"]);
    assert!(
        metrics.contains("millrace_process_delivered_percent{group=\"video\",window=\"10\"}"),
        "{metrics}"
    );
}

/// Group of a test in the version-2 hierarchy. Dropping it removes it.
struct Group2(PathBuf);

impl Group2 {
    /// Creates a group; prints the reason if this machine has no hierarchy of version 2.
    fn create() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|mount| mount.contains(" - cgroup2 "));
        let Some(point) = mount.and_then(|mount| mount.split(' ').nth(4)) else {
            skip("no control groups of version 2 are mounted");
            return None;
        };
        let path = Path::new(point).join(format!("mr-scenario-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Some(Self(path))
    }
}

impl Drop for Group2 {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Starts a router in a group of version 2. Where controllers hang in version 1, the router sees only its group of
/// version 2: a file with that group alone covers its `/proc/PID/cgroup`.
fn start_in(group: &Group2, line: &Line, text: &str) -> Millrace {
    let name = group.0.file_name().unwrap().to_str().unwrap();
    let seen = line.write("groups", &format!("0::/{name}\n")).display().to_string();
    let file = line.write("router.toml", text).display().to_string();
    let script = format!(
        "echo $$ > {}/cgroup.procs && mount --bind {seen} /proc/$$/cgroup && exec \"$@\"",
        group.0.display()
    );
    let mounts = format!("--mount=/proc/{}/ns/mnt", std::process::id());
    let by = ["nsenter", &mounts, "unshare", "--mount", "sh", "-c", &script, "sh"];
    let started = Millrace::try_start_by(&line.r, &by, &format!("--config {file}"));
    started.unwrap_or_else(|ended| panic!("{ended:?}"))
}

/// Controllers that hang in version 1 are absent in version 2: the router creates groups that measure processor time,
/// and refuses limits alone.
#[test]
fn groups_of_version_2_hold_threads_and_processes_also_without_controllers() {
    let Some(_ground) = Ground::enter(&["nsenter", "unshare", "mount"]) else { return };
    let Some(group) = Group2::create() else { return };
    let line = Line::new();
    let name = format!("mrtwo{}", std::process::id() % 100_000);
    let process = Stranger::start(&line, &name, "while :; do :; done");
    let router = start_in(&group, &line, PORTS);
    router.ask(&["principal", "add", "a"]);
    let threads = threads_2(&router, &group);
    assert!(
        threads.iter().any(|(name, group)| name.starts_with("worker-") && group.ends_with("/router/workers"))
    );
    assert!(
        threads.iter().all(|(name, group)| name.starts_with("worker-") || group.ends_with("/router/control"))
    );
    let kind = |path: &str| {
        let path = directories(&router, "a")[0].parent().unwrap().join(path).join("cgroup.type");
        fs::read_to_string(path).unwrap()
    };
    assert_eq!(
        (&*kind("router"), &*kind("router/workers"), &*kind("a")),
        ("domain threaded\n", "threaded\n", "domain\n")
    );
    assert!(thread_group(&router, "workers")["cpu_seconds"].as_f64() > Some(0.0));

    let running = Running::start(&router, "a", "exec sleep 60");
    eventually("the command runs", PATIENCE, || {
        (shown(&router, "a")["usage"]["processes"] == 1).then_some(())
    });
    router.ask(&["principal", "set", "a", &format!("process=[\"{name}\"]")]);
    eventually("the process joins", PATIENCE, || process.groups().contains("/a\n").then_some(()));
    eventually("the processor time", PATIENCE, || processes(&router, "a"));
    if !fs::read_to_string(group.0.join("cgroup.controllers")).unwrap().contains("cpu") {
        let refused = router.try_ask(&["principal", "set", "a", "cpu-limit=20%"]);
        refused.assert_refused(1, &["cpu"]);
        assert_eq!(shown(&router, "a")["cpu_limit"], Value::Null);
    }
    router.ask(&["principal", "remove", "a"]);
    assert!(threads_2(&router, &group).iter().all(|(_, group)| !group.contains("millrace-")));
    assert!(!process.groups().contains("millrace-"), "{}", process.groups());
    drop((running, router, process));
    let left = fs::read_dir(&group.0).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(left, 0);
}

/// Returns the names of the router's threads, each with its group of version 2.
fn threads_2(router: &Millrace, group: &Group2) -> Vec<(String, String)> {
    let name = group.0.file_name().unwrap().to_str().unwrap();
    let group_of =
        |groups: String| groups.lines().find_map(|line| Some(line.strip_prefix("0::")?.to_owned()));
    let all = threads(router).into_iter().filter_map(|(thread, groups)| Some((thread, group_of(groups)?)));
    all.inspect(|(thread, path)| assert!(path.contains(name), "{thread}: {path}")).collect()
}
