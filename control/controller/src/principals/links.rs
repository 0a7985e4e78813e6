//! Rates on the wire that principals reserved at ports, beside what the schedulers sent.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use millrace_units::{Instant, QueueId};

use crate::ControlError;
use crate::model::Model;
use crate::principals::bounds::{link_bound, microseconds};
use crate::schedulers::view::nodes_of;
use crate::view::{LinkPromiseView, LinkWindowView};
use crate::workers::Workers;

/// Lengths of the reported windows, in seconds.
const WINDOWS: [u64; 3] = [1, 10, 60];

/// Principal and port of a reserved rate.
type Place = (String, String);

/// Counters of a principal's queue at a port.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    at: Instant,
    /// Bytes sent on the wire.
    sent: u64,
    waiting: u64,
    dropped: u64,
    /// Longest time that a packet has waited.
    longest_wait: Duration,
}

/// Counters of the queues of principals over the last minute, about one a second, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct LinkPromises(VecDeque<BTreeMap<Place, Count>>);

impl LinkPromises {
    /// Keeps the counters of all queues of principals. Call this about once a second.
    ///
    /// # Errors
    /// A worker doesn't answer.
    pub fn sample(&mut self, model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
        let mut counts = BTreeMap::new();
        for plan in &model.ports {
            let port = &*plan.config.name;
            let reserving = || model.principals.iter().filter(|one| one.reserved_link(port).is_some());
            if reserving().next().is_none() || model.schedulers.of(plan.id).is_none() {
                continue;
            }
            let nodes: BTreeMap<_, _> = nodes_of(plan.id, model, workers)?
                .into_iter()
                .map(|(view, at)| (QueueId(view.node.0 as u16), (view, at)))
                .collect();
            for one in reserving() {
                let Some((view, at)) = nodes.get(&model.schedulers.queue_of_principal(&one.name)) else {
                    continue;
                };
                let dropped = view.drops.iter().map(|(_, packets)| packets).sum();
                let (sent, waiting) = (view.sent_wire_bytes, view.held_packets.into());
                let longest_wait = view.longest_wait.unwrap_or_default();
                counts.insert(
                    (one.name.to_string(), port.to_owned()),
                    Count { at: *at, sent, waiting, dropped, longest_wait },
                );
            }
        }
        self.keep(counts);
        Ok(())
    }

    fn keep(&mut self, counts: BTreeMap<Place, Count>) {
        if counts.is_empty() {
            return self.0.clear();
        }
        self.0.push_back(counts);
        while self.0.len() > WINDOWS[2] as usize + 1 {
            self.0.pop_front();
        }
    }

    /// Returns each reserved rate beside what was sent.
    pub fn view(&self, model: &Model) -> Vec<LinkPromiseView> {
        let links = model.principals.iter().flat_map(|one| {
            let own =
                |port: &String| Some(((one.name.to_string(), port.clone()), one.reserved_link(port)?.0));
            one.link.keys().filter_map(own)
        });
        links
            .map(|(place, promised)| {
                let longest = link_bound(model, &place.1, promised).map(microseconds);
                LinkPromiseView { longest_promised: longest, ..self.view_of(place, promised) }
            })
            .collect()
    }

    /// Returns the number of packets that the queues of a principal at ports dropped.
    pub fn dropped(&self, principal: &str) -> u64 {
        let latest = self.0.back().into_iter().flatten();
        latest.filter(|((name, _), _)| name == principal).map(|(_, count)| count.dropped).sum()
    }

    fn view_of(&self, place: Place, promised: u64) -> LinkPromiseView {
        let last = self.0.back().and_then(|counts| counts.get(&place)).copied().unwrap_or_default();
        let windows = WINDOWS.iter().filter_map(|seconds| self.window(&place, *seconds)).collect();
        let (principal, port) = place;
        let Count { sent, waiting, dropped, longest_wait, .. } = last;
        LinkPromiseView {
            principal,
            port,
            promised,
            sent_wire_bytes: sent,
            waiting,
            dropped,
            longest_promised: None,
            longest_wait: microseconds(longest_wait),
            windows,
        }
    }

    /// Returns the rate in the last `seconds`, or since the first sample if that is later; `None` before the
    /// second sample.
    fn window(&self, place: &Place, seconds: u64) -> Option<LinkWindowView> {
        let last = self.0.back()?.get(place)?;
        // A queue that was added again starts at zero, and the samples before that don't count.
        let known = || {
            let earlier = self.0.iter().rev().skip(1).map_while(|counts| counts.get(place));
            earlier.take_while(|count| count.sent <= last.sent)
        };
        let least = Duration::from_millis(seconds * 1000 - 300);
        let first = known().find(|count| last.at.since(count.at) >= least).or_else(|| known().last())?;
        let length = last.at.since(first.at).as_secs_f64();
        let delivered = (last.sent - first.sent) as f64 * 8.0 / length.max(1e-3);
        Some(LinkWindowView { seconds: length, delivered: delivered.round() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivered_rates_are_those_of_the_last_seconds_and_minute() {
        let place = ("video".to_owned(), "wan".to_owned());
        let mut promises = LinkPromises::default();
        // 1 Mb/s for 50 s, then 2 Mb/s for 20 s.
        for second in 0..=70_u64 {
            let sent = 125_000 * (second + second.saturating_sub(50));
            let at = Instant::ZERO + Duration::from_secs(second);
            promises.keep(BTreeMap::from([(
                place.clone(),
                Count { at, sent, waiting: 3, dropped: 1, longest_wait: Duration::from_micros(7) },
            )]));
        }
        let view = promises.view_of(place.clone(), 5_000_000);
        let rates: Vec<u64> = view.windows.iter().map(|window| window.delivered).collect();
        assert_eq!(rates, [2_000_000, 2_000_000, 1_333_333]);
        assert_eq!((promises.dropped("video"), promises.dropped("other")), (1, 0));
        assert_eq!((view.waiting, view.dropped, view.sent_wire_bytes), (3, 1, 125_000 * 90));
        assert_eq!(view.longest_wait, 7);
        // The queue was removed and added again.
        let at = Instant::ZERO + Duration::from_secs(71);
        promises.keep(BTreeMap::from([(place.clone(), Count { at, sent: 10, ..Count::default() })]));
        assert!(promises.view_of(place, 5_000_000).windows.is_empty());
    }
}
