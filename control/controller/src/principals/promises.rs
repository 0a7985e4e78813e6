//! What the router promised to principals, and what it delivered, over the last seconds and minute.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use millrace_pipeline::{PrincipalCounts, PrincipalUse};
use millrace_principals::processor_times;
use millrace_telemetry::EventKind;
use millrace_units::{Instant, PrincipalId};
use serde_json::json;

use super::shares::Promised;
use crate::events::Events;
use crate::model::Model;
use crate::principals::bounds::{microseconds, processor_bound};
use crate::principals::links::LinkPromises;
use crate::view::{DeadlinesView, PrincipalDropsView, PromiseView, PromiseWindowView};

/// Lengths of the reported windows, in seconds.
pub(super) const WINDOWS: [u64; 3] = [1, 10, 60];
/// Window over which a promise must be kept, in seconds.
const JUDGED: u64 = 10;
/// Slices of others for which a principal may have to wait.
const SLICES: f64 = 2.0;
/// Relative error of the shares that counts as kept.
const TOLERANCE: f64 = 0.01;

/// Account of a principal at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    counts: PrincipalCounts,
    /// Share in percent since the previous sample.
    share: f64,
    /// Processor time due to the principal since its first sample, in seconds.
    entitled: f64,
}

/// Accounts of all principals at one time.
#[derive(Clone, Debug, Default)]
struct Sample {
    at: Instant,
    accounts: BTreeMap<PrincipalId, Account>,
    /// Time that the hypervisor took from all processors.
    steal: Duration,
}

/// Accounts of the last minute, and the promises that are broken.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Samples, the oldest first, about one a second.
    samples: VecDeque<Sample>,
    broken: BTreeSet<PrincipalId>,
}

impl Promises {
    /// Keeps the accounts of the principals with promises. Call this about once a second.
    pub fn sample(
        &mut self,
        at: Instant,
        counts: &[(PrincipalId, PrincipalCounts)],
        promised: &[(PrincipalId, Promised)],
    ) {
        let steal = processor_times().unwrap_or_default().iter().map(|times| times.steal).sum();
        let before = self.samples.back();
        let counts: BTreeMap<_, _> = counts.iter().map(|(id, counts)| (id, counts)).collect();
        let account = |(id, promised): &(PrincipalId, Promised)| {
            let counts = counts.get(id)?;
            let before = before.and_then(|sample| sample.accounts.get(id));
            Some((*id, Account::after(before, counts, promised)))
        };
        let accounts = promised.iter().filter_map(account).collect();
        self.samples.push_back(Sample { at, accounts, steal });
        while self.samples.len() > WINDOWS[2] as usize + 1 {
            self.samples.pop_front();
        }
    }

    /// Notes an event for each promise that is broken now or kept again.
    pub fn judge(&mut self, model: &Model, promised: &[(PrincipalId, Promised)], events: &Events) {
        self.broken.retain(|id| promised.iter().any(|(payer, _)| payer == id));
        for (id, promised) in promised {
            let (id, Some(window)) = (*id, self.window(*id, promised, JUDGED)) else { continue };
            // Shorter windows are too coarse to judge.
            if window.seconds < JUDGED as f64 * 0.9 || window.is_kept != self.broken.contains(&id) {
                continue;
            }
            let name = model.principal_ids.name(id);
            let PromiseWindowView { entitled, delivered, steal, .. } = window;
            let details =
                json!({"principal": name, "entitled": entitled, "delivered": delivered, "steal": steal});
            if window.is_kept {
                self.broken.remove(&id);
                let text = format!("{name} gets its share of the processor again");
                events.note(EventKind::PromiseKept, name, text, details);
                continue;
            }
            self.broken.insert(id);
            let cause = match steal > (entitled - delivered) / 2.0 {
                true => format!("the hypervisor took {steal:.1} % of a processor"),
                false => "other processes, or long calls of trusted plugins, held the processor".to_owned(),
            };
            let text = format!(
                "{name} got {delivered:.1} % of a processor instead of {entitled:.1} % for {JUDGED} s: {cause}"
            );
            events.note(EventKind::PromiseBroken, name, text, details);
        }
    }

    /// Returns promises beside what was delivered. `counts`: current accounts of the principals; `links`: what
    /// the schedulers of ports dropped for them.
    pub fn view(
        &self,
        model: &Model,
        promised: &[(PrincipalId, Promised)],
        counts: &[(PrincipalId, PrincipalCounts)],
        links: &LinkPromises,
    ) -> Vec<PromiseView> {
        let counts: BTreeMap<_, _> = counts.iter().copied().collect();
        let view = |(id, promised): &(PrincipalId, Promised)| {
            let name = model.principal_ids.name(*id);
            let account = counts.get(id).copied().unwrap_or_default();
            let windows = WINDOWS.iter().filter_map(|seconds| self.window(*id, promised, *seconds));
            PromiseView {
                principal: name.to_owned(),
                bindings: model.bindings_paid_by(name),
                promised: promised.share,
                is_reserved: promised.is_reserved,
                limit: promised.limit,
                used_seconds: promised.seconds(account.used.0),
                throttled: account.throttled,
                packets: account.packets,
                waiting: account.waiting.into(),
                waiting_bytes: account.waiting_bytes,
                dropped: account.drops.total(),
                drops: PrincipalDropsView::of(&account.drops, links.dropped(name)),
                deadlines: DeadlinesView {
                    met: account.deadlines_met,
                    missed: account.deadlines_missed,
                    longest_promised: processor_bound(model, name).map(microseconds),
                    longest_wait: microseconds(account.longest_wait),
                },
                windows: windows.collect(),
            }
        };
        promised.iter().map(view).collect()
    }

