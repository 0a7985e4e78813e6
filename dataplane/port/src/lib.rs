//! Where packets come from and go to: AF_XDP, AF_PACKET, TAP, pcap and memory ports, and wrappers around them.

pub mod af_xdp;
mod error;
mod impair;
pub mod memory;
pub mod pcap;
pub mod partial_checksum;
mod port;
mod readiness;
pub mod segment;
mod socket_option;
#[cfg(test)]
mod test_frame;
mod transport_header;

pub use af_xdp::AfXdp;
pub use error::PortError;
pub use impair::{Impair, ImpairError, Impairment, ImpairmentDirection};
pub use memory::{Memory, MemoryHandle};
pub use pcap::{Pcap, PcapOptions};
pub use port::{Capabilities, Mode, Port, PortCounters};
