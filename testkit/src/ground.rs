//! Requirements of a scenario test: root, programs, the router's binary, and shared or exclusive use of the
//! machine.

use std::env;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::unistd::Uid;

use crate::repository::repository;

/// Number of scenarios that share the machine at a time. It may exceed the number of processors, since most
/// scenarios wait for timers and packets.
const SHARED_AT_ONCE: usize = 4;

static MACHINE: Machine = Machine::new();

/// Lock on the machine. Ordinary scenarios share it; a measuring scenario holds it alone.
///
/// A measuring scenario waits until no ordinary scenario runs or waits, so all ordinary scenarios run first.
/// Ordinary scenarios start in the order of their arrival, which is the order of their names. A long scenario
/// with an early name therefore does not run alone at the end.
#[derive(Debug)]
struct Machine {
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    sharing: usize,
    /// Number of ordinary scenarios that have requested the machine so far.
    came_to_share: usize,
    began_to_share: usize,
    is_held_alone: bool,
}

impl Turns {
    fn waiting_to_share(&self) -> usize {
        self.came_to_share - self.began_to_share
    }
}

impl Machine {
    const fn new() -> Self {
        let turns = Turns { sharing: 0, came_to_share: 0, began_to_share: 0, is_held_alone: false };
        Self { turns: Mutex::new(turns), changed: Condvar::new() }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        turns: MutexGuard<'a, Turns>,
        must_wait: impl FnMut(&mut Turns) -> bool,
    ) -> MutexGuard<'a, Turns> {
        self.changed.wait_while(turns, must_wait).unwrap_or_else(PoisonError::into_inner)
    }

    fn share(&'static self) -> Turn {
        let mut turns = self.turns();
        let place = turns.came_to_share;
        turns.came_to_share += 1;
        let mut turns = self.wait(turns, |turns| {
            turns.is_held_alone || turns.sharing >= SHARED_AT_ONCE || turns.began_to_share != place
        });
        turns.began_to_share += 1;
        turns.sharing += 1;
        drop(turns);
        // The next waiting scenario may be allowed to begin, too.
        self.changed.notify_all();
        Turn { machine: self, is_alone: false }
    }

    fn hold_alone(&'static self) -> Turn {
        let turns = self.turns();
        let must_wait =
            |turns: &mut Turns| turns.is_held_alone || turns.sharing + turns.waiting_to_share() > 0;
        self.wait(turns, must_wait).is_held_alone = true;
        Turn { machine: self, is_alone: true }
    }
}

/// Lock on the machine, shared or exclusive. Dropping it releases the lock.
#[derive(Debug)]
struct Turn {
    machine: &'static Machine,
    is_alone: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.machine.turns();
        if self.is_alone {
            turns.is_held_alone = false;
        } else {
            turns.sharing -= 1;
        }
        self.machine.changed.notify_all();
    }
}

/// Permission of a scenario to use this machine. Dropping it prints the duration of the scenario, without the
/// time of waiting.
#[derive(Debug)]
pub struct Ground {
    _turn: Turn,
    start: Instant,
}

impl Ground {
    /// Waits for shared use of the machine. If scenarios can't run here, prints the reason and returns
    /// `None`. Scenarios need root, the `programs`, and the router's binary.
    ///
    /// # Panics
    /// A requirement is missing and the environment variable `CI` is `true`.
    pub fn enter(programs: &[&str]) -> Option<Self> {
        is_ready(programs).then(|| Self::of(MACHINE.share()))
    }

    /// Waits for exclusive use of the machine, for a scenario that measures a rate, a delay, a gap or a loss.
    /// All waiting ordinary scenarios run first.
    ///
    /// # Panics
    /// See [`enter`](Self::enter).
    pub fn enter_alone(programs: &[&str]) -> Option<Self> {
        is_ready(programs).then(|| Self::of(MACHINE.hold_alone()))
    }

    fn of(turn: Turn) -> Self {
        Self { _turn: turn, start: Instant::now() }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        println!("took {:.1} s", self.start.elapsed().as_secs_f64());
    }
}

/// Prints that a test is skipped; the test runner counts these lines.
///
/// # Panics
/// The environment variable `CI` is `true`: in CI no test may be skipped.
pub fn skip(why: &str) {
    assert_ne!(env::var("CI").as_deref(), Ok("true"), "{why}");
    println!("skipped: {why}");
}