    /// Returns what a principal got in the last `seconds`, or in the time since the first sample if that is
    /// shorter; `None` before the second sample.
    fn window(&self, id: PrincipalId, promised: &Promised, seconds: u64) -> Option<PromiseWindowView> {
        let last = self.samples.back()?;
        let old_enough =
            |sample: &&Sample| last.at.since(sample.at) >= Duration::from_millis(seconds * 1000 - 300);
        let has = |sample: &&Sample| sample.accounts.contains_key(&id);
        let known = || self.samples.iter().rev().skip(1).take_while(has);
        let first = known().find(old_enough).or_else(|| known().last())?;
        let length = last.at.since(first.at).as_secs_f64();
        let (now, before) = (last.accounts.get(&id)?, first.accounts.get(&id)?);
        let percent = |time: f64| 100.0 * time / length.max(1e-3);
        let PrincipalUse { used, wanted, .. } = now.counts.since(&before.counts);
        let (wanted, delivered) = (percent(wanted).min(100.0), percent(promised.seconds(used)));
        let entitled = percent(now.entitled - before.entitled);
        // A principal waits for one slice of each other principal at most, so short windows err by a slice.
        let slack = entitled * TOLERANCE + percent(SLICES * promised.slice);
        Some(PromiseWindowView {
            seconds: length,
            wanted,
            entitled,
            delivered,
            is_kept: delivered + slack >= entitled,
            steal: percent(last.steal.saturating_sub(first.steal).as_secs_f64()),
        })
    }
}

impl Account {
    /// Returns the account of a principal with these counters after an earlier account.
    ///
    /// If the share has changed meanwhile, the smaller one counts.
    fn after(before: Option<&Self>, counts: &PrincipalCounts, promised: &Promised) -> Self {
        let share = promised.share_within_limit();
        let Some(before) = before else { return Self { counts: *counts, share, entitled: 0.0 } };
        let PrincipalUse { wanted, wanted_sum, periods, .. } = counts.since(&before.counts);
        // A worker can give no more than its capacity to flows that are all there.
        let workers = wanted_sum / wanted.max(1e-9);
        let share = share.min(before.share).min(workers * promised.most);
        // Each time that work begins, it waits for the slices of others first.
        let waits = SLICES * promised.slice * periods as f64 / workers;
        let due = share / 100.0 * (wanted - waits).max(0.0);
        Self { counts: *counts, share: promised.share_within_limit(), entitled: before.entitled + due }
    }
}

#[cfg(test)]
mod tests {
    use millrace_units::Cycles;

    use super::*;

    const PAYER: PrincipalId = PrincipalId(1);

    fn promised() -> Promised {
        let (frequency, slice, most) = (1_000_000_000, 50e-6, 50.0);
        Promised { share: 20.0, is_reserved: true, limit: None, most, frequency, slice }
    }

    /// Returns samples of a principal that wants the processor for `wanted` and gets `used` of each second.
    fn sampled(seconds: u64, wanted: f64, used: f64) -> Promises {
        let mut promises = Promises::default();
        for second in 0..=seconds {
            let time = second as f64;
            let account = PrincipalCounts {
                used: Cycles((used * time * 1e9) as u64),
                backlogged: Duration::from_secs_f64(wanted * time),
                backlogged_sum: Duration::from_secs_f64(wanted * time),
                ..PrincipalCounts::default()
            };
            promises.sample(
                Instant::ZERO + Duration::from_secs(second),
                &[(PAYER, account)],
                &[(PAYER, promised())],
            );
        }
        promises
    }

    #[test]
    fn promise_is_kept_if_the_principal_gets_its_share_while_it_wants_it() {
        for (wanted, used, is_kept) in [
            (1.0, 0.2, true),
            (1.0, 0.9, true),
            (1.0, 0.19, false),
            (0.5, 0.1, true),
            (0.5, 0.09, false),
            (0.0, 0.0, true),
        ] {
            let promises = sampled(30, wanted, used);
            let window = promises.window(PAYER, &promised(), 10).unwrap();
            assert!((window.seconds - 10.0).abs() < 1e-9);
            assert!(
                (window.wanted - 100.0 * wanted).abs() < 1e-6
                    && (window.delivered - 100.0 * used).abs() < 1e-6
            );
            assert_eq!(window.is_kept, is_kept, "{wanted} {used}");
        }
    }

    #[test]
    fn windows_without_history_cover_what_is_known() {
        let promises = sampled(3, 1.0, 0.2);
        let lengths = WINDOWS.map(|seconds| promises.window(PAYER, &promised(), seconds).unwrap().seconds);
        assert_eq!(lengths, [1.0, 3.0, 3.0]);
        assert!(sampled(0, 1.0, 0.2).window(PAYER, &promised(), 1).is_none());
        assert_eq!(sampled(200, 1.0, 0.2).samples.len(), 61);
    }
}
