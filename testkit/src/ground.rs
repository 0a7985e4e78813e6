//! The ground of a scenario: root, programs, the router's binary, and its turn on the machine.

use std::env;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use nix::unistd::Uid;

use crate::repository::repository;

/// The machine: shared by scenarios that only use it, held alone by those that measure. A waiting writer goes first.
static MACHINE: RwLock<()> = RwLock::new(());

/// A scenario's turn on this machine. Its end prints how long the scenario took, without the wait.
#[derive(Debug)]
pub struct Ground {
    _turn: Turn,
    start: Instant,
}

#[derive(Debug)]
enum Turn {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl Ground {
    /// Waits for a turn beside other scenarios. `None`, and a line with the reason, where scenarios can't run: without
    /// root, one of `programs`, or the router's binary.
    ///
    /// # Panics
    /// Instead of `None`, where the environment variable `CI` is `true`.
    pub fn enter(programs: &[&str]) -> Option<Self> {
        is_ready(programs).then(|| {
            Self::of(Turn::Shared { _guard: MACHINE.read().unwrap_or_else(PoisonError::into_inner) })
        })
    }

    /// Like [`enter`](Self::enter), for a scenario that measures a rate, a delay, a gap or a loss: no other scenario runs
    /// meanwhile.
    ///
    /// # Panics
    /// As [`enter`](Self::enter).
    pub fn enter_alone(programs: &[&str]) -> Option<Self> {
        is_ready(programs).then(|| {
            Self::of(Turn::Alone { _guard: MACHINE.write().unwrap_or_else(PoisonError::into_inner) })
        })
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

/// Prints that a test is skipped, for the runner to count.
///
/// # Panics
/// Where the environment variable `CI` is `true`: there nothing may be skipped.
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

/// A program that tools/setup has put into an environment of its own: below `MILLRACE_TOOLS`, or where it is by default.
pub fn tool(program: &str) -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/millrace-tools"));
    let tools = env::var_os("MILLRACE_TOOLS").map(PathBuf::from).or_else(home)?;
    Some(tools.join(program).join("bin").join(program)).filter(|path| path.is_file())
}

/// The router's binary: `MILLRACE_BIN`, or what `make build` left, or what cargo built.
///
/// # Panics
/// When there is none; [`Ground::enter`] has found one.
pub fn binary() -> PathBuf {
    find_binary().expect("the router's binary: Ground::enter comes first")
}

fn find_binary() -> Option<PathBuf> {
    if let Some(named) = env::var_os("MILLRACE_BIN") {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let root = repository();
    // TARGET/debug/deps/TEST
    let test = env::current_exe().ok()?;
    let target = test.ancestors().nth(3)?;
    let places = [root.join("out/millrace"), target.join("release/millrace"), target.join("debug/millrace")];
    places.into_iter().find(|path| path.is_file())
}
