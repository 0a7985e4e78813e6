//! Host output: sends the kernel's own packets through the scheduler of their egress port.
//!
//! A program at the tcx egress of the port's device redirects these packets to a TAP device, which the worker
//! reads. The name of the TAP device is `mr-out-` followed by the index of the port's device. Program and TAP
//! device end with the process. So after the router's death, the kernel sends its packets directly again.
//!
//! On the way to the TAP device, the kernel segments GSO packets, completes checksums and inserts tags, also
//! for packets from tunnels. To its sender, a redirected packet counts as sent. If the program dropped
//! packets instead, the kernel would slow their senders down. ARP and neighbour discovery bypass the program,
//! because queues may be full.
//!
//! The packets enter the pipeline as complete frames without an ingress port. They start at the gates of
//! position `queue`, or of position `early` if so configured. Packets of the processes of a principal go to its queue,
//! unless a filter chooses another one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::fd::RawFd;

use millrace_config::{HostOutput as Setting, InputWeight};
use millrace_offload::{HostCatch, HostRedirect, Mark};
use millrace_packet::Pool;
use millrace_pipeline::{HostFilters, HostSettings, OpenDevice, OpenedDevice, PortCommand, Snapshot};
use millrace_port::{Port, Tap};
use millrace_units::{PortId, QueueId};
use millrace_wire::MacAddr;

use crate::ControlError;
use crate::model::Model;
use crate::ports::device::KernelDevice;
use crate::view::HostOutputView;
use crate::workers::handle::WorkerHandle;
use crate::workers::{Workers, owner_of};

#[derive(Debug)]
struct HostOutput {
    place: Place,
    settings: HostSettings,
    /// Attached redirect program, or the reason why redirection failed.
    catch: Result<HostCatch, String>,
}

/// Device of a port, by its interface index and MAC address.
type Place = (u32, MacAddr);

#[derive(Debug)]
pub(crate) struct HostOutputs {
    all: HashMap<PortId, HostOutput>,
    /// Mark of packets with a queue.
    mark: Mark,
}

impl Default for HostOutputs {
    fn default() -> Self {
        let [_, one, two, three, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
        // A MAC address that is no group's, and that no vendor has given to a device.
        Self { all: HashMap::new(), mark: [2, one, two, three] }
    }
}

impl HostOutputs {
    /// Whether host output is configured at a port. True even if the redirection of the packets failed.
    pub fn has(&self, port: PortId) -> bool {
        self.all.contains_key(&port)
    }

    /// Stops host output at all ports; the kernel then sends its own packets directly again.
    pub fn clear(&mut self) {
        self.all.clear();
    }

    /// Starts host output at the ports whose schedulers are configured for it, and stops it at all other
    /// ports. If redirection fails at a port, the log and `scheduler show` report the reason, and the port's
    /// scheduler still serves forwarded packets.
    pub fn set(
        &mut self,
        kernel: &HashMap<PortId, KernelDevice>,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let ports: BTreeSet<PortId> = kernel.keys().chain(self.all.keys()).copied().collect();
        for port in ports {
            let wanted = self.wanted(port, kernel, model);
            match (self.all.get_mut(&port), wanted) {
                (Some(HostOutput { place, settings, catch: Ok(_) }), Some((there, other)))
                    if *place == there =>
                {
                    if *settings != other {
                        *settings = other;
                        owner_of(port, model, workers)?.tell(PortCommand::SetHostOutput(port, other))?;
                    }
                    continue;
                }
                (None, None) => continue,
                _ => self.let_go(port, model, workers)?,
            }
            let Some((place, settings)) = wanted else { continue };
            let catch = catch((port, place), settings, kernel, owner_of(port, model, workers)?)?;
            if let Err(why) = &catch {
                let port = model.port_name(port);
                tracing::warn!(%port, "packets of the kernel bypass the port's scheduler: {why}");
            }
            self.all.insert(port, HostOutput { place, settings, catch });
        }
        Ok(())
    }

