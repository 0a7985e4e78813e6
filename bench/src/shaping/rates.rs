//! How exactly a rate is kept.

use std::time::{Duration, Instant};

use super::greedy::while_one_floods;
use super::{ENDS, Shaper, shaped};
use crate::interrupt::pause;
use crate::network::Network;
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options, iperf3};

/// Rates in megabits a second.
const RATES: [u32; 4] = [1, 10, 100, 1000];
/// Rounds, of which the median counts.
const ROUNDS: usize = 3;
/// How long a sender is left alone before anything is counted, and how long it is counted.
const BEFORE: Duration = Duration::from_millis(1500);
const TIME: Duration = Duration::from_secs(3);
/// Promised: percent off the rate.
const LIMIT: f64 = 1.0;
/// Bytes that a link adds to each frame: preamble, check sequence and gap.
const OVERHEAD: u64 = 24;

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for megabits in RATES {
        for udp in [false, true] {
            let mut off: [Vec<f64>; 3] = Default::default();
            for _ in 0..ROUNDS {
                for (shaper, off) in [Shaper::Millrace, Shaper::Htb, Shaper::Tbf].into_iter().zip(&mut off) {
                    let rate = shaped(network, options, shaper, megabits, || rate(network, (megabits, udp)))?;
                    off.push(100.0 * (rate / (f64::from(megabits) * 1e6) - 1.0));
                }
            }
            let [ours, htb, tbf] = off.map(|off| median(&off));
            let case = format!("{} at {megabits} Mb/s", if udp { "UDP" } else { "TCP" });
            (options.progress)(&format!(
                "{case}: off by {ours:+.2} %, HTB by {htb:+.2} %, TBF by {tbf:+.2} %"
            ));
            let off = Measurement::of(format!("{case}, off the rate"), ours.abs(), "%");
            results.push(off.beside("HTB", htb.abs()).promising(Bound::AtMost, LIMIT));
        }
    }
    Ok(results)
}

/// Bits a second that go over the link while more are wanted.
fn rate(network: &Network, (megabits, udp): (u32, bool)) -> Result<f64, BenchError> {
    if udp {
        return while_one_floods(network, megabits, || carried(network));
    }
    let server = iperf3::server(network, Some(ENDS))?;
    let client = iperf3::client(network, Some(ENDS), 20, &[])?;
    let rate = carried(network);
    drop((client, server));
    rate
}

/// Bits a second that go over the link, after a while.
fn carried(network: &Network) -> Result<f64, BenchError> {
    pause(BEFORE)?;
    let before = counted(network)?;
    pause(TIME)?;
    let after = counted(network)?;
    Ok((after.0 - before.0) as f64 * 8.0 / (after.1 - before.1).as_secs_f64())
}

/// Bytes that the link has carried to the second host, and when.
fn counted(network: &Network) -> Result<(u64, Instant), BenchError> {
    let (bytes, packets) = network.s.carried("s0")?;
    Ok((bytes + OVERHEAD * packets, Instant::now()))
}
