//! Memory that runs out: at any step of a start, and while packets are forwarded.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use millrace_testkit::{Ended, Flow, Ground, Line, Millrace, eventually, skip};

use nix::sys::signal::Signal;

use crate::support::{router, to};

const PATIENCE: Duration = Duration::from_secs(20);
/// Environment variable. If set, memory runs out at each of the first 200 steps of a start, not only at
/// selected steps.
const ALL: &str = "MILLRACE_ALL_FAULTS";

/// Returns the number of mappings that the system's loader makes before the program begins. If one of these
/// fails, a signal may kill the loader.
fn mappings_of_loader(line: &Line) -> u32 {
    let log = line.file("loader");
    // With this variable the loader lists and maps libraries without starting the program.
    let command = format!(
        "strace -qq -e trace=mmap -o {} -E LD_TRACE_LOADED_OBJECTS=1 {}",
        log.display(),
        millrace_testkit::binary().display()
    );
    line.r.run(&command);
    let calls = fs::read_to_string(log).unwrap().lines().filter(|line| line.starts_with("mmap")).count();
    assert!(calls > 0, "the loader maps nothing");
    u32::try_from(calls).expect("a number")
}

#[test]
fn start_without_memory_ends_with_one_error_line() {
    let Some(_ground) = Ground::enter(&["strace", "prlimit"]) else { return };
    let line = Line::new();
    let steps: Vec<u32> = match std::env::var_os(ALL) {
        Some(_) => (1..=200).collect(),
        None => vec![7, 17, 25, 34, 35, 38, 40, 42, 46, 51, 57, 58, 70, 200],
    };
    let (mut forwarded, loader) = (0, mappings_of_loader(&line));
    println!("the loader makes {loader} mappings");
    for step in steps {
        let inject = format!("inject=mmap:error=ENOMEM:when={step}+");
        let by = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=mmap", "-e", &inject];
        match Millrace::try_start_by(&line.r, &by, "--port r1 --port r2") {
            Ok(router) => {
                router.assert_conservation();
                forwarded += 1;
            }
            Err(ended) => {
                assert_says_why(&ended, step <= loader, &format!("from the mapping {step} of a thread on"));
            }
        }
    }
    assert!(forwarded > 0, "what is mapped later is needed for nothing");
    // Then memory runs out by a limit on the size of the process, which all its threads share.
    for mebibytes in [90, 160, 300, 600, 1000, 2000] {
        let limit = format!("--as={}", mebibytes << 20);
        if let Err(ended) = Millrace::try_start_by(&line.r, &["prlimit", &limit], "--port r1 --port r2") {
            assert_says_why(&ended, false, &format!("with {mebibytes} MiB"));
        }
    }
}

/// Checks that the start ended by itself, with one line that names the purpose of the memory. Only the
/// system's loader may print another line, or be killed by a signal.
fn assert_says_why(ended: &Ended, in_loader: bool, when: &str) {
    let Ended { code, signal, stderr, .. } = ended;
    let of_loader = ["error while loading shared libraries", "cannot allocate TLS data structures"];
    let is_loader = *code == Some(127) && of_loader.iter().any(|words| stderr.contains(words))
        || in_loader && *signal == Some(Signal::SIGSEGV as i32) && stderr.is_empty();
    assert!(is_loader || matches!(code, Some(1 | 4)), "{when}: {ended:?}");
    assert!(!stderr.contains("panicked") && !stderr.contains("abort"), "{when}: {stderr}");
    let said: Vec<&str> = stderr.lines().filter(|line| line.starts_with("millrace: ")).collect();
    assert!(is_loader || said.len() == 1, "{when}: {stderr}");
    let words = ["emory", "start a", "ENOMEM"];
    assert!(is_loader || words.iter().any(|word| said[0].contains(word)), "{when}: {stderr}");
}

