//! What the process does that compiles: it confines itself, reads a module from its standard input, and writes the code to its
//! standard output. Why it failed stands on its standard error.

use std::io::{Read, Write};

use millrace_confine::ConfineError;
use millrace_plugin::wasm::{MOST_MODULE, ModuleError, Tier, compile};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::confine::confine;

/// Exit code of a process whose compiler refused the module.
pub const REFUSED: u8 = 3;
/// Exit code of a process that could not do its work.
pub const BROKEN: u8 = 4;
/// Exit code of a process that has no memory for the module.
pub const NO_MEMORY: u8 = 5;

/// Added to the niceness of a process that makes better code while other code runs.
const NICE: libc::c_int = 10;
/// That of the threads beside the first one: a worker that polls keeps nine tenths of its processor, and what such a thread has begun
/// still ends soon.
const NICE_BESIDE: libc::c_int = 10;
/// Threads of a process at most. Each takes address space for memory of its own.
pub(crate) const MOST_THREADS: usize = 4;

/// Why there is no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    /// The compiler refused the module.
    #[error("{0}")]
    Refused(String),
    /// It was not called as the router calls it.
    #[error("it is called by the router, as `compile-plugin TIER MEMORY SECONDS`: {0}")]
    Usage(String),
    /// It has no threads.
    #[error("no threads to compile with: {0}")]
    Threads(String),
    /// It could not be confined.
    #[error("the process {0}")]
    Confine(#[from] ConfineError),
    /// There is no memory for the module.
    #[error("no memory for the module")]
    Memory,
    /// The module could not be read, or the code not be written.
    #[error("the router doesn't listen: {0}")]
    Pipe(String),
}

impl ChildError {
    /// The exit code that tells the router.
    pub fn code(&self) -> u8 {
        match self {
            Self::Refused(_) => REFUSED,
            Self::Memory => NO_MEMORY,
            _ => BROKEN,
        }
    }
}

/// What the router wants of the process, as its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    /// Which compiler.
    pub tier: Tier,
    /// Bytes of address space, at most.
    pub memory: u64,
    /// Seconds of the processor, at most.
    pub seconds: u64,
}

impl Order {
    pub fn arguments(self) -> [String; 3] {
        [self.tier.to_string(), self.memory.to_string(), self.seconds.to_string()]
    }

    fn parse(arguments: &[String]) -> Result<Self, ChildError> {
        let [tier, memory, seconds] = arguments else {
            return Err(ChildError::Usage(format!("there are {} arguments", arguments.len())));
        };
        let number = |text: &String| {
            text.parse::<u64>().map_err(|error| ChildError::Usage(format!("{text:?}: {error}")))
        };
        let tier = tier.parse().map_err(ChildError::Usage)?;
        Ok(Self { tier, memory: number(memory)?, seconds: number(seconds)? })
    }
}

/// Confines this process and has it compile. To be called before the process has opened anything or begun threads; it can do
/// nothing else afterwards. It compiles by as many threads as there are processors, four at most.
///
/// # Errors
/// [`ChildError`], to be written to the standard error, and to be told by [`ChildError::code`].
pub fn run(arguments: &[String]) -> Result<(), ChildError> {
    let order = Order::parse(arguments)?;
    if order.tier == Tier::Optimised {
        // Whoever refuses makes workers wait a little more.
        let _ = be_nice(NICE);
    }
    let _threads = threads().map_err(|error| ChildError::Threads(error.to_string()))?;
    confine(order.memory, order.seconds)?;
    let mut wasm = Vec::new();
    let pipe = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::OutOfMemory => ChildError::Memory,
        _ => ChildError::Pipe(error.to_string()),
    };
    // One byte more than there may be tells a module that is too long.
    std::io::stdin().take(MOST_MODULE as u64 + 1).read_to_end(&mut wasm).map_err(pipe)?;
    let artifact = compile(&wasm, order.tier).map_err(|error| match error {
        ModuleError::Compile(why) => ChildError::Refused(why),
        other => ChildError::Refused(other.to_string()),
    })?;
    let mut out = std::io::stdout().lock();
    out.write_all(&artifact).and_then(|()| out.flush()).map_err(pipe)
}

/// Confines this process as one that compiles, with its threads, for tests of what is left to them then.
///
/// # Errors
/// When the kernel refuses.
#[doc(hidden)]
pub fn confine_for_test(memory: u64, seconds: u64) -> Result<ThreadPool, ChildError> {
    let threads = threads().map_err(|error| ChildError::Threads(error.to_string()))?;
    confine(memory, seconds)?;
    Ok(threads)
}

/// Threads that the compiler shares its work with, this one among them. All have begun when this returns: none can any more once the
/// process is confined.
fn threads() -> Result<ThreadPool, ThreadPoolBuildError> {
    let count = std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS));
    let beside = |number| {
        if number > 0 {
            // As above.
            let _ = be_nice(NICE_BESIDE);
        }
    };
    let threads =
        ThreadPoolBuilder::new().num_threads(count).use_current_thread().start_handler(beside).build()?;
    threads.broadcast(|_| ());
    Ok(threads)
}

/// Sets the niceness of the calling thread.
#[allow(unsafe_code)]
fn be_nice(nice: libc::c_int) -> Result<(), nix::errno::Errno> {
    // SAFETY: it changes the priority of this thread and reads no memory.
    let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    nix::errno::Errno::result(set).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_is_written() {
        let order = Order { tier: Tier::Baseline, memory: 1 << 30, seconds: 10 };
        assert_eq!(Order::parse(&order.arguments()), Ok(order));
        for wrong in [vec![], vec!["fast".into(), "1".into(), "1".into()], vec!["baseline".to_owned()]] {
            assert!(matches!(Order::parse(&wrong), Err(ChildError::Usage(_))));
        }
    }
}
