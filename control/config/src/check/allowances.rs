//! Checks of the table `admission.allowance`.

use std::collections::HashSet;

use millrace_units::Message;

use super::{At, Checker};
use crate::schema::Allowance;

impl Checker<'_> {
    pub(super) fn allowances(&self) {
        let config = self.config;
        let (ports, mut seen) = (self.names("port"), HashSet::new());
        self.at("admission", None);
        for one in &config.admission.allowance {
            let (name, at) = (&*one.name, || At::Span(one.name.span()));
            let plain = (1..=63).contains(&name.len())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
            self.note(self.require(plain, at(), || {
                format!("invalid allowance name {name:?}: give 1 to 63 ASCII letters, digits or - _ . :")
            }));
            self.note(self.require(seen.insert(name), at(), || {
                format!("allowance name {name:?} is used twice: give each allowance its own name")
            }));
            let setting = |key| Message::from(format!("allowance {name:?}: ")).key(key);
            self.note(self.require(!(one.user.is_empty() && one.role.is_empty()), at(), || {
                setting("user").text(" and ").key("role").text(" are empty: name at least one user or role")
            }));
            let most = Allowance::MOST_PRINCIPALS;
            self.note(self.require(one.principals.is_none_or(|count| count <= most), at(), || {
                setting("principals").text(format!(" must be 0 to {most}"))
            }));
            // With faulty router settings, the number of workers is unknown.
            if !self.left_out.is_wrong("router") {
                let unknown = one.unknown(ports.iter().copied(), config.router.workers);
                let found = unknown.map(|(_, problem)| problem);
                self.note(self.require(found.is_none(), at(), || found.unwrap_or_default()));
            }
        }
    }
}
