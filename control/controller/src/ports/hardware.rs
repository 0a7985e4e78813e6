//! Model of the hardware: processors, ports and switches, with their capabilities (*VERA*, section 2.1).
//!
//! Each port belongs to one processor, which gets the port's packets first. A processor punts packets to the
//! processor above: from the XDP program to a worker, from a worker to the host. The processors thus form a
//! tree with the host as root and the ports as leaves.

use std::collections::{BTreeMap, HashMap};

use millrace_offload::{Attachment, DeviceFacts};
use millrace_pipeline::Handover;
use millrace_port::Mode;
use millrace_port::af_xdp::LEAST_BATCH;

use crate::model::{Model, PortPlan};
use crate::ports::device::{KernelDevice, QueueSocket};
use crate::ports::devices::Devices;
use crate::ports::topology;
use crate::view::{CpuView, HardwarePortView, HardwareView, ProcessorView, SwitchView};

/// Name of the processor at the root of the tree.
const HOST: &str = "host";

/// Facts about the machine, as the kernel reports them.
pub(crate) struct Machine {
    cpus: Vec<CpuView>,
    /// CPUs on which the process may run.
    host: String,
    /// CPUs on which each worker may run.
    workers: Vec<String>,
    devices: HashMap<u32, DeviceFacts>,
}

impl Machine {
    pub(crate) fn ask(threads: Vec<i32>, devices: Vec<u32>) -> Self {
        // A device that has vanished in the meantime gets default facts.
        let facts = |device| (device, DeviceFacts::of(device).unwrap_or_default());
        Self {
            cpus: topology::cpus(),
            host: topology::allowed(nix::unistd::getpid().as_raw()),
            workers: threads.into_iter().map(topology::allowed).collect(),
            devices: devices.into_iter().map(facts).collect(),
        }
    }
}

fn worker_name(worker: usize) -> String {
    format!("worker {worker}")
}

fn host_and_workers(host: String, workers: Vec<String>) -> Vec<ProcessorView> {
    let host = ProcessorView {
        name: HOST.to_owned(),
        level: 2,
        above: None,
        cpus: host,
        treats: "control, host companions of plugins, network stack of the kernel".to_owned(),
        why_not: None,
    };
    let worker = |(number, cpus): (usize, String)| ProcessorView {
        name: worker_name(number),
        level: 1,
        above: Some(HOST.to_owned()),
        cpus,
        treats: "all flows: filters, instances, queues, schedulers".to_owned(),
        why_not: None,
    };
    std::iter::once(host).chain(workers.into_iter().enumerate().map(worker)).collect()
}

/// Parts of the router that the hardware view describes.
pub(crate) struct Parts<'a> {
    pub model: &'a Model,
    pub devices: &'a Devices,
    pub workers: usize,
}

