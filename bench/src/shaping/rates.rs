//! Accuracy of a shaped rate on the wire.

use std::time::{Duration, Instant};

use super::greedy::while_one_floods;
use super::{ENDS, Shaper, shaped};
use crate::interrupt::pause;
use crate::statistics::median;
use crate::testbed::iperf3;
use crate::testbed::network::Network;
use crate::{BenchError, Bound, Measurement, Options, Subject, Timeline};

/// Rates in megabits per second.
const RATES: [u32; 4] = [1, 10, 100, 1000];
/// Number of rounds; the result is their median.
const ROUNDS: usize = 3;
/// Duration of the traffic before counting begins.
const BEFORE: Duration = Duration::from_millis(1500);
const TIME: Duration = Duration::from_secs(3);
/// Number of intervals in the counted time. The timeline shows the rate of each interval.
const INTERVALS: u32 = 30;
/// Promised maximum: deviation from the configured rate in percent.
const LIMIT: f64 = 1.0;
/// Link overhead per frame in bytes: preamble, frame check sequence and gap.
const OVERHEAD: u64 = 24;

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for megabits in RATES {
        for udp in [false, true] {
            let mut off: [Vec<f64>; 3] = Default::default();
            // The timeline shows the last round.
            let mut last: [Carried; 3] = Default::default();
            for _ in 0..ROUNDS {
                let kept = off.iter_mut().zip(&mut last);
                for (shaper, (off, last)) in
                    [Shaper::Millrace, Shaper::Htb, Shaper::Tbf].into_iter().zip(kept)
                {
                    *last = shaped(network, options, shaper, megabits, || rate(network, (megabits, udp)))?;
                    off.push(100.0 * (last.rate / (f64::from(megabits) * 1e6) - 1.0));
                }
            }
            let [ours_over_time, htb_over_time, tbf_over_time] = last.map(|carried| carried.over_time);
            let timeline = Timeline::of("rate, Mb/s")
                .with(Subject::Millrace, "Millrace", &ours_over_time)
                .with(Subject::Peer, "HTB", &htb_over_time)
                .with(Subject::Peer, "TBF", &tbf_over_time);
            let [ours, htb, tbf] = off.map(|off| median(&off));
            let case = format!("{} at {megabits} Mb/s", if udp { "UDP" } else { "TCP" });
            (options.progress)(&format!(
                "{case}: off by {ours:+.2} %, HTB by {htb:+.2} %, TBF by {tbf:+.2} %"
            ));
            let off = Measurement::of(format!("{case}, deviation from the rate"), ours.abs(), "%");
            let off = off.beside("HTB", htb.abs()).promising(Bound::AtMost, LIMIT);
            results.push(off.with_timeline(timeline));
        }
    }
    Ok(results)
}

/// Rate of a link: in total, and over time.
#[derive(Default)]
struct Carried {
    /// Bits per second.
    rate: f64,
    /// Points of the timeline: end of the interval in seconds, and rate in megabits per second.
    over_time: Vec<[f64; 2]>,
}

impl Carried {
    /// Calculates the rates from readings of the byte count. The first reading is the start.
    fn of(counts: &[(u64, Instant)]) -> Self {
        let rate = |before: &(u64, Instant), after: &(u64, Instant)| {
            (after.0 - before.0) as f64 * 8.0 / (after.1 - before.1).as_secs_f64()
        };
        let (Some(first), Some(last)) = (counts.first(), counts.last()) else { return Self::default() };
        let point =
            |pair: &[(u64, Instant)]| [(pair[1].1 - first.1).as_secs_f64(), rate(&pair[0], &pair[1]) / 1e6];
        Self { rate: rate(first, last), over_time: counts.windows(2).map(point).collect() }
    }
}

/// Measures the rate of an overloaded link.
fn rate(network: &Network, (megabits, udp): (u32, bool)) -> Result<Carried, BenchError> {
    if udp {
        return while_one_floods(network, megabits, || carried(network));
    }
    let server = iperf3::server(network, Some(ENDS))?;
    let client = iperf3::client(network, Some(ENDS), 20, &[])?;
    let rate = carried(network);
    drop((client, server));
    rate
}

/// Measures the rate of a link after the warm-up.
fn carried(network: &Network) -> Result<Carried, BenchError> {
    pause(BEFORE)?;
    let mut counts = vec![counted(network)?];
    for _ in 0..INTERVALS {
        pause(TIME / INTERVALS)?;
        counts.push(counted(network)?);
    }
    Ok(Carried::of(&counts))
}

/// Returns the number of bytes that the link has carried to the second host, and the time of the reading.
fn counted(network: &Network) -> Result<(u64, Instant), BenchError> {
    let (bytes, packets) = network.s.carried("s0")?;
    Ok((bytes + OVERHEAD * packets, Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_of_all_the_time_and_of_each_interval() {
        let start = Instant::now();
        let count = |(bytes, seconds)| (bytes, start + Duration::from_secs(seconds));
        let carried = Carried::of(&[(1000, 0), (126_000, 1), (626_000, 3)].map(count));
        assert!((carried.rate - 5e6 / 3.0).abs() < 1e-3, "{}", carried.rate);
        assert_eq!(carried.over_time, [[1.0, 1.0], [3.0, 2.0]]);
    }
}
