//! Groups and processes of tests, which end with the test.

use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_principals::{Controller, Group, Launch, Limits, Machine, Members, Processor, RouterGroup};
use nix::sched::sched_getaffinity;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

/// One test at a time: tests measure shares of processors, and version 2 moves this process between groups.
static MACHINE: Mutex<()> = Mutex::new(());

/// Router's group of a test. Dropping it removes the group.
pub struct Testbed {
    pub machine: Machine,
    pub router: RouterGroup,
    _alone: MutexGuard<'static, ()>,
}

impl Testbed {
    /// Creates a router's group; prints the reason if the test can't run here.
    pub fn new(controllers: &[Controller]) -> Option<Self> {
        let (machine, alone) = ground(controllers)?;
        let name = format!("test-{}", std::process::id());
        let router = RouterGroup::create(&machine, &name).unwrap();
        Some(Self { machine, router, _alone: alone })
    }

    /// Creates a group of processes with limits.
    pub fn group(&self, name: &str, limits: &Limits) -> Principal {
        let mut group = self.router.create_group(name, Members::Processes).unwrap();
        group.set(limits).unwrap();
        Principal { group, children: Vec::new() }
    }
}

/// Takes the machine; prints the reason if root or a controller is missing.
pub fn ground(controllers: &[Controller]) -> Option<(Machine, MutexGuard<'static, ()>)> {
    let alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = Machine::detect().unwrap();
    let missing = controllers.iter().find_map(|controller| machine.usable(*controller).err());
    let why = if geteuid().is_root() {
        missing.map(|obstacle| obstacle.to_string())
    } else {
        Some("needs root".into())
    };
    match why {
        None => Some((machine, alone)),
        Some(why) => {
            skip(&why);
            None
        }
    }
}

/// Prints that a test is skipped. In CI no test may be skipped.
pub fn skip(why: &str) {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{why}");
    println!("skipped: {why}");
}

/// Group of a principal with its processes. Dropping it kills the processes and removes the group.
pub struct Principal {
    pub group: Group,
    children: Vec<Child>,
}

impl Principal {
    /// Starts a shell script in the group.
    pub fn start(&mut self, script: &str) -> u32 {
        let launch = Launch::new(&self.group, shell(script)).unwrap();
        self.keep(launch.start().unwrap())
    }

    /// Starts a shell script in the group, bound to a processor.
    pub fn start_on(&mut self, processor: Processor, script: &str) -> u32 {
        let launch = Launch::new(&self.group, shell(script)).unwrap().bind(&[processor]).unwrap();
        self.keep(launch.start().unwrap())
    }

    fn keep(&mut self, child: Child) -> u32 {
        let id = child.id();
        self.children.push(child);
        id
    }

    /// Waits for the end of the last started script.
    pub fn wait(&mut self) -> ExitStatus {
        self.children.pop().expect("a script was started").wait().unwrap()
    }

    /// Returns the processor time used so far.
    pub fn cpu(&self) -> Duration {
        self.group.usage().unwrap().cpu.expect("processor time is measured")
    }

    /// Returns the ids of the processes in the group.
    pub fn processes(&self) -> Vec<i32> {
        let directories: Vec<_> = self.group.directories().map(|path| path.join("cgroup.procs")).collect();
        let lists = directories.iter().filter_map(|file| fs::read_to_string(file).ok());
        lists.flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>()).collect()
    }
}

impl Drop for Principal {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let processes = self.processes();
            if processes.is_empty() || Instant::now() > deadline {
                break;
            }
            for process in processes.into_iter().filter(|process| *process > 1) {
                let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
            }
            for child in &mut self.children {
                let _ = child.try_wait();
            }
            sleep(Duration::from_millis(5));
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Script that keeps a processor busy.
pub const BUSY: &str = "while :; do :; done";

/// Returns the first processor on which this process may run.
pub fn first_processor() -> Processor {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let first = (0..1024u16).find(|number| allowed.is_set(usize::from(*number)).unwrap());
    Processor(first.expect("a processor"))
}

/// Waits until a condition holds, for at most 3 s.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(3);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(10));
    }
}
