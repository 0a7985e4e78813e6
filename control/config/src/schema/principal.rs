//! Principals: owners of resources, such as a user or a service.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::Named;
use crate::values::quantity::{Bits, Size, Time};
use crate::values::share::{ByteRate, ProcessorShare};

pub use crate::values::reservation::{CpuReservation, LinkReservation, Reservation};
pub use crate::values::share::CpuShare;

/// Limit of processor time: at least 1 %, which is the kernel's minimum.
pub type CpuLimit = ProcessorShare<10_000>;
/// Size limit of a flow's queue of waiting packets: 2 KiB to 32 MiB.
pub type QueueLimit = Size<2_048, { 32 << 20 }>;
/// Deadline of a principal: 100 µs to 10 s.
pub type Deadline = Time<100, 10_000_000>;
/// Limit of memory: 4 KiB to 1,024 TiB.
pub type MemoryLimit = Size<4_096, { 1 << 50 }>;

/// Owner of resources. At the workers, the calls of plugin instances that a principal pays for get its share
/// of the processor. The kernel limits the processes that `millrace exec` starts for a principal, by control
/// groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Principal {
    /// Name of the principal.
    pub name: Named,
    /// User whose allowance the principal counts for, named as in the audit log. Default: nobody; for a principal
    /// added by a request, the user who made it. A file that names no owner leaves the owner as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Processor time reserved for the principal while others need it too, of one processor: `"5 %"`. All
    /// principals together reserve at most 100 % of each processor. With `{ same-as = "NAME" }`, another
    /// principal pays for the calls. Default: a share by `weight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuReservation>,
    /// Weight among the principals without `cpu`, which share the rest of the processor time: 1 to 10,000.
    /// Default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub weight: Option<u32>,
    /// Largest processor time, also while processors are idle, of one processor: `"20 %"`. Not below `cpu`.
    /// Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<CpuLimit>,
    /// Longest time that a packet waits for its share of the processor, 100 us to 10 s. The workers serve
    /// principals with a deadline before all others, each up to its share. It needs `cpu`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// Largest size of the packets of a flow that wait for the processor, 2 KiB to 32 MiB. Further packets of
    /// the flow are dropped as `principal_queue_full`. Default 256 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
    /// Reserved rates on the wire, by port: `{ wan = "10mbit" }`. The port needs a scheduler with a `rate`. With
    /// `{ wan = { same-as = "NAME" } }`, the packets share the rate and the queue of another principal. Default:
    /// none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub link: BTreeMap<String, LinkReservation>,
    /// Largest memory of processes, sandboxed instances, flow state and waiting packets together, including the
    /// page cache of the principal's files. The kernel kills a process that needs more; a worker drops packets
    /// as `principal_memory`, and lets no instance grow. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryLimit>,
    /// Largest rate of reads from each block device, and of writes to it: `"2 MB/s"`. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteRate>,
    /// Names of commands or systemd units whose running processes belong to the principal, too: `["bgpd"]`.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub process: Vec<String>,
    /// Largest number of processes and threads: 1 to 4,194,304. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_194_304))]
    pub processes: Option<u32>,
}

impl Principal {
    /// Name of the principal of bindings that name none.
    pub const DEFAULT: &str = "default";
    /// Largest size of a flow's queue without `queue`, in bytes.
    pub const USUAL_QUEUE: u64 = 256 << 10;
    /// Weight of a principal without `weight`.
    pub const USUAL_WEIGHT: u32 = 100;
    /// Largest weight.
    pub const MOST_WEIGHT: u32 = 10_000;
    /// Largest limit of `processes`: the largest process id of the kernel.
    pub const MOST_PROCESSES: u32 = 4_194_304;
    /// Smallest reserved rate on a link, in bits per second.
    pub const LEAST_LINK: u64 = 1_000;
    /// Beginning of the name of a principal's queue, before the name of the principal.
    pub const QUEUE_PREFIX: &str = "principal:";
    /// Beginning of the name of a service's principal, before the name of the instance.
    pub const SERVICE_PREFIX: &str = "service:";

    /// Returns the name of the principal of an instance's service.
    #[must_use]
    pub fn of_service(instance: &str) -> String {
        format!("{}{instance}", Self::SERVICE_PREFIX)
    }

    /// Returns the reserved share of the processor; `None` for a share by weight or of another principal.
    #[must_use]
    pub fn reserved_cpu(&self) -> Option<CpuShare> {
        self.cpu.as_ref()?.own().copied()
    }

    /// Returns the rate of its own that the principal reserves at a port, if any.
    #[must_use]
    pub fn reserved_link(&self, port: &str) -> Option<Bits> {
        self.link.get(port)?.own().copied()
    }

