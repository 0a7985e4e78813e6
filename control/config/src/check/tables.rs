//! Checks of the tables `router`, `control-plane`, `connections`, `api` and `plugins`.

use std::ops::RangeInclusive;

use millrace_units::{Message, count};

use super::Checker;
use crate::schema::api::Api;
use crate::schema::{Connections, Plugins};

/// Returns the name of a setting of a table.
fn setting(table: &str, key: &str) -> Message {
    Message::default().key(table).text(".").key(key)
}

impl Checker<'_> {
    pub(super) fn router(&self) {
        let router = &self.config.router;
        for (key, value, range, unit) in [
            ("frames", router.frames.into(), 1024..=1 << 22, ""),
            ("workers", router.workers as u64, 1..=16, ""),
            ("icmp-dscp", router.icmp_dscp.into(), 0..=63, ""),
            ("new-flows", router.new_flows.into(), 1..=256, ""),
            ("plugin-weight", router.plugin_weight.into(), 1..=256, " packets"),
            ("forwarding-weight", router.forwarding_weight.into(), 1..=4096, ""),
            ("offloaded-flows", router.offloaded_flows.into(), 0..=4_194_304, ""),
        ] {
            self.within("router", key, value, range, unit);
        }
        self.worker_processors();
        if router.flows_max != 0 {
            let flows = router.flows_max.into();
            self.within("router", "flows-max", flows, 1024..=1 << 24, ", or 0 for no flow table");
        }
        let key = if router.icmp_rate == 0 { "icmp-rate" } else { "icmp-burst" };
        self.value(router.icmp_rate > 0 && router.icmp_burst > 0, "router", key, || {
            setting("router", "icmp-rate")
                .text(" and ")
                .append(setting("router", "icmp-burst"))
                .text(" must be 1 or more: the router must be able to send ICMP errors")
        });
    }

    fn worker_processors(&self) {
        let (key, router) = ("worker-processors", &self.config.router);
        let processors = &router.worker_processors;
        let twice = processors.iter().enumerate().find(|(place, one)| processors[..*place].contains(one));
        self.value(twice.is_none(), "router", key, || {
            let processor = twice.map(|(_, one)| one.to_string()).unwrap_or_default();
            setting("router", key).text(format!(" has processor {processor} twice: give each worker its own"))
        });
        let is_fitting = [0, router.workers].contains(&processors.len()) || twice.is_some();
        self.value(is_fitting, "router", key, || {
            let (given, workers) = (count(processors.len(), "processor"), count(router.workers, "worker"));
            setting("router", key).text(format!(" has {given} for {workers}: give one for each worker"))
        });
    }

    pub(super) fn control_plane(&self) {
        for (key, rate) in self.config.control_plane.rates() {
            self.within("control-plane", key, rate.into(), 1..=10_000_000, " packets per second");
        }
    }

    pub(super) fn connections(&self) {
        let Connections { maximum, per_source, .. } = self.config.connections;
        self.within("connections", "maximum", maximum.into(), 1024..=1 << 26, " connections");
        self.within("connections", "per-source", per_source.into(), 1..=1 << 26, " connections");
    }

    pub(super) fn api(&self, api: &Api) {
        for (has, lacks, there) in [
            ("certificate", "key", api.certificate.is_some() && api.key.is_none()),
            ("key", "certificate", api.key.is_some() && api.certificate.is_none()),
        ] {
            self.value(!there || self.left_out.is_wrong("api"), "api", has, || {
                format!("api.{has} is set, but api.{lacks} is not: set both, or neither")
            });
        }
        self.within("api", "audit-files", api.audit_files.into(), 1..=100, "");
        let wrong = api.listen.iter().find(|address| address.port() == 0);
        self.value(wrong.is_none(), "api", "listen", || {
            "api.listen has an address with port 0: give a port, as in \"0.0.0.0:8443\"".to_owned()
        });
        let twice = api.listen.iter().enumerate().find(|(place, one)| api.listen[..*place].contains(one));
        self.value(twice.is_none(), "api", "listen", || {
            let address = twice.map(|(_, one)| one.to_string()).unwrap_or_default();
            format!("api.listen has {address} twice: remove one")
        });
    }

    pub(super) fn plugins(&self, plugins: &Plugins) {
        self.within("plugins", "faults", plugins.faults.into(), 1..=1000, "");
    }

    /// Notes a problem if a value of a table is outside its range. `unit` follows the range in the error.
    fn within(&self, table: &str, key: &str, value: u64, range: RangeInclusive<u64>, unit: &str) {
        self.value(range.contains(&value), table, key, || {
            let (least, most) = (range.start(), range.end());
            setting(table, key).text(format!(" must be {least} to {most}{unit}, not {value}"))
        });
    }
}
