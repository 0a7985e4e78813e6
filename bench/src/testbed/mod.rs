//! Testbed of benchmarks: networks, programs, and the traffic between them.

pub(crate) mod arrivals;
pub(crate) mod frame;
pub(crate) mod iperf3;
pub(crate) mod load;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod router;
pub(crate) mod scratch;
pub(crate) mod sink;
pub(crate) mod timed_packets;