impl Parts<'_> {
    pub(crate) fn describe(&self, machine: Machine) -> HardwareView {
        let Machine { cpus, host, workers, mut devices } = machine;
        let mut view = HardwareView {
            cpus,
            processors: host_and_workers(host, workers),
            ports: Vec::new(),
            switches: self.switches_between_workers(),
        };
        for plan in self.model.ports.iter() {
            match self.devices.kernel.get(&plan.id) {
                Some(device) => {
                    let facts = devices.remove(&device.ifindex).unwrap_or_default();
                    self.describe_device(plan, (device, &facts), &mut view);
                }
                None => view.ports.push(self.own_port(plan)),
            }
        }
        view
    }

    fn owner_name(&self, plan: &PortPlan) -> String {
        worker_name(Handover::owner(plan.settings.device, self.workers))
    }

    fn switches_between_workers(&self) -> Vec<SwitchView> {
        if self.workers == 1 {
            return Vec::new();
        }
        let how = "a ring for each pair of workers; copies each packet once";
        vec![switch("worker rings", "each worker", "each other worker", Ok(how))]
    }

    /// Returns the view of a port without a kernel device. Its processor is the worker that owns it.
    fn own_port(&self, plan: &PortPlan) -> HardwarePortView {
        let capabilities = self.devices.capabilities.get(&plan.settings.device);
        let is_vlan = plan.config.vlan.is_some();
        let driver = if is_vlan { "vlan" } else { capabilities.map_or("", |found| found.driver) };
        HardwarePortView {
            name: plan.settings.name.clone(),
            processor: self.owner_name(plan),
            device: plan.config.device.clone(),
            driver: driver.to_owned(),
            xdp: "none",
            sockets: capabilities.map_or("none", |found| sockets(found.mode)),
            why: capabilities.map_or_else(String::new, |found| found.why.clone()),
            rx_queues: 1,
            tx_queues: 1,
            mtu: plan.settings.mtu.into(),
            speed: None,
            queueing_discipline: None,
            features: Vec::new(),
            why_no_redirects: Some(match is_vlan {
                true => "the port is a VLAN sub-interface: a worker adds its tag".to_owned(),
                false => "the port has no kernel device".to_owned(),
            }),
        }
    }

    /// Adds a kernel device to the view: its XDP program, its port, and the switches that start or end at
    /// them.
    fn describe_device(
        &self,
        plan: &PortPlan,
        (device, facts): (&KernelDevice, &DeviceFacts),
        view: &mut HardwareView,
    ) {
        let name = &plan.settings.name;
        let (kind, xdp) = match device.programs.mode() {
            Attachment::Native => ("xdp", "native"),
            Attachment::Generic => ("xdp", "generic"),
            Attachment::Tcx => ("tcx", "none"),
        };
        let processor = format!("{kind} {name}");
        let capabilities = self.devices.capabilities.get(&plan.settings.device);
        let mode = capabilities.map_or("none", |found| sockets(found.mode));
        let why = capabilities.map_or_else(String::new, |found| found.why.clone());
        let flows = "offloaded flows";
        let no_redirects = why_no_redirects(device, facts);
        view.processors.push(ProcessorView {
            name: processor.clone(),
            level: 0,
            above: Some(self.owner_name(plan)),
            cpus: String::new(),
            treats: match device.stays_up {
                None => format!("packets for the kernel; {flows}"),
                Some(_) => "packets for the kernel".to_owned(),
            },
            why_not: device.stays_up.map(ToOwned::to_owned),
        });
        view.switches.extend(self.switches_of(plan, (&processor, mode, device), no_redirects.as_deref()));
        view.ports.push(HardwarePortView {
            name: name.clone(),
            processor,
            device: plan.config.device.clone(),
            driver: facts.driver.clone(),
            xdp,
            sockets: mode,
            why,
            rx_queues: facts.rx_queues,
            tx_queues: facts.tx_queues,
            mtu: facts.mtu,
            speed: facts.speed,
            queueing_discipline: device.queueing.clone(),
            features: facts.xdp_features.clone(),
            why_no_redirects: no_redirects,
        });
    }

    /// Returns the names of the workers that receive from a device, each with a description of the sockets
    /// through which it receives.
    fn ways_up(&self, plan: &PortPlan, mode: &str, device: &KernelDevice) -> Vec<(String, String)> {
        if device.sockets.is_empty() {
            return vec![(self.owner_name(plan), "an AF_PACKET ring; copies each packet once".to_owned())];
        }
        let mut queues: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for QueueSocket { queue, worker, .. } in &device.sockets {
            queues.entry(*worker).or_default().push(queue.to_string());
        }
        let how = |queues: Vec<String>| match queues.as_slice() {
            [_] if device.sockets.len() == 1 => format!("an AF_XDP socket, {mode}"),
            [queue] => format!("an AF_XDP socket, for queue {queue}, {mode}"),
            queues => {
                let sockets = millrace_units::count(queues.len(), "AF_XDP socket");
                format!("{sockets}, for queues {}, {mode}", queues.join(", "))
            }
        };
        queues.into_iter().map(|(worker, queues)| (worker_name(worker), how(queues))).collect()
    }

    fn switches_of(
        &self,
        plan: &PortPlan,
        (processor, mode, device): (&str, &str, &KernelDevice),
        no_redirects: Option<&str>,
    ) -> Vec<SwitchView> {
        let (name, worker) = (&plan.settings.name, self.owner_name(plan));
        let redirects = no_redirects.map_or(Ok("the XDP program redirects frames, without a worker"), Err);
        let mut switches = vec![switch("XDP redirect", "xdp of every port", name, redirects)];
        let up = self.ways_up(plan, mode, device).into_iter();
        switches.extend(up.map(|(to, how)| switch("socket rings", processor, &to, Ok(&how))));
        let batches = format!("test runs of an XDP program, with {LEAST_BATCH} live frames or more each");
        let no_batches =
            "needs a veth with one queue that accepts redirected frames; the socket sends instead";
        let batches = if device.batches.is_open() { Ok(&*batches) } else { Err(no_batches) };
        switches.push(switch("batch sending", &worker, name, batches));
        let handover = "test runs of an XDP program, with live frames up to 3,328 bytes";
        let kernel = format!("{HOST}, as from {name}");
        switches.push(switch("kernel hand-over", &worker, &kernel, Ok(handover)));
        if self.devices.host_outputs.has(plan.id) {
            let how =
                format!("a tcx program at egress of {name} redirects packets of the kernel to the scheduler");
            switches.push(switch("host output", HOST, &worker, Ok(&how)));
        }
        switches
    }
}

