//! Transport layer: TCP and UDP.

pub mod tcp;
pub mod udp;