fn is_ready(programs: &[&str]) -> bool {
    let missing = missing(programs);
    missing.iter().for_each(|why| skip(why));
    missing.is_none()
}

fn missing(programs: &[&str]) -> Option<String> {
    let absent = ["ip", "ethtool", "timeout"].iter().chain(programs).find(|program| !is_installed(program));
    if !Uid::effective().is_root() {
        Some("needs root".to_owned())
    } else if let Some(program) = absent {
        Some(format!("{program} is not installed: tools/setup installs it"))
    } else if find_binary().is_none() {
        Some("the router's binary is absent: `make build`, or set MILLRACE_BIN".to_owned())
    } else {
        None
    }
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = [PathBuf::from("/usr/sbin"), PathBuf::from("/usr/lib/frr")];
    let found = env::split_paths(&path).chain(usual).any(|directory| directory.join(program).is_file());
    found || tool(program).is_some()
}

/// Returns the path of a program that tools/setup has installed in an environment of its own. The program is
/// below `MILLRACE_TOOLS`, or below the default directory.
pub fn tool(program: &str) -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/millrace-tools"));
    let tools = env::var_os("MILLRACE_TOOLS").map(PathBuf::from).or_else(home)?;
    Some(tools.join(program).join("bin").join(program)).filter(|path| path.is_file())
}

/// Returns the path of the router's binary: `MILLRACE_BIN`, the result of `make build`, or cargo's result.
///
/// # Panics
/// The binary is absent. [`Ground::enter`] has checked for it.
pub fn binary() -> PathBuf {
    find_binary().expect("the router's binary: Ground::enter comes first")
}

fn find_binary() -> Option<PathBuf> {
    if let Some(named) = env::var_os("MILLRACE_BIN") {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let root = repository();
    // The path of the test program is TARGET/debug/deps/TEST.
    let test = env::current_exe().ok()?;
    let target = test.ancestors().nth(3)?;
    let places = [root.join("out/millrace"), target.join("release/millrace"), target.join("debug/millrace")];
    places.into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};
    use std::thread;

    use super::*;

    /// Starts nine scenarios of each kind alternately. Ordinary scenarios run three at a time, so each runs
    /// beside two others. Measuring scenarios begin after the last ordinary scenario, one at a time.
    #[test]
    fn scenarios_that_measure_run_alone_behind_all_that_share() {
        let machine: &'static Machine = Box::leak(Box::new(Machine::new()));
        let began: Mutex<Vec<bool>> = Mutex::default();
        let together = Barrier::new(SHARED_AT_ONCE);
        // Hold the machine until all scenarios wait. Otherwise, the order of the threads' starts would count.
        let first = machine.hold_alone();
        thread::scope(|scope| {
            for number in 0..6 * SHARED_AT_ONCE {
                let (began, together) = (&began, &together);
                scope.spawn(move || {
                    let turn = if number % 2 == 0 { machine.hold_alone() } else { machine.share() };
                    began.lock().unwrap().push(turn.is_alone);
                    let turns = machine.turns();
                    let (alone, sharing) = (turns.is_held_alone, turns.sharing);
                    drop(turns);
                    assert!(if alone { sharing == 0 } else { (1..=SHARED_AT_ONCE).contains(&sharing) });
                    if !alone {
                        together.wait();
                    }
                });
            }
            while machine.turns().waiting_to_share() < 3 * SHARED_AT_ONCE {
                thread::yield_now();
            }
            drop(first);
        });
        assert_eq!(
            began.into_inner().unwrap(),
            [[false; 3 * SHARED_AT_ONCE], [true; 3 * SHARED_AT_ONCE]].concat()
        );
    }

    /// Lets ordinary scenarios arrive one after the other while the machine is held. Checks that when a
    /// scenario begins, all earlier arrivals have begun.
    #[test]
    fn shared_scenarios_start_in_order_of_arrival() {
        let machine: &'static Machine = Box::leak(Box::new(Machine::new()));
        let first = machine.hold_alone();
        thread::scope(|scope| {
            for number in 0..8 * SHARED_AT_ONCE {
                scope.spawn(move || {
                    let turn = machine.share();
                    let began = machine.turns().began_to_share;
                    assert!(began > number, "{number} began among the first {began}");
                    drop(turn);
                });
                while machine.turns().waiting_to_share() <= number {
                    thread::yield_now();
                }
            }
            drop(first);
        });
    }
}
