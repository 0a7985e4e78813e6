//! The program iperf3: a server on the second host, a client on the first.

use std::time::Duration;

use crate::BenchError;
use crate::interrupt::{pause, wait_until};
use crate::testbed::network::{Network, RECEIVER};
use crate::testbed::process::{Processor, Running, command};

/// Starts a server for one transfer, bound to `processor` if given. The server listens when this function
/// returns.
pub(crate) fn server(network: &Network, processor: Option<Processor>) -> Result<Running, BenchError> {
    let mut server = command(network.s.open()?, "iperf3", processor)?;
    let mut server = Running::start(server.args(["--server", "--one-off", "--forceflush"]))?;
    let listening = wait_until(Duration::from_secs(5), || match server.ended()? {
        Some(status) => Err(server.failure(&status.to_string())),
        None => Ok(server.output().contains("listening")),
    })?;
    if !listening {
        // Some versions print "listening" only when they end, so wait a while instead.
        pause(Duration::from_millis(300))?;
    }
    Ok(server)
}

/// Starts a client that sends for a given number of seconds and then reports as JSON.
pub(crate) fn client(
    network: &Network,
    processor: Option<Processor>,
    seconds: u64,
    more: &[&str],
) -> Result<Running, BenchError> {
    let mut client = command(network.g.open()?, "iperf3", processor)?;
    client.args(["--client", &RECEIVER.to_string(), "--time", &seconds.to_string(), "--json"]);
    Running::start(client.args(more))
}
