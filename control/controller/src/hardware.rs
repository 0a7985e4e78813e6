//! The hardware of a router (*VERA*, section 2.1): its processors, ports and switches, with what was found out about each.
//!
//! A port is managed by one processor: what comes in by it goes there first. What that leaves to others goes up, from the driver to a
//! worker and from a worker to the host, so processors are a tree with the host at its root and the ports as leaves.

use millrace_offload::{Attachment, DeviceFacts};
use millrace_pipeline::Handover;
use millrace_port::Mode;

use crate::ControlError;
use crate::device::KernelDevice;
use crate::model::PortPlan;
use crate::router::{Inner, Router};
use crate::topology;
use crate::view::{HardwarePortView, HardwareView, ProcessorView, SwitchView};

/// The highest processor.
const HOST: &str = "host";

impl Router {
    /// What there is for packets to pass, and what each part can do.
    ///
    /// # Errors
    /// None so far.
    pub fn hardware(&self) -> Result<HardwareView, ControlError> {
        let inner = self.lock();
        let mut view = HardwareView {
            cpus: topology::cpus(),
            processors: inner.host_and_workers(),
            ports: Vec::new(),
            switches: inner.switches_between_workers(),
        };
        for plan in inner.model.ports.iter() {
            match inner.kernel.get(&plan.id) {
                Some(device) => inner.describe_device(plan, device, &mut view),
                None => view.ports.push(inner.own_port(plan)),
            }
        }
        Ok(view)
    }
}

fn worker_name(worker: usize) -> String {
    format!("worker {worker}")
}

impl Inner {
    fn owner_name(&self, plan: &PortPlan) -> String {
        worker_name(Handover::owner(plan.settings.device, self.workers.len()))
    }

    fn host_and_workers(&self) -> Vec<ProcessorView> {
        let host = ProcessorView {
            name: HOST.to_owned(),
            level: 2,
            above: None,
            cpus: topology::allowed(nix::unistd::getpid().as_raw()),
            treats: "control, slow halves of plugins; the kernel's own stack".to_owned(),
            why_not: None,
        };
        let worker = |(number, thread): (usize, crate::watchdog::WorkerThread)| ProcessorView {
            name: worker_name(number),
            level: 1,
            above: Some(HOST.to_owned()),
            cpus: topology::allowed(thread.thread.as_raw()),
            treats: "every flow: filters, instances, queues, schedulers".to_owned(),
            why_not: None,
        };
        let workers = self.workers.watched().into_iter().enumerate().map(worker);
        std::iter::once(host).chain(workers).collect()
    }

    fn switches_between_workers(&self) -> Vec<SwitchView> {
        if self.workers.len() == 1 {
            return Vec::new();
        }
        vec![SwitchView {
            name: "worker rings",
            from: "each worker".to_owned(),
            to: "each other worker".to_owned(),
            works: true,
            how: "a ring of parcels for each two, one copy for each packet".to_owned(),
        }]
    }

    /// A port without a kernel device of its own: it hangs at its worker.
    fn own_port(&self, plan: &PortPlan) -> HardwarePortView {
        let capabilities = self.capabilities.get(&plan.settings.device);
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
            features: Vec::new(),
            why_no_redirects: Some(match is_vlan {
                true => "a sub-interface: its frames have a tag, which a worker adds".to_owned(),
                false => "no kernel device is below".to_owned(),
            }),
        }
    }

    /// A kernel device: its program, the port itself, and the ways from and to it.
    fn describe_device(&self, plan: &PortPlan, device: &KernelDevice, view: &mut HardwareView) {
        let name = &plan.settings.name;
        let facts = DeviceFacts::of(device.ifindex).unwrap_or_default();
        let (kind, xdp) = match device.programs.mode() {
            Attachment::Native => ("xdp", "driver"),
            Attachment::Generic => ("xdp", "generic"),
            Attachment::Tcx => ("tcx", "none"),
        };
        let processor = format!("{kind} {name}");
        let capabilities = self.capabilities.get(&plan.settings.device);
        let mode = capabilities.map_or("none", |found| sockets(found.mode));
        let why = capabilities.map_or_else(String::new, |found| found.why.clone());
        let flows = "plain flows of a worker, in the driver";
        let no_redirects = self.why_no_redirects(device, &facts);
        view.processors.push(ProcessorView {
            name: processor.clone(),
            level: 0,
            above: Some(self.owner_name(plan)),
            cpus: String::new(),
            treats: match device.stays_up {
                None => format!("what is the kernel's; {flows}"),
                Some(_) => "what is the kernel's".to_owned(),
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
            features: facts.xdp_features.clone(),
            why_no_redirects: no_redirects,
        });
    }

    /// Why no packet is redirected to a device in the driver; `None` where that works.
    fn why_no_redirects(&self, device: &KernelDevice, facts: &DeviceFacts) -> Option<String> {
        let why = device.stays_up.or_else(|| facts.why_no_redirects());
        let refused = || "the kernel refused it: the log says why";
        let why = why.or_else(|| device.driver.is_some_and(|can| !can.sends).then(refused));
        why.map(ToOwned::to_owned)
    }

    fn switches_of(
        &self,
        plan: &PortPlan,
        (processor, mode, device): (&str, &str, &KernelDevice),
        no_redirects: Option<&str>,
    ) -> Vec<SwitchView> {
        let (name, worker) = (&plan.settings.name, self.owner_name(plan));
        let up = match (mode, device.sockets.len()) {
            ("ring", _) => "an AF_PACKET ring, one copy for each packet".to_owned(),
            (_, 1) => format!("an AF_XDP socket, {mode}"),
            (_, queues) => format!("{queues} AF_XDP sockets, one for each queue, {mode}"),
        };
        let mut switches = vec![
            SwitchView {
                name: "driver redirect",
                from: "xdp of every port".to_owned(),
                to: name.clone(),
                works: no_redirects.is_none(),
                how: no_redirects.unwrap_or("by the driver, without a worker").to_owned(),
            },
            SwitchView {
                name: "socket rings",
                from: processor.to_owned(),
                to: worker.clone(),
                works: true,
                how: up,
            },
            SwitchView {
                name: "kernel hand-over",
                from: worker,
                to: format!("{HOST}, as from {name}"),
                works: true,
                how: "programs that are run with live frames, up to 3,328 bytes each".to_owned(),
            },
        ];
        if self.hosts.contains_key(&plan.id) {
            switches.push(SwitchView {
                name: "host output",
                from: HOST.to_owned(),
                to: self.owner_name(plan),
                works: true,
                how: format!("what the kernel sends by {name} is caught at tcx egress, for its scheduler"),
            });
        }
        switches
    }
}

/// How packets get to a worker, in a word.
fn sockets(mode: Mode) -> &'static str {
    match mode {
        Mode::ZeroCopy => "zero-copy",
        Mode::Native | Mode::Generic => "copy",
        Mode::Ring => "ring",
        Mode::Call => "call",
        Mode::InProcess => "in-process",
    }
}
