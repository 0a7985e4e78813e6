//! Opens the devices of configured ports.

mod own;

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use millrace_config::{Device as Driver, Impair as ImpairConfig, OnDeath};
use millrace_host::HostLink;
use millrace_offload::{
    Attachment, FlowCache, Mode, OffloadError, PortPrograms, RX_QUEUES, VlanStack, VlanTag, receive_queues,
    takes_tags_out,
};
use millrace_packet::Pool;
use millrace_pipeline::{
    ClassLimits, DeviceCommand, DeviceId, DeviceReport, Handover, OffloadPort, OpenDevice, OpenedDevice,
    Tags, thread,
};
use millrace_port::af_xdp::{self, ProgramMode};
use millrace_port::pcap::PcapngWriter;
use millrace_port::{
    AfPacket, AfXdp, Capabilities, Impair, Impairment, Port, PortError, Record, RecordLimit, af_packet,
    create_recording,
};
use millrace_wire::MacAddr;

pub(crate) use own::OwnDevice;

use crate::ControlError;
use crate::events::since_1970;
use crate::model::PortPlan;
use crate::ports::batch_sending::{BatchWay, DeviceBatches};
use crate::ports::claim::Claim;
use crate::ports::control_plane::class_rates;
use crate::workers::Workers;
use crate::workers::handle::WorkerHandle;

/// AF_XDP socket through which a worker receives from a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSocket {
    pub queue: u32,
    pub socket: i32,
    /// Number of the worker that owns the socket.
    pub worker: usize,
}

/// Kernel device of a port, with its programs, sockets and claim.
#[derive(Debug)]
pub(crate) struct KernelDevice {
    pub ifindex: u32,
    pub device: DeviceId,
    pub programs: PortPrograms,
    /// AF_XDP sockets of the device; empty if it uses AF_PACKET.
    pub sockets: Vec<QueueSocket>,
    /// Reason why the XDP program does not look up flows in the flow cache; `None` if it does.
    pub stays_up: Option<&'static str>,
    /// Offload capabilities last sent to the workers; `None` before they are sent for the first time.
    pub offload: Option<OffloadPort>,
    /// Kernel queueing discipline of the device; `None` for a plain queue.
    pub queueing: Option<String>,
    /// Longest packet that the peer device accepts, in bytes; `None` if the peer accepts packets of the
    /// port's MTU.
    pub short_of: Option<u32>,
    /// State of batch sending by the device.
    pub batches: BatchWay,
    claim: Claim,
}

impl KernelDevice {
    /// Returns a bit mask of the receive queues with a socket; bit N stands for queue N, up to 63.
    pub fn receive_queues(&self) -> u64 {
        self.sockets.iter().fold(0, |queues, own| queues | 1_u64.checked_shl(own.queue).unwrap_or(0))
    }

    /// Whether the receive queues in use have changed since the device was opened. Always `false` in tcx
    /// mode, which has no socket per queue. `name` is the device's name.
    pub fn has_other_queues(&self, name: &str) -> bool {
        let is_by_queue = self.programs.mode() != Attachment::Tcx;
        is_by_queue && receive_queues(name).is_some_and(|queues| queues != self.programs.queues())
    }
}

/// Options for opening kernel devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelOptions {
    pub on_death: OnDeath,
    /// MTU to which GSO packets are segmented: the smallest MTU of all kernel ports, so that the segments fit
    /// every port.
    pub segment_mtu: u16,
    /// Reason why there is no flow cache; `None` if there is one.
    pub no_cache: Option<&'static str>,
    /// Control-plane policing limits of packets punted to the kernel.
    pub control_plane: ClassLimits,
}

/// Kernel device with attached programs, before its sockets are opened.
///
/// All devices are attached before any socket is opened. When the process is killed, Linux closes its
/// descriptors in reverse order: first the sockets, then the programs. Each program takes milliseconds to
/// close. As soon as the sockets are closed, the programs pass packets to the kernel.
#[derive(Debug)]
pub(crate) struct AttachedDevice {
    plan: PortPlan,
    link: HostLink,
    claim: Claim,
    options: KernelOptions,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The device uses AF_XDP, with these programs.
    Xdp(Box<(PortPrograms, af_xdp::Options)>),
    /// The device uses AF_PACKET, for this reason.
    Packet(String),
}

