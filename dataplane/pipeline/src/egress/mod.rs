//! Egress: the end of each packet's journey, the queues and schedulers of ports, and transmission.

pub(crate) mod accounts;
pub(crate) mod dispose;
pub(crate) mod errors;
pub(crate) mod port_scheduler;
pub(crate) mod ports;
pub(crate) mod queue_backlog;
pub(crate) mod transmit;
