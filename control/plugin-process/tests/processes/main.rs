//! Tests of the keeper with confined processes of a plugin in C: a shared object, and executables.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice::from_ref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as Clock};

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin::native::Form;
use millrace_plugin::process::{ProcessPlugin, START};
use millrace_plugin_abi::{Fault, Instance, Instant, Message, Packets, Plugin, Progress, Verdict};
use millrace_plugin_process::{ChildCommand, ProcessGroup, ProcessGroups, ProcessKeeper};
use millrace_testkit::built::{Format, Options, built_plugin};
use millrace_units::PortId;
use serde_json::{Map, Value, json};

/// Plugin whose packets with a first byte of 1 crash it, of 2 hang it, of 3 make it tamper with its memory, and
/// of 4 end it, and of 5 make it sleep for ever. On the message `try`, it tries forbidden system calls, and replies with the numbers of those
/// that succeed. An executable without libraries also tries to execute another program.
const CODE: &str = r##"
#define _GNU_SOURCE
#include "millrace.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"test\",\"version\":\"1.0.0\",\"summary\":\"For tests.\",\"positions\":[\"early\"],\"messages\":{\"try\":\"forbidden calls\"}}");
static char early[200];
__attribute__((constructor)) static void at_start(void) {
    int written = open("/tmp/millrace-process-test", O_CREAT | O_WRONLY, 0600);
    void *much = mmap(0, 2UL << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct rlimit limit = {64, 64};
    snprintf(early, sizeof early, "%d %d %d %d %d %d %d %d %d", written >= 0, socket(AF_INET, SOCK_DGRAM, 0) >= 0,
        syscall(SYS_fork) >= 0, open("/proc/1/status", O_RDONLY) >= 0, open("/proc/self/maps", O_RDONLY) >= 0,
        much != MAP_FAILED, syscall(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0) >= 0,
        syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, 0) >= 0, syscall(SYS_memfd_create, "more", 0) >= 0);
#ifdef HANG
    for (;;) __asm__ volatile("");
#endif
}
static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}
int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    (void)settings, (void)bytes;
#ifdef SLOW
    for (long begun = now(); now() < begun + 1000;) __asm__ volatile("");
#endif
    return 0;
}
void millrace_packets(struct millrace_call *call) {
    for (uint32_t i = 0; i < call->count; i++) {
        struct millrace_packet *packet = millrace_packet(call, i);
        switch (((uint8_t *)packet->window)[0]) {
        case 1: __builtin_trap();
        case 2: for (;;) __asm__ volatile("");
        case 4: _exit(0);
        case 5: for (int word = 0;;) syscall(SYS_futex, &word, 0, 0, 0, 0, 0);
        case 3: memset((char *)((uint64_t)packet & ~0xfffULL) - 0xc000, 0xee, 0x1000); break;
        }
    }
}
int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    (void)name, (void)name_bytes, (void)arguments, (void)bytes;
    char reply[400];
    char *none[1] = {0};
    void *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
#ifdef STATIC
    syscall(SYS_execveat, -1, "/bin/true", none, none, 0);
#endif
    syscall(SYS_execve, "/bin/true", none, none);
    int n = snprintf(reply, sizeof reply, "{\"early\":\"%s\",\"worked\":\"%d%d%d%d%d%d%d%d%d%d%d%d%d\"}", early,
        open("/etc/passwd", O_RDONLY) >= 0, open("/tmp/millrace-process-test", O_CREAT | O_WRONLY, 0600) >= 0,
        open("/proc/1/status", O_RDONLY) >= 0, syscall(SYS_ptrace, 0, 0, 0, 0) >= 0, syscall(SYS_prctl, 1, 0, 0, 0, 0) >= 0,
        socket(AF_UNIX, SOCK_STREAM, 0) >= 0, syscall(SYS_fork) >= 0,
        kill(getppid(), 0) == 0, syscall(SYS_clone, 0x100 | 0x10000 | 0x800, 0, 0, 0, 0) >= 0,
        mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED, setuid(0) == 0,
        madvise(shared, 4096, MADV_REMOVE) == 0, madvise(shared, 4096, MADV_DONTNEED) == 0);
    return millrace_reply(reply, n);
}
"##;

