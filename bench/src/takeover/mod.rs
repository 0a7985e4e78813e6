//! `takeover`: interruption of a flow when the router is killed, and when it starts again.
//!
//! Each of two hosts sends 10,000 numbered packets per second to the other. The kernel's table, which the
//! router mirrors, has 100,000 routes besides the connected routes. SIGKILL ends the router, and the kernel
//! continues to forward. Then the router starts again, and takes over from the kernel.

mod numbered_flow;

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use self::numbered_flow::{Arrival, Interruption, NumberedFlow, arrival_rate};
use crate::interrupt::pause;
use crate::testbed::network::{GENERATOR, Network, RECEIVER};
use crate::testbed::process::SessionFirst;
use crate::testbed::router::Router;
use crate::{BenchError, Bound, Measurement, Options, Subject, Timeline};

/// Number of repetitions: a kill and a start each.
const REPETITIONS: usize = 5;
/// Number of routes that fill the tables.
const ROUTES: u32 = 100_000;
/// Duration of the traffic before each event (kill or start).
const BEFORE: Duration = Duration::from_millis(300);
const AFTER: Duration = Duration::from_secs(1);
/// Promised maximum: milliseconds without an arriving packet.
const LIMIT: f64 = 50.0;

/// Longest interruptions in one direction over all repetitions: by a kill, and by a start.
#[derive(Debug, Default)]
struct Worst {
    death: Event,
    restart: Event,
}

/// Interruption by a kill or start, and the arrival rate before and after it. `rate` has points: seconds
/// since the kill or start, and packets per second.
#[derive(Debug, Default)]
struct Event {
    interruption: Interruption,
    rate: Vec<[f64; 2]>,
}

/// Times of one repetition: begin of the observation, kill and start of the router, and end of the
/// observation of each of these two events.
#[derive(Clone, Copy, Debug)]
struct Moments {
    begin: Instant,
    killed: Instant,
    watched_death: Instant,
    started: Instant,
    watched_restart: Instant,
}

/// Runs all cases of the benchmark `takeover`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let network = Network::new()?;
    let _first = SessionFirst::begin();
    (options.progress)(&format!("full tables: {ROUTES} routes"));
    network.r.ip(&routes())?;
    let mut worst: [Worst; 2] = Default::default();
    let mut router = Router::start(&options.binary, &network, None)?;
    for repetition in 1..=REPETITIONS {
        let (again, seen) = die_and_return(router, &network, options)?;
        router = again;
        (options.progress)(&describe(repetition, &seen));
        for (worst, seen) in worst.iter_mut().zip(seen) {
            worst.death.be_worse(seen.death);
            worst.restart.be_worse(seen.restart);
        }
    }
    router.stop()?;
    let figure = |what: &str, event: &Event| {
        let case = format!("{what}, longest gap in {REPETITIONS} repetitions");
        let timeline = Timeline::of("arrivals, packets/s").with(Subject::Millrace, "Millrace", &event.rate);
        let gap = Measurement::of(case, event.interruption.gap.as_secs_f64() * 1e3, "ms");
        gap.promising(Bound::AtMost, LIMIT).with_timeline(timeline)
    };
    let both = [(&worst[0], "forward direction"), (&worst[1], "reverse direction")];
    let results = both.map(|(worst, way)| {
        let death = figure(&format!("kill -9, {way}"), &worst.death);
        [death, figure(&format!("restart, {way}"), &worst.restart)]
    });
    Ok(results.into_iter().flatten().collect())
}

/// Kills the router and starts it again. Returns the interruptions of the flows in both directions.
fn die_and_return(
    router: Router,
    network: &Network,
    options: &Options<'_>,
) -> Result<(Router, [Worst; 2]), BenchError> {
    let forth = NumberedFlow::start(&network.g, &network.s, RECEIVER)?;
    let back = NumberedFlow::start(&network.s, &network.g, GENERATOR)?;
    // The first packets don't count: they may wait for neighbour resolution.
    pause(BEFORE)?;
    let begin = Instant::now();
    pause(BEFORE)?;
    let killed = Instant::now();
    router.kill()?;
    pause(AFTER)?;
    let (watched_death, started) = (Instant::now(), Instant::now());
    let router = Router::start(&options.binary, network, None)?;
    pause(AFTER)?;
    let moments = Moments { begin, killed, watched_death, started, watched_restart: Instant::now() };
    pause(BEFORE)?;
    let seen = [judge(forth, &moments)?, judge(back, &moments)?];
    Ok((router, seen))
}

