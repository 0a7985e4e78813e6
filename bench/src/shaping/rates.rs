//! How exactly a rate is kept.

use std::time::{Duration, Instant};

use super::greedy::while_one_floods;
use super::{ENDS, Shaper, shaped};
use crate::interrupt::pause;
use crate::network::Network;
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options, Subject, Timeline, iperf3};

/// Rates in megabits a second.
const RATES: [u32; 4] = [1, 10, 100, 1000];
/// Rounds, of which the median counts.
const ROUNDS: usize = 3;
/// How long a sender is left alone before anything is counted, and how long it is counted.
const BEFORE: Duration = Duration::from_millis(1500);
const TIME: Duration = Duration::from_secs(3);
/// Intervals of that time, of each of which the rate is kept.
const INTERVALS: u32 = 30;
/// Promised: percent off the rate.
const LIMIT: f64 = 1.0;
/// Bytes that a link adds to each frame: preamble, check sequence and gap.
const OVERHEAD: u64 = 24;

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for megabits in RATES {
        for udp in [false, true] {
            let mut off: [Vec<f64>; 3] = Default::default();
            // The last round is shown.
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
            let off = Measurement::of(format!("{case}, off the rate"), ours.abs(), "%");
            let off = off.beside("HTB", htb.abs()).promising(Bound::AtMost, LIMIT);
            results.push(off.with_timeline(timeline));
        }
    }
    Ok(results)
}

/// Bits that a link carried, over time.
#[derive(Default)]
struct Carried {
    /// Bits a second.
    rate: f64,
    /// Seconds at the end of each interval, and its rate in megabits a second.
    over_time: Vec<[f64; 2]>,
}

impl Carried {
    /// From counts of bytes, the first at the beginning.
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

/// Rate over a link that is offered more than it carries.
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

/// Rate over a link once it is steady.
fn carried(network: &Network) -> Result<Carried, BenchError> {
    pause(BEFORE)?;
    let mut counts = vec![counted(network)?];
    for _ in 0..INTERVALS {
        pause(TIME / INTERVALS)?;
        counts.push(counted(network)?);
    }
    Ok(Carried::of(&counts))
}

/// Bytes that the link has carried to the second host, and when.
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
