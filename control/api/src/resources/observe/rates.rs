//! Resource `/rates`: rates of port counters, once or as a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use millrace_controller::ControlError;
use millrace_controller::view::{CountersView, PortCountersView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Interval, MissedTickBehavior};

use crate::http::extract::Arguments;
use crate::http::problem::Problem;
use crate::http::streaming::{Ending, Source, accepts_stream, as_events, message};
use crate::served::Session;

/// Maximum number of samples per second.
const MOST_HZ: u8 = 10;

/// Query arguments of `/rates`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Samples per second, 1 to 10; 1 by default.
    #[schemars(range(min = 1, max = 10))]
    hz: Option<u8>,
}

/// Rates of all ports between two samples.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RatesView {
    /// Time of the later sample: date and time, UTC.
    time: String,
    /// Seconds between the samples.
    seconds: f64,
    /// Rates of each port.
    ports: Vec<PortRatesView>,
}

/// Rates of a port's counters, per second.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PortRatesView {
    /// Name of the port.
    name: String,
    /// Frames received per second.
    rx_rate: f64,
    /// Frames sent per second.
    tx_rate: f64,
    /// Bits received per second.
    rx_bits: f64,
    /// Bits sent per second.
    tx_bits: f64,
    /// Frames dropped per second.
    drop_rate: f64,
}

impl RatesView {
    fn between(before: &CountersView, now: &CountersView) -> Self {
        let seconds = (now.seconds - before.seconds).max(1e-3);
        let ports = now.ports.iter().map(|port| {
            let old = before.ports.iter().find(|old| old.name == port.name);
            // If the counter was cleared since the previous sample, it has grown by its current value.
            let rate = |counter: fn(&PortCountersView) -> u64| {
                let (now, old) = (counter(port), old.map_or(counter(port), counter));
                now.checked_sub(old).unwrap_or(now) as f64 / seconds
            };
            PortRatesView {
                name: port.name.clone(),
                rx_rate: rate(|port| port.rx_packets),
                tx_rate: rate(|port| port.tx_packets),
                rx_bits: 8.0 * rate(|port| port.rx_bytes),
                tx_bits: 8.0 * rate(|port| port.tx_bytes),
                drop_rate: rate(|port| port.dropped),
            }
        });
        Self { time: now.time.clone(), seconds, ports: ports.collect() }
    }
}

/// Answers with the rates between two samples, or with a stream of rates.
pub(crate) async fn rates(
    session: Session,
    Arguments(wanted): Arguments<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let hz = ControlError::in_range("hz", wanted.hz.unwrap_or(1), 1..=MOST_HZ)?;
    let mut watch = Watch::new(session, hz).await?;
    if accepts_stream(&headers) {
        let Session { served, call } = &watch.session;
        let place = served.limits.streams.enter(call.principal())?;
        return Ok(as_events(watch, place, |rates| vec![message("rates", &rates)]));
    }
    let stopping = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the router is shutting down");
    Ok(Json(watch.look().await.ok_or_else(stopping)??).into_response())
}

/// Stream of rates for one client, with the previous sample.
struct Watch {
    session: Session,
    before: Arc<CountersView>,
    ticks: Interval,
    ending: Ending,
}

impl Source for Watch {
    type Piece = RatesView;

    async fn next(&mut self) -> Option<RatesView> {
        self.look().await?.ok()
    }
}

impl Watch {
    async fn new(session: Session, hz: u8) -> Result<Self, ControlError> {
        let before = sample(&session).await?;
        let period = Duration::from_secs(1) / u32::from(hz);
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        // A client that reads too slowly gets fewer samples.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ending = Ending(session.served.ending.clone());
        Ok(Self { session, before, ticks, ending })
    }

    /// Waits for the next sample, and returns the rates since the previous one; `None` when the router stops.
    async fn look(&mut self) -> Option<Result<RatesView, ControlError>> {
        self.ending.or(self.ticks.tick()).await?;
        let now = match sample(&self.session).await {
            Ok(now) => now,
            Err(error) => return Some(Err(error)),
        };
        let rates = RatesView::between(&self.before, &now);
        self.before = now;
        Some(Ok(rates))
    }
}

/// Returns a recent sample of the counters.
async fn sample(session: &Session) -> Result<Arc<CountersView>, ControlError> {
    let Session { served, call } = session;
    served.sampler.sample(&served.control, call).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(seconds: f64, packets: u64) -> CountersView {
        let port = PortCountersView {
            name: "lan".into(),
            rx_packets: packets,
            rx_bytes: packets.wrapping_mul(100),
            tx_packets: 0,
            tx_bytes: 0,
            dropped: 0,
        };
        CountersView { time: String::new(), seconds, ports: vec![port] }
    }

    #[test]
    fn a_rate_is_growth_over_time() {
        let rates = RatesView::between(&counters(1.0, 100), &counters(1.5, 150));
        assert_eq!((rates.ports[0].rx_rate, rates.ports[0].rx_bits), (100.0, 80_000.0));
        let cleared = RatesView::between(&counters(1.0, 100), &counters(1.5, 10));
        assert_eq!(cleared.ports[0].rx_rate, 20.0);
        // If the counter was cleared, its growth counts from 0, so no rate is negative.
        let before = CountersView {
            ports: vec![PortCountersView {
                rx_bytes: u64::MAX - 9,
                ..counters(1.0, u64::MAX - 9).ports[0].clone()
            }],
            ..counters(1.0, 0)
        };
        let after = RatesView::between(&before, &counters(2.0, 5));
        assert_eq!((after.ports[0].rx_rate, after.ports[0].rx_bits), (5.0, 4000.0));
    }
}
