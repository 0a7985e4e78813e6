//! Egress: the end of each packet's journey, the queues of ports, neighbour resolution, and transmission.

pub(crate) mod departures;
pub(crate) mod dispose;
pub(crate) mod errors;
pub(crate) mod neighbours;
pub(crate) mod queueing;
pub(crate) mod transmit;