/// Reason why a port that uses AF_PACKET doesn't look up flows in the flow cache.
const NO_XDP: &str = "no XDP program runs on the device, because the port uses AF_PACKET";
/// Reason why no flows of a device are looked up in the flow cache, if the device has more receive queues
/// than the flow cache can count.
const MANY_QUEUES: &str = "more than 64 receive queues are in use";
const _: () = assert!(RX_QUEUES == 64);

impl Stage {
    /// Enables flow cache lookups in the XDP program. Returns the reason if lookups are impossible.
    fn look_up_flows(&mut self, plan: &PortPlan) -> Result<Option<&'static str>, ControlError> {
        let Self::Xdp(attached) = self else { return Ok(Some(NO_XDP)) };
        let programs = &mut attached.0;
        let why = match programs.mode() {
            Attachment::Tcx => Some(NO_XDP),
            Attachment::Generic => {
                Some("XDP runs in generic mode, behind the driver, where the offload saves nothing")
            }
            Attachment::Native if programs.queues() as usize > RX_QUEUES => Some(MANY_QUEUES),
            Attachment::Native if is_wrapped(plan) => {
                Some("the port is impaired or recorded, so all its frames pass a worker")
            }
            Attachment::Native if !FlowCache::knows(plan.id.0) => {
                Some("the router has more ports than the flow cache supports")
            }
            Attachment::Native => None,
        };
        if why.is_none() {
            programs.cache_flows(plan.id.0, true).map_err(offload_error)?;
        }
        Ok(why)
    }
}

impl AttachedDevice {
    /// Attaches the programs of a port. The kernel still gets all packets, until [`KernelDevice::take_over`].
    pub fn attach(
        plan: &PortPlan,
        link: &HostLink,
        claim: Claim,
        options: KernelOptions,
        cache: Option<&FlowCache>,
    ) -> Result<Self, ControlError> {
        let xdp =
            |mode| attach_xdp(link, mode, options, cache).map(|attached| Stage::Xdp(Box::new(attached)));
        let stage = match plan.config.driver {
            Driver::Auto => match xdp(Mode::Auto) {
                Err(ControlError::System(problem)) => Stage::Packet(no_af_xdp(&problem)),
                other => other?,
            },
            Driver::AfXdp => xdp(Mode::Auto)?,
            Driver::AfXdpGeneric => xdp(Mode::Generic)?,
            Driver::AfPacket => Stage::Packet("the configuration asks for AF_PACKET".into()),
        };
        Ok(Self { plan: plan.clone(), link: link.clone(), claim, options, stage })
    }

    /// Opens the sockets of the device at the workers. Falls back to AF_PACKET if AF_XDP fails and the driver
    /// is `auto`.
    pub fn open(self, workers: &mut Workers) -> Result<(KernelDevice, Capabilities), ControlError> {
        let Self { plan, link, claim, options, mut stage } = self;
        // Lookups are enabled before the first socket opens, so that every upcall is counted.
        let mut stays_up = match options.no_cache {
            Some(why) => Some(why),
            None => stage.look_up_flows(&plan)?,
        };
        let batches = BatchWay::default();
        let (mut programs, capabilities, sockets) = match stage {
            Stage::Xdp(attached) => match open_xdp(&plan, *attached, &batches, workers) {
                Err(ControlError::System(problem)) if plan.config.driver == Driver::Auto => {
                    // Sockets that other workers have opened already are closed.
                    workers.ask(|reply| DeviceCommand::Remove(plan.settings.device, reply))?;
                    stays_up = Some(NO_XDP);
                    open_packet(&plan, &link, options, workers, no_af_xdp(&problem))
                }
                other => other,
            },
            Stage::Packet(why) => open_packet(&plan, &link, options, workers, why),
        }?;
        programs.set_control_plane(&class_rates(&options.control_plane)).map_err(offload_error)?;
        let opened = KernelDevice {
            ifindex: link.ifindex,
            device: plan.settings.device,
            programs,
            sockets,
            stays_up,
            offload: None,
            queueing: None,
            short_of: None,
            batches,
            claim,
        };
        Ok((opened, capabilities))
    }
}