    /// Sets the queues of packets by the control groups of their processes. If the kernel refuses that at a port, the
    /// log reports it, and the packets go to the default queue there.
    pub fn set_queues(&mut self, queues: &BTreeMap<u64, QueueId>, model: &Model) {
        for (port, output) in &mut self.all {
            let Ok(catch) = &mut output.catch else { continue };
            if let Err(error) = catch.set_queues(queues) {
                let port = model.port_name(*port);
                tracing::warn!(%port, "packets of user processes bypass the queues of their principals: {error}");
            }
        }
    }

    /// Returns the place and the host output settings of a port; `None` without host output.
    fn wanted(
        &self,
        port: PortId,
        kernel: &HashMap<PortId, KernelDevice>,
        model: &Model,
    ) -> Option<(Place, HostSettings)> {
        let (device, scheduler) = (kernel.get(&port)?, model.schedulers.of(port)?);
        let mac = model.ports.iter().find(|plan| plan.id == port)?.settings.mac;
        let filters = match scheduler.host {
            Setting::Direct => return None,
            Setting::Queue => HostFilters::Queue,
            Setting::Filter => HostFilters::All,
        };
        let InputWeight(weight) = scheduler.host_weight;
        Some(((device.ifindex, mac), HostSettings { filters, weight, mark: self.mark }))
    }

    /// Stops host output at a port. Packets already redirected are still sent.
    fn let_go(&mut self, port: PortId, model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
        let Some(HostOutput { catch: Ok(catch), .. }) = self.all.remove(&port) else {
            return Ok(());
        };
        drop(catch);
        owner_of(port, model, workers)?.ask(|reply| PortCommand::RemoveHostOutput(port, reply))
    }

    pub fn view(&self, port: PortId, model: &Model, snapshot: &Snapshot) -> Option<HostOutputView> {
        let scheduler = model.schedulers.of(port)?;
        let catch = self.all.get(&port).map(|host| &host.catch);
        let counts = snapshot.hosts.iter().find(|(own, _)| *own == port).map(|(_, counts)| counts);
        Some(HostOutputView {
            setting: scheduler.host.name(),
            weight: scheduler.host_weight.0,
            queued_here: matches!(catch, Some(Ok(_))),
            why: catch.and_then(|catch| catch.as_ref().err().cloned()),
            packets: counts.map_or(0, |counts| counts.received),
            bytes: counts.map_or(0, |counts| counts.received_bytes),
            lost: counts.map_or(0, |counts| counts.drops.total()),
        })
    }
}

/// Redirects the kernel's output on a device to a TAP device. The outer error means that a worker doesn't
/// answer. The inner error is the reason why redirection failed.
fn catch(
    (port, (ifindex, mac)): (PortId, Place),
    settings: HostSettings,
    kernel: &HashMap<PortId, KernelDevice>,
    worker: &mut WorkerHandle,
) -> Result<Result<HostCatch, String>, ControlError> {
    let name = format!("mr-out-{ifindex}");
    let catcher = match Tap::open_catcher(&name) {
        Ok(catcher) => catcher,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let open: OpenDevice = Box::new(move |_: &Pool| {
        let descriptor = catcher.descriptor().map(|descriptor| (0, descriptor));
        Ok(OpenedDevice { port: Box::new(catcher), sockets: descriptor.into_iter().collect() })
    });
    let opened = worker.ask(|reply| PortCommand::AddHostOutput(port, settings, open, reply))?;
    let report = match opened {
        Ok(report) => report,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let sockets = kernel.values().flat_map(|device| device.sockets.iter().map(|own| own.socket));
    let above: Vec<RawFd> = report.sockets.iter().map(|(_, socket)| *socket).chain(sockets).collect();
    let catcher = report.capabilities.ifindex.unwrap_or_default();
    let redirect = HostRedirect { catcher, mac, mark: settings.mark };
    let attached = HostCatch::attach(ifindex, redirect, &above).map_err(|error| error.to_string());
    if attached.is_err() {
        worker.ask(|reply| PortCommand::RemoveHostOutput(port, reply))?;
    }
    Ok(attached)
}
