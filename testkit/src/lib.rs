//! What scenario tests share: hosts and routers in network namespaces, a router's process, traffic that is counted, and
//! the conservation law.
//!
//! ```no_run
//! use millrace_testkit::{Ground, Line, Millrace};
//!
//! let Some(_ground) = Ground::enter(&["ping"]) else { return };
//! let line = Line::new();
//! let router = Millrace::start(&line.r, "--port r1 --port r2");
//! line.h1.run("ping -c 1 10.2.0.2");
//! router.assert_conservation();
//! ```
//!
//! Everything here is for tests: it panics, with what was tried and what came of it, where something does not go as it
//! should. Whatever is made is removed when it is dropped, also by a panic. Only processes that were started here are
//! ended, by their number.

mod background;
pub mod built;
pub mod classbench;
mod clients;
mod descriptor;
mod ground;
mod line;
mod millrace;
mod namespace;
mod random;
mod raw_socket;
mod repository;
mod traffic;
mod wait;

pub use background::Background;
pub use clients::{answer_times, percentile, resident};
pub use descriptor::shrink_netlink_buffers;
pub use ground::{Ground, binary, skip, tool};
pub use line::{Line, LineOptions};
pub use millrace::{Ended, Millrace, run_to_end};
pub use namespace::Namespace;
pub use random::Random;
pub use raw_socket::RawSocket;
pub use repository::repository;
pub use traffic::{Arrival, Arrivals, Flow, FlowReport, burst, transfer};
pub use wait::{eventually, wait_until};