impl KernelDevice {
    /// Detaches the programs from the device. Dropping the returned claim releases the device.
    pub fn detach(self) -> (Result<(), ControlError>, Claim) {
        (self.programs.detach().map_err(offload_error), self.claim)
    }

    /// Detaches the device after a crash. With `on-death = "drop"` the programs stay, and drop the packets
    /// that the router would forward.
    pub fn leave(self) -> (Result<(), ControlError>, Claim) {
        (self.programs.leave().map_err(offload_error), self.claim)
    }

    /// Warns if a port has a sub-interface although the device strips VLAN tags. The XDP program would then
    /// see tagged frames as untagged.
    pub fn warn_of_tags(&self, plan: &PortPlan, ports: &[PortPlan]) {
        let name = plan.config.device.as_deref().unwrap_or_default();
        let mut subs =
            ports.iter().filter(|sub| sub.settings.device == self.device && sub.config.vlan.is_some());
        let Some(sub) = subs.next() else { return };
        if self.programs.mode() != Attachment::Tcx && takes_tags_out(name) == Some(true) {
            tracing::warn!(
                port = %sub.settings.name,
                "device {name} strips VLAN tags before the XDP program (receive VLAN offload), so that tagged frames look untagged: \
                 run `ethtool -K {name} rxvlan off` (for a veth, also `txvlan off` at its peer)"
            );
        }
    }

    /// Sets the port's MAC address in the programs. From then on, the router instead of the kernel receives
    /// the packets to forward.
    pub fn take_over(&mut self, mac: MacAddr) -> Result<(), ControlError> {
        self.programs.set_own_mac(mac.0).map_err(offload_error)
    }
}

/// Programs, capabilities and AF_XDP sockets of a device.
type Opened = (PortPrograms, Capabilities, Vec<QueueSocket>);

fn on_death(on_death: OnDeath) -> millrace_offload::OnDeath {
    match on_death {
        OnDeath::Kernel => millrace_offload::OnDeath::Kernel,
        OnDeath::Drop => millrace_offload::OnDeath::Drop,
    }
}

fn offload_error(error: OffloadError) -> ControlError {
    match error {
        OffloadError::Occupied { .. } => ControlError::conflict(error.to_string()),
        _ => ControlError::refused(error),
    }
}

fn attach_xdp(
    link: &HostLink,
    mode: Mode,
    options: KernelOptions,
    cache: Option<&FlowCache>,
) -> Result<(PortPrograms, af_xdp::Options), ControlError> {
    let mac = MacAddr(link.mac.unwrap_or_default());
    let mtu = mtu_of(link);
    let mut settings = af_xdp::Options::new(link.name.clone(), link.ifindex, mac, mtu);
    let (ifindex, on_death) = (link.ifindex, on_death(options.on_death));
    let attach = |frags| match cache {
        Some(cache) => PortPrograms::attach_xdp_cached(ifindex, mode, frags, on_death, cache),
        None => PortPrograms::attach_xdp(ifindex, mode, frags, on_death),
    };
    let attached = match attach(settings.scatter) {
        // The peer of a veth may have a larger MTU than the port, and then sends longer frames. So the
        // program must accept scattered frames.
        Err(OffloadError::MtuTooLarge { .. }) if !settings.scatter => {
            settings.scatter = true;
            attach(true)
        }
        other => other,
    };
    let programs = attached.map_err(offload_error)?;
    settings.queues = (0..programs.queues().max(1)).collect();
    settings.segment_mtu = options.segment_mtu.min(mtu);
    settings.program = match programs.mode() {
        Attachment::Native => ProgramMode::Native,
        Attachment::Generic | Attachment::Tcx => ProgramMode::Generic,
    };
    settings.why = programs.why().unwrap_or_default().to_owned();
    Ok((programs, settings))
}

