//! Instances that are in quarantine, and how they are let out.

use millrace_plugin::{Health, Inheritance};
use millrace_plugin_abi::Home;

use crate::ControlError;
use crate::router::{Inner, Router};
use crate::view::{HeldView, ReleaseView};

impl Router {
    /// The instances that a call of theirs has ended the router for, as the next start will know them.
    ///
    /// # Errors
    /// None so far.
    pub fn quarantine(&self) -> Result<Vec<HeldView>, ControlError> {
        let inner = self.lock();
        let view = |held: &millrace_repository::Held| HeldView {
            instance: held.instance.clone(),
            plugin: held.plugin.clone(),
            since: utc(held.since),
            why: held.why.clone(),
            is_here: inner.model.plugins.instance(&held.instance).is_ok(),
        };
        Ok(inner.model.repository.quarantine().all().iter().map(view).collect())
    }

    /// Lets an instance out of quarantine, whatever it is there for: it begins anew, with its settings. One that isn't there can
    /// be created again.
    ///
    /// # Errors
    /// When there is nobody of that name in quarantine, when the instance refuses to begin, or the disk to forget it.
    pub fn release_instance(&self, name: &str) -> Result<ReleaseView, ControlError> {
        let mut inner = self.lock();
        let id = match inner.model.plugins.instance(name) {
            Ok(id) => id,
            Err(unknown) => {
                return match inner.forget_quarantine(name)? {
                    true => Ok(ReleaseView { instance: name.to_owned(), is_here: false }),
                    false => Err(unknown.into()),
                };
            }
        };
        let reports = inner.snapshot()?.instances;
        let is_quarantined = |health| health == Health::Quarantined;
        if !reports.iter().any(|(known, report)| *known == id && is_quarantined(report.health)) {
            return Err(ControlError::Conflict(format!("instance {name:?} is not in quarantine")));
        }
        let workers = inner.workers.len();
        let version = inner.model.plugins.plugin_of(name)?.state_version();
        let successors = inner.model.plugins.afresh(name, workers)?;
        let slow = inner.model.plugins.slow_half_of(name)?;
        let maps = successors.maps.clone();
        inner.forget_quarantine(name)?;
        inner
            .succeed_all(vec![successors], Inheritance::Renounced, (version, version))
            .map_err(ControlError::Conflict)?;
        inner.model.plugins.note_maps(id, maps);
        inner.model.plugins.note_release(id);
        inner.host_level.put(id, slow, (version, false))?;
        tracing::info!(instance = name, "is let out of quarantine");
        Ok(ReleaseView { instance: name.to_owned(), is_here: true })
    }
}

/// Seconds since 1970 as date and time (RFC 3339). The date is found as in Howard Hinnant's `civil_from_days`: a year begins in
/// March, so that the leap day comes last.
fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

impl Inner {
    /// Has the next start know nothing of an instance's quarantine; whether it did.
    pub fn forget_quarantine(&mut self, name: &str) -> Result<bool, ControlError> {
        let released = self.model.repository.quarantine_mut().release(name);
        released.map_err(|error| ControlError::system("let the instance out of quarantine", error))
    }

    /// Says to who watches the workers how instances are called now.
    pub fn tell_names(&self) {
        let plugins = &self.model.plugins;
        self.names.set(plugins.instance_names());
        let is_trusted =
            |plugin: &str| plugins.plugin_named(plugin).is_ok_and(|plugin| plugin.home() == Home::Trusted);
        let can_crash = plugins.instance_names().filter(|(_, _, plugin)| is_trusted(plugin));
        crate::crash::tell(self.workers.watched(), can_crash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }
}