const FORMS: [Form; 3] = [Form::Object, Form::Static, Form::Dynamic];

fn plugin(form: Form) -> Option<ProcessPlugin> {
    plugin_in(&ProcessGroups::default(), form)
}

fn plugin_in(groups: &ProcessGroups, form: Form) -> Option<ProcessPlugin> {
    let plugin = confined(&code(form, &[])?, groups, START);
    assert_eq!(plugin.form(), form);
    Some(plugin)
}

/// Compiles the plugin with further arguments.
fn code(form: Form, arguments: &[&str]) -> Option<Vec<u8>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("process-{}-{number}.c", std::process::id()));
    let built = source.with_extension("so");
    std::fs::write(&source, CODE).unwrap();
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-w", "-I", "../../sdk/c"]).args(match form {
        Form::Object => ["-shared", "-fPIC"].as_slice(),
        Form::Static => &["-static-pie", "-fPIE", "-DMILLRACE_EXECUTABLE", "-DSTATIC"],
        Form::Dynamic => &["-pie", "-fPIE", "-DMILLRACE_EXECUTABLE"],
    });
    command.args(arguments).arg("-o");
    let Ok(output) = command.arg(&built).arg(&source).output() else {
        println!("skipped: there is no cc");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(&built).unwrap();
    std::fs::remove_file(source).unwrap();
    std::fs::remove_file(built).unwrap();
    Some(bytes)
}

/// Prepares a plugin whose processes are confined, and ready within `start`.
fn confined(bytes: &[u8], groups: &ProcessGroups, start: Duration) -> ProcessPlugin {
    let program = env!("CARGO_BIN_EXE_plugin-process-child").into();
    let child = ChildCommand { program, arguments: Vec::new(), start };
    let keeper = ProcessKeeper::start(child).unwrap().in_groups(groups);
    ProcessPlugin::new(bytes, Arc::new(keeper)).unwrap()
}

/// Instance with a call of one packet.
struct Bench {
    instance: Box<dyn Instance>,
    pool: Pool,
}

impl Bench {
    fn new(plugin: &ProcessPlugin) -> Self {
        let instance = plugin.create(&Map::new()).map_err(|error| error.to_string()).unwrap();
        Self { instance, pool: Pool::new(64).unwrap() }
    }

    /// Sends a packet with this first byte. Aborts the call after `most`.
    fn send(&mut self, first: u8, most: Duration) -> (Verdict, Option<Fault>) {
        let mut packets: [Packet; 1] = [self.pool.packet_from(&[first; 60]).unwrap()];
        let key = FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (1, 2), PortId(0));
        let mut verdicts = [Verdict::Pass];
        let keys = [key];
        let mut call = Packets::new(&mut packets, &keys, &[0], &mut verdicts);
        let (begun, mut progress) = (Clock::now(), self.instance.process(&mut call, Instant::ZERO));
        while progress != Progress::Done {
            if begun.elapsed() > most {
                self.instance.abort();
                return (Verdict::Fault, self.instance.take_fault());
            }
            progress = self.instance.resume(&mut call, Instant::ZERO);
        }
        (verdicts[0], self.instance.take_fault())
    }

    fn ask(&mut self) -> Value {
        let message = Message { name: "try".to_owned(), arguments: Map::new() };
        self.instance.control(&message).unwrap()
    }
}

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
    // An executable with libraries reads files, and makes memory executable.
    for (form, worked) in FORMS.into_iter().zip(["0000000000001", "0000000000001", "1000000001001"]) {
        let Some(plugin) = plugin(form) else { return };
        computes_only(&plugin, worked);
    }
}

/// Checks that processes of a plugin are confined. `worked` are the results of the system calls that it tries.
fn computes_only(plugin: &ProcessPlugin, worked: &str) {
    let (mut one, mut other) = (Bench::new(plugin), Bench::new(plugin));
    for bench in [&mut one, &mut other] {
        let seen = bench.ask();
        assert_eq!(
            (&seen["worked"], &seen["early"]),
            (&json!(worked), &json!("0 0 0 0 0 0 0 0 0")),
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
