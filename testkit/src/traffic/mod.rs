//! Traffic between hosts: counted datagrams, their arrivals, and transfers over TCP.

mod arrivals;
mod flow;
mod transfer;

pub use arrivals::{Arrival, Arrivals, burst};
pub use flow::{Flow, FlowReport};
pub use transfer::transfer;