/// Returns the view of a switch. `how` is `Ok` with the mode of a working switch, or `Err` with the reason
/// why the switch does not work.
fn switch(name: &'static str, from: &str, to: &str, how: Result<&str, &str>) -> SwitchView {
    let (works, how) = (how.is_ok(), how.unwrap_or_else(|why| why).to_owned());
    SwitchView { name, from: from.to_owned(), to: to.to_owned(), works, how }
}

/// Returns the reason why the XDP program can't redirect offloaded packets to a device; `None` if it can.
fn why_no_redirects(device: &KernelDevice, facts: &DeviceFacts) -> Option<String> {
    let why = device.stays_up.or_else(|| facts.why_no_redirects()).map(ToOwned::to_owned);
    let refused = || "the kernel refused to redirect packets to the device: see the log".to_owned();
    why.or_else(|| device.why_kept_up())
        .or_else(|| device.offload.is_some_and(|can| !can.sends).then(refused))
}

/// Returns the name of a receive mode in the hardware view.
fn sockets(mode: Mode) -> &'static str {
    match mode {
        Mode::ZeroCopy => "zero-copy",
        Mode::Native | Mode::Generic => "copy",
        Mode::Ring => "ring",
        Mode::Call => "call",
        Mode::InProcess => "in-process",
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use crate::operation::GetHardware;
    use crate::operation::Principal;
    use crate::{StartOptions, start};

    #[test]
    fn router_is_not_locked_during_kernel_queries() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let text = "[[port]]\nname = \"lan\"\nkind = \"memory\"\n";
            let config = millrace_config::Config::parse(text, "test").unwrap();
            let router = start(config, StartOptions::default()).await.unwrap();
            let caller = Principal::router();
            // On a busy machine, the other thread may have its answer before this one looks.
            for attempt in 0.. {
                let mut asked = pin!(router.execute(&caller, GetHardware));
                let first = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if matches!(first, Poll::Ready(_)) {
                    assert!(attempt < 100, "it is asked beside all else");
                    continue;
                }
                assert!(router.0.inner.try_lock().is_ok());
                let view = asked.await.unwrap();
                assert_eq!((view.ports.len(), view.processors.len()), (1, 2));
                break;
            }
            router.shutdown().await.unwrap();
        });
    }
}
