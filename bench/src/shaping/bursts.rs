//! Largest burst of a shaped port.

use std::net::UdpSocket;
use std::time::Duration;

use millrace_testkit::{Arrivals, burst};

use super::greedy::{FIRST_PORT, while_flooded};
use super::{Shaper, shaped};
use crate::interrupt::pause;
use crate::statistics::median;
use crate::testbed::network::{Network, RECEIVER};
use crate::{BenchError, Bound, Measurement, Options};

/// Rates in megabits per second.
const RATES: [u32; 4] = [1, 10, 100, 1000];
/// Number of rounds; the result is their median.
const ROUNDS: usize = 5;
/// Duration of the traffic before packets are recorded.
const BEFORE: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_secs(1);
/// Header and link overhead bytes per packet: UDP, IPv4, Ethernet; then preamble, frame check sequence and
/// gap.
const OVERHEAD: usize = 8 + 20 + 14 + 24;
/// Time that determines the allowed burst: the number of bytes that the link carries in this time, but at
/// least two packets.
const ALLOWED: Duration = Duration::from_micros(200);
const PACKETS: usize = 2;
/// Minimum share of the configured rate that must arrive. With less, the benchmark has no result.
const LEAST: f64 = 0.8;

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for megabits in RATES {
        let case = format!("largest burst at {megabits} Mb/s, ratio to the limit");
        let mut bursts: [Vec<f64>; 2] = Default::default();
        for _ in 0..ROUNDS {
            for (shaper, bursts) in [Shaper::Millrace, Shaper::Tbf].into_iter().zip(&mut bursts) {
                bursts.extend(shaped(network, options, shaper, megabits, || largest(network, megabits))?);
            }
        }
        if bursts.iter().any(|bursts| bursts.len() <= ROUNDS / 2) {
            (options.progress)(&format!("{case}: less than the rate arrived, so no burst is measured"));
            continue;
        }
        let [ours, tbf] = bursts.map(|bursts| median(&bursts));
        (options.progress)(&format!("{case}: {ours:.2}, TBF {tbf:.2}"));
        let burst = Measurement::of(case, ours, "x");
        results.push(burst.beside("TBF", tbf).promising(Bound::AtMost, 1.0));
    }
    Ok(results)
}

/// Returns the largest burst within a second, as a multiple of the allowed burst. `None` if too few packets
/// arrive.
fn largest(network: &Network, megabits: u32) -> Result<Option<f64>, BenchError> {
    let failed = BenchError::system("receive packets with their times");
    let receiver = network.s.within(|| UdpSocket::bind((RECEIVER, FIRST_PORT)).and_then(Arrivals::at))?;
    let receiver = receiver.map_err(BenchError::system("open a socket"))?;
    let arrivals = while_flooded(network, megabits, &[FIRST_PORT], || {
        pause(BEFORE)?;
        receiver.take().map_err(BenchError::system("receive packets with their times"))?;
        pause(TIME)?;
        receiver.take().map_err(failed)
    })?;
    let rate = f64::from(megabits) * 1e6;
    let arrived: usize = arrivals.iter().map(|arrival| arrival.payload + OVERHEAD).sum();
    if (arrived as f64) * 8.0 < LEAST * rate * TIME.as_secs_f64() {
        return Ok(None);
    }
    let packet = arrivals.first().map_or(0, |first| first.payload) + OVERHEAD;
    let allowed = (ALLOWED.as_secs_f64() * rate / 8.0).max((PACKETS * packet) as f64);
    Ok(Some(burst(&arrivals, OVERHEAD, rate) / allowed))
}
