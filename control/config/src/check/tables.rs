//! Checks of the tables `router`, `control-plane`, `api` and `plugins`.

use millrace_units::Message;

use super::Checker;
use crate::schema::Plugins;
use crate::schema::api::Api;

/// Returns the name of a setting of a table.
fn setting(table: &str, key: &str) -> Message {
    Message::default().key(table).text(".").key(key)
}

impl Checker<'_> {
    pub(super) fn router(&self) {
        let router = &self.config.router;
        for (key, value, range, beside) in [
            ("frames", router.frames.into(), 1024..=1 << 22, ""),
            ("workers", router.workers as u64, 1..=16, ""),
            ("icmp-dscp", router.icmp_dscp.into(), 0..=63, ""),
            ("new-flows", router.new_flows.into(), 1..=256, ""),
            ("plugin-weight", router.plugin_weight.into(), 1..=256, " packets"),
            ("driver-flows", router.driver_flows.into(), 0..=4_194_304, ""),
        ] {
            self.value(range.contains(&value), "router", key, || {
                let (least, most) = (range.start(), range.end());
                setting("router", key)
                    .text(format!(" = {value} is out of range: give {least} to {most}{beside}"))
            });
        }
        let flows = router.flows_max;
        self.value(flows == 0 || (1024..=1 << 24).contains(&flows), "router", "flows-max", || {
            setting("router", "flows-max")
                .text(format!(" = {flows} is out of range: 1024 to 16777216, or 0 for no flow table"))
        });
        let key = if router.icmp_rate == 0 { "icmp-rate" } else { "icmp-burst" };
        self.value(router.icmp_rate > 0 && router.icmp_burst > 0, "router", key, || {
            setting("router", "icmp-rate")
                .text(" and ")
                .append(setting("router", "icmp-burst"))
                .text(" must be 1 or more: the router must be able to send ICMP errors")
        });
    }

    pub(super) fn control_plane(&self) {
        for (key, rate) in self.config.control_plane.rates() {
            self.value((1..=10_000_000).contains(&rate), "control-plane", key, || {
                setting("control-plane", key)
                    .text(format!(" = {rate} is out of range: give 1 to 10000000 packets per second"))
            });
        }
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
        let files = 1..=100;
        self.value(files.contains(&api.audit_files), "api", "audit-files", || {
            setting("api", "audit-files")
                .text(format!(" = {} is out of range: give 1 to 100", api.audit_files))
        });
        let wrong = api.listen.iter().find(|address| address.port() == 0);
        self.value(wrong.is_none(), "api", "listen", || {
            "api.listen has an address with port 0: give a port, as in \"0.0.0.0:8443\"".to_owned()
        });
        let twice = api.listen.iter().enumerate().find(|(place, one)| api.listen[..*place].contains(one));
        self.value(twice.is_none(), "api", "listen", || {
            format!("api.listen has {} twice", twice.map(|(_, one)| one.to_string()).unwrap_or_default())
        });
    }

    pub(super) fn plugins(&self, plugins: &Plugins) {
        let faults = plugins.faults;
        self.value((1..=1000).contains(&faults), "plugins", "faults", || {
            format!("plugins.faults = {faults} is out of range: give 1 to 1000")
        });
    }
}