#[test]
fn router_without_memory_refuses_changes_until_memory_is_free_and_loses_no_packet() {
    let Some(_ground) = Ground::enter_alone(&["prlimit", "ping"]) else { return };
    let line = Line::new();
    let mut router = router(&line);
    // The ping resolves the neighbour, because only a few packets are held during resolution.
    line.h1.run("ping -c 1 10.2.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    let limit = |bytes: &str| {
        let (pid, soft) = (router.pid().to_string(), format!("--as={bytes}:unlimited"));
        line.r.run(&format!("prlimit --pid {pid} {soft}"));
    };
    // The limit is below the memory in use, so the process gets no new memory.
    limit("1");
    eventually("it is told", PATIENCE, || router.log().contains("memory is short").then_some(()));
    router
        .try_ask(&["route", "add", "192.0.2.0/24", "via", "10.2.0.2"])
        .assert_refused(1, &["memory is short"]);
    router.try_ask(&["show", "routes"]).assert_refused(1, &["memory is short"]);
    assert!(router.json(&["events", "--last", "20"]).to_string().contains("memory is short"));
    for _ in 0..200 {
        router.ask(&["show", "status"]);
    }
    limit("unlimited");
    eventually("there is memory again", PATIENCE, || {
        (router.try_ask(&["route", "add", "192.0.2.0/24", "via", "10.2.0.2"]).code == Some(0)).then_some(())
    });
    eventually("it is told", PATIENCE, || router.log().contains("memory is sufficient again").then_some(()));
    let audit = router.ask(&["audit"]);
    assert!(audit.contains("memory is short"), "{audit}");
    let report = flow.finish();
    assert_eq!(report.lost(), 0, "{report:?}");
    assert!(router.is_running() && !router.log().contains("panicked"), "{}", router.log());
    router.assert_conservation();
}

#[test]
fn control_group_without_room_is_reported_before_an_oom_kill() {
    let Some(_ground) = Ground::enter_alone(&["ping", "mount"]) else { return };
    let Some(group) = Group::new() else { return };
    let line = Line::new();
    // The /sys of a network namespace shows no control groups.
    let enter = format!(
        "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory &&
         mount -t cgroup -o memory none /sys/fs/cgroup/memory &&
         echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"",
        group.0.display()
    );
    let by = ["sh", "-c", &enter];
    group.limit(60 << 20);
    let refused = Millrace::try_start_by(&line.r, &by, "--port r1 --port r2").unwrap_err();
    refused.assert_refused(4, &["no memory for packets", "control group", "60 MiB", "fewer frames"]);
    group.limit(1 << 30);
    let mut router = Millrace::try_start_by(&line.r, &by, "--port r1 --port r2").unwrap();
    // The ping resolves the neighbour, because only a few packets are held during resolution.
    line.h1.run("ping -c 1 10.2.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    group.limit(group.used() + (3 << 20));
    let add = ["route", "add", "192.0.2.0/24", "via", "10.2.0.2"];
    eventually("it is refused", PATIENCE, || {
        router.try_ask(&add).stderr.contains("memory is short").then_some(())
    });
    group.limit(1 << 30);
    router.ask(&add);
    let report = flow.finish();
    assert_eq!(report.lost(), 0, "{report:?}");
    assert!(router.is_running());
}

/// Control group of this test. Dropping it removes the group.
struct Group(PathBuf);

impl Group {
    /// Creates a group; `None` if the machine doesn't permit groups of this kind.
    fn new() -> Option<Self> {
        let place = PathBuf::from(format!("/sys/fs/cgroup/memory/millrace-{}", std::process::id()));
        match fs::create_dir(&place) {
            Ok(()) => Some(Self(place)),
            Err(error) => {
                skip(&format!("{}: {error}", place.display()));
                None
            }
        }
    }

    fn limit(&self, bytes: u64) {
        fs::write(self.0.join("memory.limit_in_bytes"), bytes.to_string()).unwrap();
    }

    fn used(&self) -> u64 {
        fs::read_to_string(self.0.join("memory.usage_in_bytes")).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group can be removed once its last process is gone.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
