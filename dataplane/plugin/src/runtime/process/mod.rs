//! Process runtime: shared objects that run in processes of their own.
//!
//! Each instance of a worker has a process and a piece of memory that both share. The process loads the shared
//! object and calls it; a crash or a hang of the object ends the process, not the router.
//!
//! ```text
//!   worker                 shared memory                process
//!   ProcessInstance ──▶ ring of requests ─────────────▶ serve
//!                   ──▶ packets: descriptions, windows, flow states ──▶ plugin
//!                   ◀── ring of answers ◀────────────── Channel
//! ```
//!
//! A call proceeds in these steps:
//!
//! 1. The worker copies a description and the first bytes of each packet, up to 64 packets. It writes a
//!    request, wakes the process if it sleeps, and continues with other work. The packets wait.
//! 2. The process calls the plugin, which works in place. Host functions are answers, too: the worker carries
//!    them out on the packets, and writes their results as requests.
//! 3. In each iteration, the worker looks for answers. At the end of the call, it takes over verdicts, windows
//!    and flow states.
//!
//! The worker trusts nothing in the shared memory: it checks indices and lengths, reads each word once, and
//! limits its own work. An impossible content ends the process as a fault. The keeper of processes, a part of
//! control, starts and ends processes; a worker only leaves an order in its [`Seat`].

mod bell;
mod functions;
mod instance;
mod plugin;
mod region;
mod running;
mod seat;
mod serve;
mod staging;
mod work;

pub use instance::{ProcessInstance, START};
pub use plugin::{Keeper, ProcessPlugin};
pub use seat::{Link, Order, Seat, Tie};
pub use serve::serve;
