//! Compiling process. It confines itself, reads a module from its standard input, and writes the code to its
//! standard output. In case of a failure, it writes the reason to its standard error.

use std::io::{Read, Write};

use millrace_confine::ConfineError;
use millrace_plugin::wasm::{MOST_MODULE, ModuleError, Tier, compile};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::confine::confine;

/// Exit code if the compiler refuses the module.
pub const REFUSED: u8 = 3;
/// Exit code for all other failures: wrong arguments, no threads, no confinement, or a broken pipe.
pub const BROKEN: u8 = 4;
/// Exit code if there is no memory for the module.
pub const NO_MEMORY: u8 = 5;

/// Niceness of a process that optimises code. The plugin meanwhile runs with baseline code, so there is no
/// hurry.
const NICE: libc::c_int = 10;
/// Niceness of the threads other than the first. A polling worker on the same processor keeps nine tenths of
/// the processor's time, and the threads still finish soon.
const NICE_BESIDE: libc::c_int = 10;
/// Maximum number of threads of a compiling process. Each thread takes address space for its memory.
pub(crate) const MOST_THREADS: usize = 4;

/// Reason why no code was produced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    /// The compiler refused the module.
    #[error("{0}")]
    Refused(String),
    /// The arguments are not those that the router passes.
    #[error("wrong arguments of `compile-plugin TIER MEMORY SECONDS`, which only the router calls: {0}")]
    Usage(String),
    /// The process can't start its threads.
    #[error("can't start compiler threads: {0}")]
    Threads(String),
    /// The process could not be confined.
    #[error("the process {0}")]
    Confine(#[from] ConfineError),
    /// There is no memory for the module.
    #[error("not enough memory to read the module")]
    Memory,
    /// The module could not be read, or the code could not be written.
    #[error("can't read the module from the router, or send the code to it: {0}")]
    Pipe(String),
}

impl ChildError {
    /// Returns the exit code that reports the error to the router.
    pub fn code(&self) -> u8 {
        match self {
            Self::Refused(_) => REFUSED,
            Self::Memory => NO_MEMORY,
            _ => BROKEN,
        }
    }
}

/// Task that the router gives to the process, as its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    /// Compiler to use.
    pub tier: Tier,
    /// Maximum address space in bytes.
    pub memory: u64,
    /// Maximum processor time in seconds.
    pub seconds: u64,
}

impl Order {
    pub fn arguments(self) -> [String; 3] {
        [self.tier.to_string(), self.memory.to_string(), self.seconds.to_string()]
    }

    fn parse(arguments: &[String]) -> Result<Self, ChildError> {
        let [tier, memory, seconds] = arguments else {
            return Err(ChildError::Usage(format!("{} arguments instead of 3", arguments.len())));
        };
        let number = |text: &String| {
            text.parse::<u64>().map_err(|error| ChildError::Usage(format!("{text:?}: {error}")))
        };
        let tier = tier.parse().map_err(ChildError::Usage)?;
        Ok(Self { tier, memory: number(memory)?, seconds: number(seconds)? })
    }
}

/// Confines this process and compiles a module. Must be called before the process opens files or starts
/// threads. Afterwards the process can only compute and exit. The compiler uses one thread per processor, at
/// most four.
///
/// # Errors
/// [`ChildError`]: its text belongs on the standard error, its exit code is [`ChildError::code`].
pub fn run(arguments: &[String]) -> Result<(), ChildError> {
    let order = Order::parse(arguments)?;
    if order.tier == Tier::Optimised {
        // A failure is harmless: this process then delays workers on the same processor a little more.
        let _ = be_nice(NICE);
    }
    let _threads = threads()?;
    confine(order.memory, order.seconds)?;
    let mut wasm = Vec::new();
    let pipe = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::OutOfMemory => ChildError::Memory,
        _ => ChildError::Pipe(error.to_string()),
    };
    // Read one byte beyond the limit, to notice a module that is too long.
    std::io::stdin().take(MOST_MODULE as u64 + 1).read_to_end(&mut wasm).map_err(pipe)?;
    let artifact = compile(&wasm, order.tier).map_err(|error| match error {
        ModuleError::Compile(why) => ChildError::Refused(why),
        other => ChildError::Refused(other.to_string()),
    })?;
    let mut out = std::io::stdout().lock();
    out.write_all(&artifact).and_then(|()| out.flush()).map_err(pipe)
}

/// Confines this process and its threads as for compiling. Tests check the remaining rights with it.
///
/// # Errors
/// The kernel refuses.
#[doc(hidden)]
pub fn confine_for_test(memory: u64, seconds: u64) -> Result<ThreadPool, ChildError> {
    let threads = threads()?;
    confine(memory, seconds)?;
    Ok(threads)
}

/// Returns the compiler's thread pool, including this thread. All threads are running on return, since a
/// confined process can't start any.
fn threads() -> Result<ThreadPool, ChildError> {
    let count = std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS));
    let beside = |number| {
        if number > 0 {
            // A failure is harmless: this process then delays workers on the same processor a little more.
            let _ = be_nice(NICE_BESIDE);
        }
    };
    let pool = ThreadPoolBuilder::new().num_threads(count).use_current_thread().start_handler(beside);
    let threads = pool.build().map_err(|error| ChildError::Threads(error.to_string()))?;
    threads.broadcast(|_| ());
    Ok(threads)
}

/// Sets the niceness of the calling thread.
#[allow(unsafe_code)]
fn be_nice(nice: libc::c_int) -> Result<(), nix::errno::Errno> {
    // SAFETY: the call changes the priority of this thread, and accesses no memory.
    let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    nix::errno::Errno::result(set).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_round_trips() {
        let order = Order { tier: Tier::Baseline, memory: 1 << 30, seconds: 10 };
        assert_eq!(Order::parse(&order.arguments()), Ok(order));
        for wrong in [vec![], vec!["fast".into(), "1".into(), "1".into()], vec!["baseline".to_owned()]] {
            assert!(matches!(Order::parse(&wrong), Err(ChildError::Usage(_))));
        }
    }
}
