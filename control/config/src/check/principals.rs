//! Checks of the table `principal`.

use std::ops::RangeInclusive;

use millrace_units::{Message, remedy};

use super::{At, Checked, Checker};
use crate::schema::Principal;
use crate::schema::principal::Resource;

/// Names of principals that the router itself has.
const BUILT_IN: [&str; 4] = ["control", "core", "default", "router"];
/// Names of the kernel's files in a control group, and their beginnings up to the dot.
const KERNEL_FILES: [&str; 5] = [".", "..", "notify_on_release", "release_agent", "tasks"];
const KERNEL_PREFIXES: [&str; 9] =
    ["blkio.", "cgroup.", "cpu.", "cpuacct.", "cpuset.", "hugetlb.", "io.", "memory.", "pids."];

impl Checker<'_> {
    pub(super) fn principals(&self) {
        self.unique("principal", self.config.principal.iter().map(|principal| &principal.name));
        for (index, principal) in self.config.principal.iter().enumerate() {
            self.at("principal", Some(index));
            self.principal(index, principal);
        }
    }

    fn principal(&self, index: usize, principal: &Principal) {
        let name = &*principal.name;
        let is_built_in = BUILT_IN.contains(&name) || name.starts_with(Principal::SERVICE_PREFIX);
        self.note(self.require(!is_built_in, principal.name.span(), || {
            format!("principal name {name:?} is reserved for the router itself: give another name")
        }));
        let is_file =
            KERNEL_FILES.contains(&name) || KERNEL_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        self.note(self.require(!is_file, principal.name.span(), || {
            format!("principal name {name:?} is the name of a kernel file: give another name")
        }));
        let setting = |key| Message::from(format!("principal {name:?}: ")).key(key);
        let has_both = principal.cpu.is_some() && principal.weight.is_some();
        self.note(self.require(!has_both, At::Entry("principal", index, &["weight"]), || {
            setting("weight").text(" is set beside ").key("cpu").text(": set one of them")
        }));
        self.links(index, principal);
        for resource in principal.resources() {
            self.note(self.same_as(index, principal, resource));
        }
        let wrong = principal.wrong_process(&self.config.principal);
        self.note(self.require(wrong.is_none(), At::Entry("principal", index, &["process"]), || {
            wrong.unwrap_or_default()
        }));
        if let (Some(cpu), Some(limit)) = (principal.reserved_cpu(), principal.cpu_limit) {
            self.note(self.require(
                limit.ppm() >= cpu.ppm(),
                At::Entry("principal", index, &["cpu-limit"]),
                || {
                    setting("cpu-limit")
                        .text(format!(" is {limit}, below "))
                        .key("cpu")
                        .text(format!(" {cpu}: give at least {cpu}"))
                },
            ));
        }
        let has_no_share = principal.deadline.is_some() && principal.reserved_cpu().is_none();
        self.note(self.require(!has_no_share, At::Entry("principal", index, &["deadline"]), || {
            setting("deadline").text(" needs a reserved share: set ").key("cpu").text(" as well")
        }));
        let within = |key: &'static str, value: Option<u32>, range: RangeInclusive<u32>| {
            let Some(value) = value else { return };
            let (least, most) = (*range.start(), *range.end());
            let keys = [key];
            self.note(self.require(range.contains(&value), At::Entry("principal", index, &keys), || {
                setting(key).text(format!(" must be {least} to {most}, not {value}"))
            }));
        };
        let limits_other = principal.cpu_limit.is_some() && principal.same_as(Resource::Cpu).is_some();
        self.note(self.require(!limits_other, At::Entry("principal", index, &["cpu-limit"]), || {
            setting("cpu-limit")
                .text(" limits no share of its own: set it at the principal of ")
                .key("same-as")
        }));
        within("weight", principal.weight, 1..=Principal::MOST_WEIGHT);
        within("processes", principal.processes, 1..=Principal::MOST_PROCESSES);
    }

    /// Checks that `same-as` names a principal, and that its chain ends at an amount of the resource.
    fn same_as(&self, index: usize, principal: &Principal, resource: Resource<'_>) -> Checked {
        let Some(other) = principal.same_as(resource) else { return Ok(()) };
        let known = self.names("principal");
        self.require(known.contains(&&**other), other.span(), || {
            let others = known.iter().copied().filter(|one| *one != &*principal.name);
            format!("no principal is named {:?}{}", &**other, remedy("principal", other, others))
        })?;
        let wrong = principal.wrong_same_as(resource, &self.config.principal);
        let keys: &[&str] = match resource {
            Resource::Cpu => &["cpu"],
            Resource::Link(port) => &["link", port],
        };
        self.require(wrong.is_none(), At::Entry("principal", index, keys), || wrong.unwrap_or_default())
    }

    fn links(&self, index: usize, principal: &Principal) {
        let ports = self.names("port");
        for port in principal.link.keys() {
            let at = At::Entry("principal", index, &["link", port]);
            self.note(self.require(ports.contains(&&**port), at, || {
                format!("no port is named {port:?}{}", remedy("port", port, ports.iter().copied()))
            }));
        }
    }
}
