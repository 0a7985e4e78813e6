//! Where packets come from and go to: AF_XDP, AF_PACKET, TAP, pcap and memory ports, and wrappers around them.

mod port;

pub use port::{Capabilities, Mode, Port, PortCounters};
