//! A far end that drops all that arrives in the driver.

use millrace_offload::{FrameSink, OffloadError};

use crate::BenchError;
use crate::network::Namespace;

/// A program that drops all that arrives at a device. It is gone when this is dropped.
pub(crate) fn sink(namespace: &Namespace, device: &str) -> Result<FrameSink, BenchError> {
    let index = namespace.index(device)?;
    namespace.within(|| FrameSink::dropping(index))?.map_err(no_sink)
}

pub(crate) fn no_sink(error: OffloadError) -> BenchError {
    BenchError::measurement("far end", format!("it can't be made: {error}"))
}