    /// Returns the name of the principal whose amount of a resource this principal shares; `None` if it has its
    /// own.
    #[must_use]
    pub fn same_as(&self, resource: Resource<'_>) -> Option<&Named> {
        match resource {
            Resource::Cpu => self.cpu.as_ref()?.same_as(),
            Resource::Link(port) => self.link.get(port)?.same_as(),
        }
    }

    /// Returns the resources of the principal that it shares or may share with another one.
    pub fn resources(&self) -> impl Iterator<Item = Resource<'_>> {
        let links = self.link.keys().map(|port| Resource::Link(port));
        std::iter::once(Resource::Cpu).chain(links)
    }

    /// Returns the text of an error if a name in `process` is invalid, or if another principal has it as well.
    #[must_use]
    pub fn wrong_process(&self, principals: &[Self]) -> Option<String> {
        let name = &*self.name;
        let is_valid = |one: &String| {
            let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
            (1..=255).contains(&one.len()) && one.chars().all(is_plain)
        };
        if let Some(wrong) = self.process.iter().find(|one| !is_valid(one)) {
            return Some(format!(
                "principal {name:?}: {wrong:?} is no name of a command or unit: give 1 to 255 characters without blanks and /"
            ));
        }
        let others = || principals.iter().filter(|other| other.name != self.name);
        let shared = self
            .process
            .iter()
            .find_map(|one| Some((one, others().find(|other| other.process.contains(one))?)));
        shared.map(|(one, other)| {
            format!(
                "principal {name:?}: principal {:?} has the processes {one:?}, too: name them once",
                &*other.name
            )
        })
    }

    /// Returns the text of an error if this principal's chain of `same-as` for a resource leads back to it, or
    /// ends at a principal without a rate.
    #[must_use]
    pub fn wrong_same_as(&self, resource: Resource<'_>, principals: &[Self]) -> Option<String> {
        self.same_as_cycle(resource, principals).or_else(|| self.without_link(resource, principals))
    }

    fn without_link(&self, resource: Resource<'_>, principals: &[Self]) -> Option<String> {
        let (Resource::Link(port), Some(_)) = (resource, self.same_as(resource)) else { return None };
        let name = &*self.name;
        let owner = Self::owner(principals, name, resource);
        let reserves = principals.iter().any(|one| *one.name == *owner && one.reserved_link(port).is_some());
        (!reserves).then(|| {
            format!("principal {name:?}: {owner:?} reserves no rate at port {port:?}: give it a link there")
        })
    }

    fn same_as_cycle(&self, resource: Resource<'_>, principals: &[Self]) -> Option<String> {
        let next = |name: &str| principals.iter().find(|one| *one.name == *name)?.same_as(resource);
        let own = self.same_as(resource).map(|other| &**other);
        let chain = std::iter::successors(own, |name| next(name).map(|other| &**other));
        let chain: Vec<&str> = chain.take(principals.len()).collect();
        let end = chain.iter().position(|one| *one == &*self.name)?;
        let cycle: String = chain[..=end].iter().map(|one| format!(" same as {one:?}")).collect();
        let name = &*self.name;
        Some(format!(
            "principal {name:?}: `same-as` leads back to it, {name:?}{cycle}: give one of them its own {}",
            resource.amount()
        ))
    }

    /// Returns the name of the principal that pays for the bindings of principal `name`: the end of its chain
    /// of `same-as`. In a cycle, returns one of its principals.
    #[must_use]
    pub fn payer<'p>(principals: &'p [Self], name: &'p str) -> &'p str {
        Self::owner(principals, name, Resource::Cpu)
    }

    /// Returns the name of the principal whose amount of a resource principal `name` has: the end of its chain
    /// of `same-as`. In a cycle, returns one of its principals.
    #[must_use]
    pub fn owner<'p>(principals: &'p [Self], name: &'p str, resource: Resource<'_>) -> &'p str {
        let next = |name: &str| principals.iter().find(|one| *one.name == *name)?.same_as(resource);
        // A chain without a cycle visits each principal once at most.
        let chain = std::iter::successors(Some(name), |name| next(name).map(|other| &**other));
        chain.take(principals.len() + 1).last().unwrap_or(name)
    }
}

/// Resource that a principal can share with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'r> {
    /// Processor time.
    Cpu,
    /// Rate at the port of this name.
    Link(&'r str),
}

impl Resource<'_> {
    /// Returns the noun of an amount of the resource.
    fn amount(self) -> &'static str {
        match self {
            Self::Cpu => "share",
            Self::Link(_) => "rate",
        }
    }
}
