//! Far end of a measurement: an XDP program drops all arriving packets.

use millrace_offload::{FrameSink, OffloadError};

use crate::BenchError;
use crate::testbed::network::Namespace;

/// Attaches a program that drops all packets that arrive at a device. Dropping the result removes the
/// program.
pub(crate) fn sink(namespace: &Namespace, device: &str) -> Result<FrameSink, BenchError> {
    let index = namespace.index(device)?;
    namespace.within(|| FrameSink::dropping(index))?.map_err(no_sink)
}

pub(crate) fn no_sink(error: OffloadError) -> BenchError {
    BenchError::measurement("far end", format!("can't create the receiver of packets: {error}"))
}
