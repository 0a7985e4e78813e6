//! Tests of the keeper with confined processes of a plugin in C: a shared object, and executables.

mod plugin;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice::from_ref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant as Clock};

use millrace_packet::{FlowKey, Packet};
use millrace_plugin::native::Form;
use millrace_plugin::process::{ProcessPlugin, START};
use millrace_plugin_abi::{Instant, Message, Packets, Plugin, Progress, Verdict};
use millrace_plugin_process::{ProcessGroup, ProcessGroups};
use millrace_testkit::built::{Format, Options, built_plugin};
use millrace_units::PortId;
use serde_json::{Map, json};

use plugin::{Bench, FORMS, code, confined, plugin, plugin_in};

const PATIENCE: Duration = Duration::from_secs(5);

/// Returns a guard for the time of a test. One test runs at a time, because restarts are timed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the ids of all processes that threads of this process have started.
fn children() -> HashSet<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let list = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let lists = tasks.filter_map(|task| list(task).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Returns the user, the permitted capabilities, the network and the PID namespace of a process.
fn rights(process: &str) -> Option<(String, String, [PathBuf; 2])> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let namespace = |name: &str| std::fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
    Some((line("Uid:")?.to_owned(), line("CapPrm:")?.to_owned(), [namespace("net")?, namespace("pid")?]))
}

#[test]
fn process_can_only_compute() {
    let _alone = alone();
    // An executable with libraries makes memory executable.
    for (form, worked) in FORMS.into_iter().zip(["0000000000001", "0000000000001", "0000000001001"]) {
        let Some(plugin) = plugin(form) else { return };
        computes_only(&plugin, worked);
    }
}

/// As long as the constructor runs, it has the rights of a process that loads: to make memory executable, and to read
/// shared libraries.
#[test]
fn constructor_that_serves_its_worker_can_only_compute() {
    let _alone = alone();
    let Some(code) = code(Form::Object, &["-DMILLRACE_EXECUTABLE", "-DSERVE"]) else { return };
    computes_only(&confined(&code, &ProcessGroups::default(), START), "0000000001001");
}

#[test]
fn object_finds_shared_libraries_of_the_system() {
    let _alone = alone();
    let Some(code) = code(Form::Object, &["-Wl,--no-as-needed", "-lresolv"]) else { return };
    let mut bench = Bench::new(&confined(&code, &ProcessGroups::default(), START));
    assert_eq!(bench.send(0, PATIENCE), (Verdict::Pass, None));
}