fn judge(flow: NumberedFlow, moments: &Moments) -> Result<Worst, BenchError> {
    let sent = flow.sent();
    let arrivals = flow.finish()?;
    require_steady(&arrivals, sent, moments)?;
    let event = |from: Instant, cause: Instant, to: Instant| Event {
        interruption: Interruption::between(&arrivals, cause, to),
        rate: arrival_rate(&arrivals, (from, to), cause),
    };
    Ok(Worst {
        death: event(moments.begin, moments.killed, moments.watched_death),
        restart: event(moments.started - BEFORE, moments.started, moments.watched_restart),
    })
}

/// Returns an error if the flow was not steady before the kill. The router would then not be the cause of the
/// flow's gaps.
fn require_steady(arrivals: &[Arrival], sent: u64, moments: &Moments) -> Result<(), BenchError> {
    let before = Interruption::between(arrivals, moments.begin, moments.killed);
    if before.gap.as_secs_f64() * 1e3 < LIMIT {
        return Ok(());
    }
    let problem = format!(
        "not steady before the router was killed: {} ms without a packet, {} packets sent and {} arrived in all",
        before.gap.as_millis(),
        sent,
        arrivals.len()
    );
    Err(BenchError::measurement("numbered flow", problem))
}

impl Event {
    /// Replaces this event by `other` if `other` has the longer gap.
    fn be_worse(&mut self, other: Self) {
        if self.rate.is_empty() || other.interruption.gap > self.interruption.gap {
            *self = other;
        }
    }
}

fn describe(repetition: usize, seen: &[Worst; 2]) -> String {
    let mut text = format!("{repetition} of {REPETITIONS}:");
    for (way, worst) in ["forth", "back"].iter().zip(seen) {
        for (what, found) in [("kill -9", &worst.death), ("restart", &worst.restart)] {
            let Event { interruption: found, .. } = found;
            let gap = found.gap.as_secs_f64() * 1e3;
            // Writing to a string can't fail.
            let _ = write!(text, " {way}, {what}: {gap:.1} ms, {} lost;", found.lost);
        }
    }
    text.trim_end_matches(';').to_owned()
}

/// Returns lines of `ip` for routes to networks without traffic.
fn routes() -> String {
    (0..ROUTES).fold(String::new(), |mut lines, route| {
        let network = Ipv4Addr::from((20 << 24) + (route << 8));
        // Writing to a string can't fail.
        let _ = writeln!(lines, "route add {network}/24 via {RECEIVER}");
        lines
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_flow_through_the_kernel_is_whole_and_nothing_stays_behind() {
        if crate::testbed::network::is_skipped() {
            return;
        }
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let network = Network::new().unwrap();
        let forth = NumberedFlow::start(&network.g, &network.s, RECEIVER).unwrap();
        let back = NumberedFlow::start(&network.s, &network.g, GENERATOR).unwrap();
        std::thread::sleep(BEFORE);
        for flow in [forth, back] {
            let sent = flow.sent();
            let arrivals = flow.finish().unwrap();
            assert!(sent > 1000, "{sent}");
            // A loaded machine may send late, but it loses no packet.
            let (first, last) = (arrivals[0], arrivals[arrivals.len() - 1]);
            assert_eq!(last.number - first.number + 1, arrivals.len() as u64);
            assert!(first.number < 100 && arrivals.len() as u64 > sent - 200, "{sent}, {first:?}");
        }
        let name = network.r.name().to_owned();
        assert!(std::path::Path::new("/run/netns").join(&name).exists());
        drop(network);
        assert!(!std::path::Path::new("/run/netns").join(&name).exists());
    }

    #[test]
    fn the_routes_that_fill_the_tables_are_all_different() {
        let text = routes();
        let lines: HashSet<&str> = text.lines().collect();
        assert_eq!(lines.len(), ROUTES as usize);
    }
}
