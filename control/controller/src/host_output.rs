//! What the kernel itself sends by ports that have a scheduler: caught, and sent by the scheduler like the rest.
//!
//! A program at the port's tcx egress redirects it to a TAP device that the worker reads, `mr-out-` and the index of the port's
//! device. Both go with the process, so the kernel sends itself again when the router dies.

use std::collections::BTreeSet;
use std::os::fd::RawFd;

use millrace_config::{HostOutput as Setting, InputWeight};
use millrace_offload::HostCatch;
use millrace_packet::Pool;
use millrace_pipeline::{HostFilters, HostSettings, OpenDevice, OpenedDevice, PortCommand, Snapshot};
use millrace_port::{Port, Tap};
use millrace_units::PortId;

use crate::ControlError;
use crate::router::Inner;
use crate::view::HostOutputView;

/// The output of the kernel by a port.
#[derive(Debug)]
pub(crate) struct HostOutput {
    ifindex: u32,
    settings: HostSettings,
    /// What catches it, or why nothing does.
    catch: Result<HostCatch, String>,
}

impl Inner {
    /// Has the kernel's output caught at the ports whose schedulers want it, and at no other. A port where that does not
    /// work keeps its scheduler, for what is forwarded: the log and `scheduler show` say why.
    pub fn set_host_outputs(&mut self) -> Result<(), ControlError> {
        let ports: BTreeSet<PortId> = self.kernel.keys().chain(self.hosts.keys()).copied().collect();
        for port in ports {
            let wanted = self.wanted(port);
            match (self.hosts.get_mut(&port), wanted) {
                (Some(HostOutput { ifindex, settings, catch: Ok(_) }), Some((there, other)))
                    if *ifindex == there =>
                {
                    if *settings != other {
                        *settings = other;
                        self.owner_of(port)?.tell(PortCommand::SetHostOutput(port, other))?;
                    }
                    continue;
                }
                (None, None) => continue,
                _ => self.let_go(port)?,
            }
            let Some((ifindex, settings)) = wanted else { continue };
            let catch = self.catch(port, ifindex, settings)?;
            if let Err(why) = &catch {
                let port = self.model.port_name(port);
                tracing::warn!(%port, "what the kernel itself sends passes by the scheduler: {why}");
            }
            self.hosts.insert(port, HostOutput { ifindex, settings, catch });
        }
        Ok(())
    }

    /// The device at which the kernel's output for a port is to be caught, and how.
    fn wanted(&self, port: PortId) -> Option<(u32, HostSettings)> {
        let (device, scheduler) = (self.kernel.get(&port)?, self.model.schedulers.of(port)?);
        let filters = match scheduler.host {
            Setting::Direct => return None,
            Setting::Queue => HostFilters::Queue,
            Setting::Filter => HostFilters::All,
        };
        let InputWeight(weight) = scheduler.host_weight;
        Some((device.ifindex, HostSettings { filters, weight }))
    }

    /// Lets the kernel send by a port itself; what was caught until then is sent.
    fn let_go(&mut self, port: PortId) -> Result<(), ControlError> {
        let Some(HostOutput { catch: Ok(catch), .. }) = self.hosts.remove(&port) else { return Ok(()) };
        drop(catch);
        self.owner_of(port)?.ask(|reply| PortCommand::RemoveHostOutput(port, reply))
    }

    /// Redirects the kernel's output on a device to a TAP device. The inner error is the reason for a failure.
    fn catch(
        &mut self,
        port: PortId,
        ifindex: u32,
        settings: HostSettings,
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
        let opened =
            self.owner_of(port)?.ask(|reply| PortCommand::AddHostOutput(port, settings, open, reply))?;
        let report = match opened {
            Ok(report) => report,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let sockets = self.kernel.values().flat_map(|device| device.sockets.iter().map(|own| own.socket));
        let above: Vec<RawFd> = report.sockets.iter().map(|(_, socket)| *socket).chain(sockets).collect();
        let catcher = report.capabilities.ifindex.unwrap_or_default();
        let attached = HostCatch::attach(ifindex, catcher, &above).map_err(|error| error.to_string());
        if attached.is_err() {
            self.owner_of(port)?.ask(|reply| PortCommand::RemoveHostOutput(port, reply))?;
        }
        Ok(attached)
    }

    /// What is shown of it.
    pub fn host_view(&self, port: PortId, snapshot: &Snapshot) -> Option<HostOutputView> {
        self.kernel.get(&port)?;
        let scheduler = self.model.schedulers.of(port)?;
        let catch = self.hosts.get(&port).map(|host| &host.catch);
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