fn open_xdp(
    plan: &PortPlan,
    (mut programs, settings): (PortPrograms, af_xdp::Options),
    batches: &BatchWay,
    workers: &mut Workers,
) -> Result<Opened, ControlError> {
    let device = plan.settings.device;
    // A recorded or impaired port wraps all queues in one device, so one worker owns all queues.
    let spread = if is_wrapped(plan) { 1 } else { workers.len() };
    let (mut capabilities, mut sockets) = (None, Vec::new());
    for turn in 0..spread {
        let queues = settings.queues.iter().copied().filter(|queue| *queue as usize % spread == turn);
        let part = af_xdp::Options { queues: queues.collect(), ..settings.clone() };
        if part.queues.is_empty() {
            break;
        }
        // The owner of the device gets the first queue, because packets are sent through this queue.
        let worker = (Handover::owner(device, workers.len()) + turn) % workers.len();
        match open_queues(plan, part, (turn == 0).then_some(batches), workers.get(worker))? {
            Ok(report) => {
                let own = report.sockets.into_iter();
                sockets.extend(own.map(|(queue, socket)| QueueSocket { queue, socket, worker }));
                capabilities.get_or_insert(report.capabilities);
            }
            // The device has fewer queues than the kernel announced.
            Err(PortError::Queue { .. }) if capabilities.is_some() => {}
            Err(error) => return Err(open_error(plan, error)),
        }
    }
    let Some(capabilities) = capabilities else {
        return Err(ControlError::System(format!("port {:?} has no receive queue", plan.settings.name)));
    };
    for QueueSocket { queue, socket, .. } in &sockets {
        programs.register_socket(*queue, *socket).map_err(offload_error)?;
    }
    Ok((programs, capabilities, sockets))
}

/// Opens the AF_XDP sockets of some queues at a worker. If the device has fewer queues than the kernel
/// announced, retries without the last queue. Control creates the sockets because workers may not. `sends` is
/// the state of batch sending if the device's first queue is among these queues, because packets are sent
/// through this queue; else `None`.
fn open_queues(
    plan: &PortPlan,
    mut settings: af_xdp::Options,
    sends: Option<&BatchWay>,
    worker: &mut WorkerHandle,
) -> Result<Result<DeviceReport, PortError>, ControlError> {
    loop {
        let batches = sends.and_then(|way| DeviceBatches::of(settings.ifindex, way));
        let sockets = AfXdp::make_sockets(&settings).map_err(|error| open_error(plan, error))?;
        let wrap = if sends.is_some() { Wrapping::of(plan)? } else { Wrapping::default() };
        let own = settings.clone();
        let open: OpenDevice = Box::new(move |pool: &Pool| {
            let mut port = AfXdp::open_by(sockets, pool, own)?;
            if let Some(batches) = batches {
                port.set_batch_send(Box::new(batches));
            }
            let sockets = port.sockets().collect();
            Ok(OpenedDevice { port: wrap.around(Box::new(port))?, sockets })
        });
        match worker.ask(|reply| DeviceCommand::Add(plan.settings.device, open, reply))? {
            Err(PortError::Queue { .. }) if settings.queues.len() > 1 => settings.queues.pop(),
            opened => return Ok(opened),
        };
    }
}

fn open_packet(
    plan: &PortPlan,
    link: &HostLink,
    options: KernelOptions,
    workers: &mut Workers,
    why: String,
) -> Result<Opened, ControlError> {
    let programs =
        PortPrograms::attach_tcx(link.ifindex, on_death(options.on_death)).map_err(offload_error)?;
    let mac = MacAddr(link.mac.unwrap_or_default());
    let mut settings = af_packet::Options::new(link.name.clone(), link.ifindex, mac, mtu_of(link));
    settings.segment_mtu = options.segment_mtu.min(settings.mtu);
    let filter = programs.socket_filter_fd().map(|fd| fd.try_clone_to_owned()).transpose();
    settings.filter = filter.map_err(|error| ControlError::system("share the socket filter", error))?;
    let wrap = Wrapping::of(plan)?;
    let sockets = AfPacket::make_sockets(&settings).map_err(|error| open_error(plan, error))?;
    let open: OpenDevice = Box::new(move |_: &Pool| {
        let port = AfPacket::open_by(sockets, settings)?;
        Ok(OpenedDevice { port: wrap.around(Box::new(port))?, sockets: Vec::new() })
    });
    let report = open_on_worker(plan, open, workers)?;
    let capabilities = Capabilities { why, ..report.capabilities };
    Ok((programs, capabilities, Vec::new()))
}

