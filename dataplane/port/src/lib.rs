//! Where packets come from and go to: AF_XDP, AF_PACKET, TAP, pcap and memory ports, and wrappers around them.

pub mod af_packet;
pub mod af_xdp;
mod batch_send;
mod error;
mod impair;
mod longest_frame;
pub mod memory;
pub mod partial_checksum;
pub mod pcap;
mod port;
mod readiness;
mod record;
pub mod segment;
mod socket_option;
mod tap;
#[cfg(test)]
mod test_frame;
mod transport_header;

pub use af_packet::AfPacket;
pub use af_xdp::AfXdp;
pub use batch_send::BatchSend;
pub use error::PortError;
pub use impair::{Impair, ImpairError, Impairment, ImpairmentDirection};
pub use memory::{Memory, MemoryHandle};
pub use pcap::{Pcap, PcapOptions};
pub use port::{Arrivals, Capabilities, Mode, Port, PortCounters, Progress};
pub use record::{Record, RecordLimit};
pub use tap::Tap;
