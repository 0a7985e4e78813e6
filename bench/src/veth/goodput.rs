//! TCP goodput through the router and through the kernel, with all device offloads off.

use std::time::Duration;

use serde_json::Value;

use crate::statistics::{extremes, median, ratios};
use crate::testbed::iperf3;
use crate::testbed::network::Network;
use crate::testbed::process::is_installed;
use crate::testbed::router::Router;
use crate::{BenchError, Measurement, Options};

/// Number of pairs of runs. Each pair is one run through the router and one through the kernel.
const PAIRS: usize = 3;
/// Duration of a transfer in seconds.
const SECONDS: u64 = 3;

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if !is_installed("iperf3") {
        (options.progress)("iperf3 is not installed: TCP goodput is left out");
        return Ok(Vec::new());
    }
    let (mut ours, mut kernel) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        kernel.push(transfer(network)?);
        let router = Router::start(&options.binary, network, None)?;
        ours.push(transfer(network)?);
        router.stop()?;
    }
    let ratios = ratios(&ours, &kernel);
    let ((least, most), ratio) = (extremes(&ratios), median(&ratios));
    (options.progress)(&format!(
        "TCP goodput, ratio to the kernel's: median {ratio:.3}, {least:.3} to {most:.3}"
    ));
    let result = Measurement::of("TCP goodput, offloads off", median(&ours), "Gbit/s");
    Ok(vec![result.beside("kernel", median(&kernel)).with_ratio(ratio)])
}

/// Runs one transfer from `g` to `s`; returns the received rate in Gbit/s.
fn transfer(network: &Network) -> Result<f64, BenchError> {
    let _server = iperf3::server(network, None)?;
    let client = iperf3::client(network, None, SECONDS, &["--omit", "1"])?;
    let report = client.finish(Duration::from_secs(SECONDS + 10))?;
    received_rate(&report)
        .ok_or_else(|| BenchError::measurement("iperf3", "the report of iperf3 has no rate"))
}

/// Parses the received rate from iperf3's report; returns Gbit/s.
fn received_rate(report: &str) -> Option<f64> {
    let report: Value = serde_json::from_str(report).ok()?;
    Some(report.pointer("/end/sum_received/bits_per_second")?.as_f64()? / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_rate_is_read() {
        let report =
            r#"{"end": {"sum_sent": {"bits_per_second": 9e9}, "sum_received": {"bits_per_second": 8e9}}}"#;
        assert_eq!(received_rate(report), Some(8.0));
        assert_eq!(received_rate(r#"{"error": "refused"}"#), None);
    }
}