/// Returns the reason to use AF_PACKET, which is the failure of AF_XDP.
fn no_af_xdp(problem: &str) -> String {
    format!("AF_XDP does not work here: {problem}")
}

/// Returns the MTU of a device, limited to the maximum packet length.
pub(crate) fn mtu_of(link: &HostLink) -> u16 {
    u16::try_from(link.mtu).unwrap_or(u16::MAX)
}

/// Returns the VLAN tags of a sub-interface in the format of the XDP program; `None` without tags.
pub(crate) fn vlan_stack(tags: Tags) -> Option<VlanStack> {
    let mut tags = tags.iter().map(|(tpid, vid)| VlanTag { tpid, vid });
    Some(VlanStack { outer: tags.next()?, inner: tags.next() })
}

fn open_on_worker(
    plan: &PortPlan,
    open: OpenDevice,
    workers: &mut Workers,
) -> Result<DeviceReport, ControlError> {
    let device = plan.settings.device;
    let opened = workers.owner(device).ask(|reply| DeviceCommand::Add(device, open, reply))?;
    opened.map_err(|error| open_error(plan, error))
}

fn open_error(plan: &PortPlan, error: PortError) -> ControlError {
    match error {
        PortError::Busy { .. } => ControlError::conflict(format!("port {:?}: {error}", plan.settings.name)),
        _ => ControlError::System(format!("port {:?}: {error}", plan.settings.name)),
    }
}

/// Returns the time since 1970 at which a worker's clock shows
/// [`Instant::ZERO`](millrace_units::Instant::ZERO).
pub(crate) fn time_of_day() -> Duration {
    since_1970().saturating_sub(Duration::from_nanos(thread::now().as_nanos()))
}

/// Whether a port is impaired or recorded.
fn is_wrapped(plan: &PortPlan) -> bool {
    plan.config.impair.is_some() || plan.config.record.is_some()
}

/// Wrappers that the configuration puts around a port.
#[derive(Default)]
struct Wrapping {
    impairment: Option<Impairment>,
    /// File of a recording, opened by control because workers may not open files for writing.
    record: Option<(PathBuf, File)>,
}

impl Wrapping {
    fn of(plan: &PortPlan) -> Result<Self, ControlError> {
        let impairment = plan.config.impair.as_ref().map(impairment);
        let wrong = |error| ControlError::invalid(format!("port {:?}: impair: {error}", plan.settings.name));
        impairment.iter().try_for_each(Impairment::check).map_err(wrong)?;
        let record = plan.config.record.clone().map(|path| match create_recording(&path) {
            Ok(file) => Ok((path, file)),
            Err(source) => Err(open_error(plan, PortError::File { path, source })),
        });
        Ok(Self { impairment, record: record.transpose()? })
    }

    fn around(self, port: Box<dyn Port>) -> Result<Box<dyn Port>, PortError> {
        let mut port = port;
        if let Some(impairment) = self.impairment {
            port = Box::new(Impair::new(port, &impairment)?);
        }
        if let Some((path, file)) = self.record {
            let writer = PcapngWriter::new(file, time_of_day());
            let writer = writer.map_err(|source| PortError::File { path, source })?;
            port = Box::new(Record::new(port, writer, RecordLimit::default()));
        }
        Ok(port)
    }
}

fn impairment(config: &ImpairConfig) -> Impairment {
    let milliseconds = |value: f64| Duration::from_secs_f64(value / 1000.0);
    Impairment {
        delay: milliseconds(config.delay_ms),
        jitter: milliseconds(config.jitter_ms),
        loss: config.loss,
        duplicate: config.duplicate,
        reorder: config.reorder,
        corrupt: config.corrupt,
        seed: config.seed,
        ..Impairment::default()
    }
}
