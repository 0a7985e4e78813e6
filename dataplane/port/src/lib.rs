//! Ports, the sources and sinks of packets: AF_XDP, AF_PACKET, TAP, pcap and memory ports, and wrappers
//! around them.
//!
//! No port indexes the bytes of a frame; all accesses are bounds-checked views.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod af_packet;
#[expect(
    clippy::indexing_slicing,
    reason = "sockets of a device, by its queues' numbers; packets are not read"
)]
pub mod af_xdp;
mod batch_send;
mod error;
mod file;
mod impair;
mod longest_frame;
#[expect(clippy::indexing_slicing, reason = "queues and templates of a port in memory, by their numbers")]
pub mod memory;
pub mod pcap;
mod port;
mod readiness;
mod record;
mod socket_option;
mod stateless_offload;
mod tap;

pub use af_packet::AfPacket;
pub use af_xdp::AfXdp;
pub use batch_send::BatchSend;
pub use error::PortError;
pub use file::{check_recording, create_output, create_recording};
pub use impair::{Impair, ImpairError, Impairment, ImpairmentDirection};
pub use memory::{Memory, MemoryHandle};
pub use pcap::{Pcap, PcapFiles, PcapOptions};
pub use port::{Arrivals, Capabilities, Mode, Port, PortCounters, Progress};
pub use record::{Record, RecordLimit};
pub use stateless_offload::{partial_checksum, segment};
pub use tap::Tap;
