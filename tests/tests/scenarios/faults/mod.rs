//! Faults of the router, its machine and its traffic.

mod churn;
pub mod clocks;
mod control;
mod crashes;
mod death;
mod environment;
mod garbage;
mod memory;
mod shutdown;
mod soak;
