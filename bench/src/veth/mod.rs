//! `veth`: the router between two hosts on veth devices, compared with DPDK's testpmd and with the kernel.

mod forwarding;
mod goodput;
mod idle;
mod testpmd;

use crate::testbed::network::Network;
use crate::testbed::process::SessionFirst;
use crate::{BenchError, Measurement, Options};

/// Runs all cases of the benchmark `veth`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let network = Network::new()?;
    let _first = SessionFirst::begin();
    let mut results = forwarding::measure(&network, options)?;
    results.extend(goodput::measure(&network, options)?);
    results.extend(idle::measure(&network, options)?);
    Ok(results)
}
