//! `shaping`: what a port's scheduler does on the wire, beside the kernel's.

mod greedy;
mod rates;
mod shares;
mod voice;

use crate::network::Network;
use crate::process::is_installed;
use crate::{BenchError, Measurement, Options};

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if !is_installed("iperf3") {
        return Err(BenchError::measurement("shaping", "iperf3 is not installed"));
    }
    let network = Network::new()?;
    let mut results = rates::measure(&network, options)?;
    results.extend(shares::measure(&network, options)?);
    results.extend(voice::measure(&network, options)?);
    Ok(results)
}

/// A queue discipline of the kernel on the router's second device. It is removed when this is dropped.
struct Discipline<'n>(&'n Network);

impl<'n> Discipline<'n> {
    /// Sets it up, by lines of `tc` about the device.
    fn set(network: &'n Network, lines: &[String]) -> Result<Self, BenchError> {
        let discipline = Self(network);
        for line in lines {
            network.r.shell(&format!("tc {line}"))?;
        }
        Ok(discipline)
    }
}

impl Drop for Discipline<'_> {
    fn drop(&mut self) {
        // It is not there when it could not be set up.
        let _ = self.0.r.shell("tc qdisc del dev r2 root");
    }
}

/// Lines of `tc` for a hierarchical token bucket with a class 1 of so many megabits, on an Ethernet, and the class that
/// packets go to by default.
fn htb(megabits: u32, default: u32) -> Vec<String> {
    vec![
        format!("qdisc add dev r2 root handle 1: htb default {default}"),
        format!(
            "class add dev r2 parent 1: classid 1:1 htb rate {megabits}mbit ceil {megabits}mbit overhead 24 mpu 84"
        ),
    ]
}
