//! Transport layer: TCP.

pub mod tcp;
