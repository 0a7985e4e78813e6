//! Ingress: reception, parsing, and steering of packets to the worker of their flow.

pub(crate) mod host_output;
pub(crate) mod read;
pub(crate) mod receive;
pub(crate) mod steer;
