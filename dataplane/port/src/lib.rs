//! Where packets come from and go to: AF_XDP, AF_PACKET, TAP, pcap and memory ports, and wrappers around them.

pub mod memory;
mod port;

pub use memory::{Memory, MemoryHandle};
pub use port::{Capabilities, Mode, Port, PortCounters};
