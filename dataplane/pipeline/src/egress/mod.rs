//! Egress: carries out packet fates, queues packets at ports, resolves neighbours, and transmits.

pub(crate) mod departures;
pub(crate) mod dispose;
pub(crate) mod errors;
pub(crate) mod neighbours;
pub(crate) mod queueing;
pub(crate) mod transmit;
