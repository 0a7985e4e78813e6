//! What the driver has done is told to who would have done it: the flow table, routes, filters; and entries that do nothing are given up.

use millrace_units::{Amount, Instant};

use super::{DriverFlows, DriverTotals, ENTRIES_PER_TURN, Entry, IDLE, IDLE_WHEN_FULL, ROUND, SUSPENDED, UP};
use crate::router::Router;

/// Entries that are told at once when control asks for it.
const TOLD_AT_ONCE: u32 = 1024;

impl Router {
    /// Tells the flow table what the driver has done, and gives up entries that do nothing.
    pub(crate) fn keep_driver_flows(&mut self, now: Instant) {
        let Some(driver) = &mut self.driver else { return };
        if now < driver.next_round || driver.counts.flows == 0 {
            return;
        }
        let (full, suspended) = (driver.cache.room() == 0, driver.published == SUSPENDED);
        let end = driver.entries.len().min(driver.hand + ENTRIES_PER_TURN);
        let part = driver.hand..end;
        driver.hand = if end < driver.entries.len() { end } else { 0 };
        if driver.hand == 0 {
            driver.next_round = now + ROUND;
        }
        for place in part {
            let slot = place as u32;
            let Some((known, entry)) = self.tell_driven(slot, now) else { continue };
            let patience = if full { IDLE_WHEN_FULL } else { IDLE };
            let is_idle = now >= entry.last_used + patience && !suspended && !entry.placed;
            if !known || is_idle {
                self.give_up_driven(slot);
                if let Some(driver) = &mut self.driver {
                    driver.counts.idle += u64::from(known);
                }
            } else if self.is_better_up(slot, now) {
                self.give_up_driven(slot);
                if let Some(driver) = &mut self.driver
                    && driver.kept_up.add(entry.flow, entry.key, now)
                {
                    driver.note(entry.flow, UP);
                }
            }
        }
    }

    /// Tells what the driver has done by some entries, from one on; where the next ones begin.
    pub(crate) fn tell_driven_from(&mut self, from: u32, now: Instant) -> Option<u32> {
        let count = self.driver.as_ref()?.entries.len() as u32;
        let end = count.min(from.saturating_add(TOLD_AT_ONCE));
        (from..end).for_each(|slot| _ = self.tell_driven(slot, now));
        (end < count).then_some(end)
    }

    /// Whether the packets of a flow come up although nothing else keeps the driver from treating them.
    fn is_better_up(&mut self, slot: u32, now: Instant) -> bool {
        let Some(driver) = &mut self.driver else { return false };
        let DriverFlows { entries, cache, round, published, .. } = &mut **driver;
        let Some(entry) = entries.get_mut(slot as usize).and_then(Option::as_mut) else { return false };
        let is_hindered = cache.is_overloaded(entry.key.port) || round.is_stuck(now);
        entry.upcalls.is_better_up(is_hindered || *published == SUSPENDED, now)
    }

    /// Gives an entry up.
    pub(super) fn give_up_driven(&mut self, slot: u32) {
        let removed = self.driver.as_mut().and_then(|driver| driver.remove(slot));
        if let Some((entry, totals)) = removed {
            self.count_driven(&entry, since(totals, entry.told));
        }
    }

    /// Tells the flow table and the accounts of routes and filters what the driver has done by an entry since the last time.
    /// Returns whether the flow has a record still, and the entry.
    pub(super) fn tell_driven(&mut self, slot: u32, now: Instant) -> Option<(bool, Entry)> {
        let driver = self.driver.as_mut()?;
        let entry = driver.entries.get_mut(slot as usize)?.as_mut()?;
        let totals = driver.cache.totals(slot);
        let flows = &mut self.classifier.flows;
        let known = flows.record(entry.flow).is_live() && flows.key(entry.flow) == entry.key;
        let DriverTotals { sent, dropped } = since(totals, entry.told);
        if sent.packets + dropped.packets > 0 {
            if known {
                let (packets, bytes) = (sent.packets + dropped.packets, sent.bytes + dropped.bytes);
                flows.touch_many(entry.flow, packets, bytes, now);
            }
            (entry.told, entry.last_used) = (totals, now);
            entry.upcalls.treated(sent.packets + dropped.packets);
        }
        entry.rate.treated(sent.packets + dropped.packets, now);
        let entry = *entry;
        self.count_driven(&entry, DriverTotals { sent, dropped });
        Some((known, entry))
    }

    /// Counts for the route and the filters of an entry what was done by it.
    fn count_driven(&mut self, entry: &Entry, DriverTotals { sent, dropped }: DriverTotals) {
        if sent.packets > 0 {
            self.route_accounts.queued(entry.plan.route, sent);
            if let Some((port, neighbour)) = entry.plan.neighbour {
                // Who looks up a neighbour says that it is used.
                let _ = self.neighbours.lookup(port, neighbour);
            }
        }
        if sent.packets + dropped.packets > 0 {
            self.gates.plugins_mut().driver_did(&entry.plan.form, sent, dropped);
        }
    }
}

/// What was done since it was last told.
fn since(now: DriverTotals, told: DriverTotals) -> DriverTotals {
    let less = |now: Amount, told: Amount| Amount {
        packets: now.packets.wrapping_sub(told.packets),
        bytes: now.bytes.wrapping_sub(told.bytes),
    };
    let mut sent = less(now.sent, told.sent);
    // The driver has no more bits for it.
    sent.packets &= u64::from(u32::MAX);
    DriverTotals { sent, dropped: less(now.dropped, told.dropped) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_has_wrapped_goes_on() {
        let totals =
            |packets, bytes| DriverTotals { sent: Amount { packets, bytes }, ..DriverTotals::default() };
        let before = totals(u64::from(u32::MAX) - 1, 1 << 40);
        assert_eq!(since(totals(3, (1 << 40) + 300), before), totals(5, 300));
    }
}
