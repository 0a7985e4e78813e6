//! Common parts of scenario tests: hosts and routers in network namespaces, a router process, counted
//! traffic, and the check that no packet is unaccounted.
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
//! All functions are for tests: a failure panics with the operation and its result. Dropping a value removes
//! its resources, even during a panic. The testkit ends only processes that it has started, by process ID.

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