/// Checks that processes of a plugin are confined. `worked` are the results of the system calls that it tries.
fn computes_only(plugin: &ProcessPlugin, worked: &str) {
    let (mut one, mut other) = (Bench::new(plugin), Bench::new(plugin));
    for bench in [&mut one, &mut other] {
        let seen = bench.ask();
        assert_eq!(
            (&seen["worked"], &seen["early"]),
            (&json!(worked), &json!("0 0 0 0 0 0 0 0 0 0")),
            "{seen}"
        );
    }
    assert_eq!(one.send(0, PATIENCE), (Verdict::Pass, None));
    if nix::unistd::geteuid().is_root() {
        // Processes of earlier tests may not have ended yet.
        let own = rights("self").unwrap();
        let all = || children().iter().filter_map(|process| rights(process)).collect::<Vec<_>>();
        let is_confined = |all: &[(String, String, [PathBuf; 2])]| {
            all.len() >= 2
                && all.iter().all(|(user, capabilities, spaces)| {
                    let same = |other: &&(String, String, [PathBuf; 2])| {
                        other.0 == *user || other.2.iter().any(|space| spaces.contains(space))
                    };
                    *user != own.0
                        && own.2.iter().all(|space| !spaces.contains(space))
                        && all.iter().filter(same).count() == 1
                        && capabilities.trim_matches('0').is_empty()
                })
        };
        let begun = Clock::now();
        while !is_confined(&all()) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", all());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn crash_hang_and_lie_end_the_process_and_the_next_one_is_ready_soon() {
    let _alone = alone();
    for form in FORMS {
        let Some(plugin) = plugin(form) else { return };
        faults_end_the_process(&plugin);
    }
}

/// Checks that each fault of a plugin ends its process, that another one starts soon, and that no other instance
/// notices.
fn faults_end_the_process(plugin: &ProcessPlugin) {
    let (mut bench, mut bystander) = (Bench::new(plugin), Bench::new(plugin));
    let mut restarts = Vec::new();
    for (first, kind, most) in [
        (1, "crash", PATIENCE),
        (2, "overrun", Duration::from_millis(100)),
        (3, "wrong_answer", PATIENCE),
        (1, "crash", PATIENCE),
        (4, "crash", PATIENCE),
    ] {
        let (verdict, fault) = bench.send(first, most);
        let begun = Clock::now();
        assert_eq!(verdict, Verdict::Fault);
        let fault = fault.unwrap();
        assert_eq!(fault.kind, kind, "{fault:?}");
        bench.instance.restart().unwrap();
        assert_eq!(bench.send(0, PATIENCE), (Verdict::Pass, None), "{kind}");
        restarts.push((kind, begun.elapsed()));
        assert_eq!(bystander.send(0, PATIENCE), (Verdict::Pass, None));
    }
    println!("restarts of {}: {restarts:?}", plugin.form().name());
    let mut times: Vec<_> = restarts.iter().map(|(_, time)| *time).collect();
    times.sort();
    assert!(times[2] < Duration::from_millis(50), "{restarts:?}");
}

#[test]
fn worker_reads_the_processor_time_that_a_process_consumes() {
    const MOST: Duration = Duration::from_millis(300);
    let _alone = alone();
    for form in FORMS {
        let Some(plugin) = plugin(form) else { return };
        for (first, least, waits) in [(2, 30, false), (5, 0, true)] {
            let mut bench = Bench::new(&plugin);
            assert_eq!(bench.send(0, PATIENCE), (Verdict::Pass, None));
            let (before, begun) = (bench.instance.consumed().unwrap(), Clock::now());
            let mut after = before;
            let (verdict, _) =
                bench.send_and_abort(first, MOST, |instance| after = instance.consumed().unwrap());
            let used = (after - before).as_millis();
            // A process can't use more than the time that passes.
            let most = if waits { 5 } else { begun.elapsed().as_millis() + 10 };
            assert!(verdict == Verdict::Fault && (least..=most).contains(&used), "{first}: {used} ms");
        }
    }
}

#[test]
fn work_of_a_process_is_its_processor_time_and_packets_and_stays_after_a_restart() {
    let _alone = alone();
    for form in FORMS {
        let Some(plugin) = plugin(form) else { return };
        let mut bench = Bench::new(&plugin);
        for _ in 0..20 {
            assert_eq!(bench.send(0, PATIENCE), (Verdict::Pass, None));
        }
        let work = bench.instance.process_work();
        assert_eq!((work.packets, work.calls), (20, 20));
        assert!(work.time <= bench.instance.consumed().unwrap(), "{work:?}");
        // The process uses time without an end, so it dies.
        assert_eq!(bench.send(2, Duration::from_millis(300)).0, Verdict::Fault);
        bench.instance.restart().unwrap();
        assert_eq!(bench.send(0, PATIENCE), (Verdict::Pass, None));
        let after = bench.instance.process_work();
        assert_eq!((after.packets, after.calls), (21, 21));
        assert!(after.time >= work.time + Duration::from_millis(20), "{work:?} {after:?}");
    }
}

/// Polls an instance until the result is ready. Returns the result, and the number of polls before.
fn polled<T>(mut poll: impl FnMut() -> Poll<T>) -> (T, u32) {
    let (begun, mut polls) = (Clock::now(), 0);
    loop {
        match poll() {
            Poll::Ready(result) => return (result, polls),
            Poll::Pending => assert!(begun.elapsed() < PATIENCE),
        }
        polls += 1;
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn state_passes_to_another_process_and_nobody_waits_for_it() {
    let _alone = alone();
    for form in FORMS {
        let Some(code) = code(form, &["-DSAVE=200"]) else { return };
        let plugin = confined(&code, &ProcessGroups::default(), START);
        let (mut old, mut new) = (Bench::new(&plugin), Bench::new(&plugin));
        let begun = Clock::now();
        let (saved, polls) = polled(|| old.instance.poll_save());
        assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
        let state = saved.unwrap().unwrap();
        let (restored, _) = polled(|| new.instance.poll_restore(&state, 0));
        // In 200 ms, polls that wait for the process would be few.
        assert!(restored.is_ok() && polls > 50, "{polls}");
        assert_eq!(
            (old.send(0, PATIENCE), new.send(0, PATIENCE)),
            ((Verdict::Pass, None), (Verdict::Pass, None))
        );
    }
}

#[test]
fn process_that_never_saves_its_state_ends_when_its_time_is_over() {
    let _alone = alone();
    let Some(code) = code(Form::Static, &["-DSAVE=1000000"]) else { return };
    let mut bench = Bench::new(&confined(&code, &ProcessGroups::default(), START));
    assert!(bench.instance.poll_save().is_pending());
    std::thread::sleep(Duration::from_millis(20));
    assert!(bench.instance.poll_save().is_pending());
    bench.instance.abort();
    let Poll::Ready(Err(error)) = bench.instance.poll_save() else { panic!("a dead process saves nothing") };
    assert!(error.to_string().contains("took too long"), "{error}");
    assert_eq!(bench.instance.take_fault().unwrap().kind, "overrun");
    bench.instance.restart().unwrap();
    assert_eq!(bench.send(0, PATIENCE), (Verdict::Pass, None));
}

#[test]
fn hand_over_that_ends_before_its_process_has_started_leaves_the_next_one_alone() {
    let _alone = alone();
    let Some(code) = code(Form::Static, &["-DSAVE=1"]) else { return };
    let mut bench = Bench::new(&confined(&code, &ProcessGroups::default(), START));
    bench.instance.restart().unwrap();
    assert!(bench.instance.poll_save().is_pending());
    bench.instance.abort();
    assert_eq!(bench.send(0, PATIENCE), (Verdict::Pass, None));
    let (saved, _) = polled(|| bench.instance.poll_save());
    assert_eq!(saved.unwrap().map(|state| state.len()), Some(1 << 20));
}

#[test]
fn process_whose_constructors_never_return_ends() {
    let _alone = alone();
    let before = children();
    for form in FORMS {
        let Some(code) = code(form, &["-DHANG"]) else { return };
        let plugin = confined(&code, &ProcessGroups::default(), Duration::from_millis(300));
        let begun = Clock::now();
        let error = plugin.create(&Map::new()).map(drop).unwrap_err().to_string();
        assert!(error.contains("its process was not ready after 0.3 s"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    let begun = Clock::now();
    while children().difference(&before).next().is_some() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn plugin_that_starts_slowly_starts_again_after_a_fault() {
    let _alone = alone();
    let Some(code) = code(Form::Static, &["-DSLOW"]) else { return };
    let plugin = confined(&code, &ProcessGroups::default(), START);
    let mut bench = Bench::new(&plugin);
    assert_eq!(bench.send(1, PATIENCE).1.unwrap().kind, "crash");
    bench.instance.restart().unwrap();
    let begun = Clock::now();
    let mut patience = Vec::new();
    // What the worker does: a call has 100 ms, unless the instance needs more.
    let usual = millrace_plugin::CallLimits::LEAST_AWAITED;
    let mut packets: [Packet; 1] = [bench.pool.packet_from(&[0; 60]).unwrap()];
    let keys = [FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (1, 2), PortId(0))];
    let mut verdicts = [Verdict::Pass];
    let mut call = Packets::new(&mut packets, &keys, &[0], &mut verdicts);
    let mut progress = bench.instance.process(&mut call, Instant::ZERO);
    let (mut asked, mut answers) = (begun, bench.instance.answers());
    while progress != Progress::Done {
        if bench.instance.answers() != answers {
            (asked, answers) = (Clock::now(), bench.instance.answers());
        }
        patience.push(bench.instance.patience());
        assert!(asked.elapsed() < usual * bench.instance.patience(), "{:?}", asked.elapsed());
        std::thread::sleep(Duration::from_millis(1));
        progress = bench.instance.resume(&mut call, Instant::ZERO);
    }
    assert!(begun.elapsed() > 5 * usual && patience[0] >= 100, "{:?}", begun.elapsed());
    assert_eq!((verdicts[0], bench.instance.patience()), (Verdict::Pass, 1));
}

/// Program that traces a process until its input ends. Meanwhile, nobody else notices the end of the process.
const TRACER: &str = r##"
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
int main(int count, char **arguments) {
    int failed = ptrace(PTRACE_SEIZE, atoi(arguments[1]), 0, 0) != 0;
    printf("%d\n", failed), fflush(stdout);
    return getchar() == EOF ? failed : 1;
}
"##;

#[test]
fn process_whose_death_takes_long_keeps_no_other_waiting() {
    let _alone = alone();
    if !nix::unistd::geteuid().is_root() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"));
        return println!("skipped: needs root");
    }
    let Some(plugin) = plugin(Form::Static) else { return };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tracer-{}", std::process::id()));
    std::fs::write(file.with_extension("c"), TRACER).unwrap();
    let built = Command::new("cc").arg("-o").args([&file, &file.with_extension("c")]).status().unwrap();
    assert!(built.success());
    let mut other = Bench::new(&plugin);
    let before = children();
    let mut bench = Bench::new(&plugin);
    let own: Vec<_> = children().difference(&before).cloned().collect();
    let mut tracer = Command::new(&file)
        .arg(&own[0])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut answer = [0; 2];
    std::io::Read::read_exact(tracer.stdout.as_mut().unwrap(), &mut answer).unwrap();
    assert_eq!(&answer, b"0\n");
    // The keeper kills the process, which stays as long as it is traced.
    assert_eq!(bench.send(2, Duration::from_millis(100)).1.unwrap().kind, "overrun");
    let crashed = other.send(1, PATIENCE);
    let begun = Clock::now();
    for bench in [&mut bench, &mut other] {
        bench.instance.restart().unwrap();
        assert_eq!(bench.send(0, PATIENCE), (Verdict::Pass, None));
    }
    let took = begun.elapsed();
    let is_there = Path::new("/proc").join(&own[0]).exists();
    drop(tracer.stdin.take());
    tracer.wait().unwrap();
    std::fs::remove_file(file.with_extension("c")).unwrap();
    std::fs::remove_file(file).unwrap();
    assert_eq!(crashed.1.unwrap().kind, "crash");
    assert!(is_there && took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn executable_in_rust_starts_and_works_although_it_is_confined() {
    let _alone = alone();
    let (project, target) =
        ("../../dataplane/plugin/tests/homes/rule-rs", Path::new(env!("CARGO_TARGET_TMPDIR")).join("rule"));
    std::fs::create_dir_all(&target).unwrap();
    let options = Options { result: Some(target.clone()), target: Some(target), machine: None };
    let Some(built) = built_plugin(Path::new(project), Format::Executable, &options) else { return };
    let plugin = confined(&std::fs::read(built.file).unwrap(), &ProcessGroups::default(), START);
    assert_eq!(plugin.form(), Form::Static);
    let mut bench = Bench::new(&plugin);
    assert_eq!(bench.send(0, PATIENCE).1, None);
    let read = Message { name: "read".to_owned(), arguments: Map::new() };
    assert_eq!(bench.instance.control(&read).unwrap()["packets"], 1);
}

#[test]
fn processes_end_with_their_instances() {
    let _alone = alone();
    let Some(plugin) = plugin(Form::Dynamic) else { return };
    let before = children();
    let bench = Bench::new(&plugin);
    let own: Vec<_> = children().difference(&before).cloned().collect();
    assert!(!own.is_empty());
    drop(bench);
    let begun = Clock::now();
    while own.iter().all(|pid| Path::new("/proc").join(pid).exists()) {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// File that stands for the kernel's file of a control group, and the id that was written last.
struct GroupFile(PathBuf);

impl GroupFile {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        Self(path)
    }

    /// Waits until the file has the id of a process other than `before`, and empties the file.
    fn joined(&self, before: Option<&str>) -> String {
        let begun = Clock::now();
        loop {
            let id = std::fs::read_to_string(&self.0).unwrap();
            if !id.is_empty() && before != Some(&*id) {
                assert!(Path::new("/proc").join(&id).exists(), "{id}");
                std::fs::write(&self.0, "").unwrap();
                return id;
            }
            assert!(begun.elapsed() < PATIENCE, "no process has joined {}", self.0.display());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for GroupFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn process_joins_the_group_of_its_plugin_and_moves_with_it() {
    let _alone = alone();
    let groups = ProcessGroups::default();
    let Some(plugin) = plugin_in(&groups, Form::Static) else { return };
    let [one, other, home] = ["one", "other", "home"].map(GroupFile::new);
    let group =
        |file: &GroupFile| Arc::new(ProcessGroup::open(from_ref(&file.0), from_ref(&home.0)).unwrap());
    let set = |name: &str, group: &Arc<ProcessGroup>| groups.set([(name.to_owned(), group.clone())].into());
    let (first, second) = (group(&one), group(&other));
    set("test", &first);
    let mut bench = Bench::new(&plugin);
    let id = one.joined(None);
    assert_eq!(first.obstacle(), None);
    bench.send(1, PATIENCE);
    let next = one.joined(Some(&id));
    bench.instance.restart().unwrap();
    assert_eq!(bench.send(0, PATIENCE), (Verdict::Pass, None));
    set("test", &second);
    assert_eq!(other.joined(None), next, "a process moves");
    set("another", &first);
    assert_eq!(home.joined(None), next, "a process leaves");

    second.set_patience(20);
    assert_eq!(bench.instance.patience(), 1);
    set("test", &second);
    other.joined(None);
    let begun = Clock::now();
    while bench.instance.patience() != 20 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    set("another", &first);
    assert_eq!(home.joined(None), next);

    let wrong = ProcessGroup::open(&["/dev/full".into()], from_ref(&home.0)).unwrap();
    let wrong = Arc::new(wrong);
    set("test", &wrong);
    assert_eq!(home.joined(None), next, "a process that can't join stays where it was");
    let obstacle = wrong.obstacle().unwrap();
    assert!(obstacle.starts_with(&format!("process {next} of plugin \"test\" can't join")), "{obstacle}");
    assert!(ProcessGroup::open(&["/nowhere".into()], &[]).is_err());
}
