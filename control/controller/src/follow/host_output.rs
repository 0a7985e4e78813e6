//! Host output: sends the kernel's own packets by a port through the port's scheduler.
//!
//! A program at the port's tcx egress redirects these packets to a TAP device that the worker reads. The TAP
//! device is named `mr-out-` and the index of the port's device. Program and TAP device end with the process,
//! so the kernel sends its packets itself again when the router dies.
//!
//! On the way to a TAP device, the kernel segments super-frames, completes checksums and inserts tags,
//! whatever tunnel the packets came from. It also reports packets as sent, whereas a program that drops
//! packets slows their senders down. ARP and neighbour discovery bypass the program, because queues may be
//! full. The packets enter the pipeline without an ingress port, as finished frames. They begin at the gates
//! of position `queue`, or of position `early` if the port is configured so.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::RawFd;

use millrace_config::{HostOutput as Setting, InputWeight};
use millrace_offload::HostCatch;
use millrace_packet::Pool;
use millrace_pipeline::{HostFilters, HostSettings, OpenDevice, OpenedDevice, PortCommand, Snapshot};
use millrace_port::{Port, Tap};
use millrace_units::PortId;

use crate::ControlError;
use crate::model::Model;
use crate::ports::device::KernelDevice;
use crate::schedulers::owner_of;
use crate::view::HostOutputView;
use crate::workers::Workers;
use crate::workers::handle::WorkerHandle;

/// Host output of a port.
#[derive(Debug)]
struct HostOutput {
    ifindex: u32,
    settings: HostSettings,
    /// Attached redirect program, or the reason why there is none.
    catch: Result<HostCatch, String>,
}

/// Host outputs by egress port.
#[derive(Debug, Default)]
pub(crate) struct HostOutputs(HashMap<PortId, HostOutput>);

impl HostOutputs {
    /// Whether the kernel's output by a port is to be redirected.
    pub fn has(&self, port: PortId) -> bool {
        self.0.contains_key(&port)
    }

    /// Stops all redirection. The kernel sends its own packets itself again.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Redirects the kernel's output at the ports whose schedulers are configured for it, and at no others. A
    /// port where this fails keeps its scheduler for forwarded packets. The log and `scheduler show` report
    /// the reason.
    pub fn set(
        &mut self,
        kernel: &HashMap<PortId, KernelDevice>,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let ports: BTreeSet<PortId> = kernel.keys().chain(self.0.keys()).copied().collect();
        for port in ports {
            let wanted = wanted(port, kernel, model);
            match (self.0.get_mut(&port), wanted) {
                (Some(HostOutput { ifindex, settings, catch: Ok(_) }), Some((there, other)))
                    if *ifindex == there =>
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
            let Some((ifindex, settings)) = wanted else { continue };
            let catch = catch((port, ifindex), settings, kernel, owner_of(port, model, workers)?)?;
            if let Err(why) = &catch {
                let port = model.port_name(port);
                tracing::warn!(%port, "what the kernel itself sends passes by the scheduler: {why}");
            }
            self.0.insert(port, HostOutput { ifindex, settings, catch });
        }
        Ok(())
    }

    /// Stops redirecting the kernel's output by a port. Packets redirected until then are sent.
    fn let_go(&mut self, port: PortId, model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
        let Some(HostOutput { catch: Ok(catch), .. }) = self.0.remove(&port) else {
            return Ok(());
        };
        drop(catch);
        owner_of(port, model, workers)?.ask(|reply| PortCommand::RemoveHostOutput(port, reply))
    }

    /// Returns the view of a port's host output.
    pub fn view(&self, port: PortId, model: &Model, snapshot: &Snapshot) -> Option<HostOutputView> {
        let scheduler = model.schedulers.of(port)?;
        let catch = self.0.get(&port).map(|host| &host.catch);
        let counts = snapshot.hosts.iter().find(|(own, _)| *own == port).map(|(_, counts)| counts);
        Some(HostOutputView {
            setting: scheduler.host.name(),
            weight: scheduler.host_weight.0,
            caught: matches!(catch, Some(Ok(_))),
            why: catch.and_then(|catch| catch.as_ref().err().cloned()),
            packets: counts.map_or(0, |counts| counts.received),
            bytes: counts.map_or(0, |counts| counts.received_bytes),
            lost: counts.map_or(0, |counts| counts.drops.total()),
        })
    }
}

/// Returns the device whose kernel output is to be redirected, and the settings; `None` if it is not
/// configured.
fn wanted(
    port: PortId,
    kernel: &HashMap<PortId, KernelDevice>,
    model: &Model,
) -> Option<(u32, HostSettings)> {
    let (device, scheduler) = (kernel.get(&port)?, model.schedulers.of(port)?);
    let filters = match scheduler.host {
        Setting::Direct => return None,
        Setting::Queue => HostFilters::Queue,
        Setting::Filter => HostFilters::All,
    };
    let InputWeight(weight) = scheduler.host_weight;
    Some((device.ifindex, HostSettings { filters, weight }))
}

/// Redirects the kernel's output on a device to a TAP device. The inner error is the reason for a
/// failure.
fn catch(
    (port, ifindex): (PortId, u32),
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
    let attached = HostCatch::attach(ifindex, catcher, &above).map_err(|error| error.to_string());
    if attached.is_err() {
        worker.ask(|reply| PortCommand::RemoveHostOutput(port, reply))?;
    }
    Ok(attached)
}
