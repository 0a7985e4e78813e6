//! Starts a router: takes a configuration, and returns a router that forwards.

mod workers;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use millrace_config::{Config, Forwarding, PollMode};
use millrace_host::policy::{self, Ours, PolicyFinding, PolicyKind};
use millrace_host::{Actions, HostChange, HostLink, HostState, Mirror, MirrorOptions, SwitchUse};
use millrace_offload::own_program_ids;
use millrace_pipeline::thread::Wake;
use millrace_pipeline::{GateTables, PortCommand};
use millrace_repository::{Held, Memory};
use millrace_store::{Draft, State, Store, Who};
use millrace_wire::MacAddr;
use tokio::sync::Notify;

use crate::access::tokens::Tokens;
use crate::admission::services::loads::Loads;
use crate::filters::check::never_winning;
use crate::flows::flow_cache::make_cache;
use crate::flows::offload::Offload;
use crate::flows::placement::tell_placements;
use crate::follow::kernel_path::{set_host_path, set_witness};
use crate::follow::kernel_queueing::store_queueing;
use crate::kernel::{Changes, Kernel};
use crate::model::{Model, PortPlan};
use crate::observe::Observation;
use crate::observe::counters::Counters;
use crate::overrides::Overrides;
use crate::planning::state_directory;
use crate::plugins::Plugins;
use crate::plugins::host_level::HostLevel;
use crate::plugins::loader::Loader;
use crate::ports::claim::Claim;
use crate::ports::device::{AttachedDevice, OwnDevice, mtu_of};
use crate::ports::device_drops_now;
use crate::ports::devices::Devices;
use crate::ports::kernel_settings::{complete, warn_of_forwarding};
use crate::principals::Principals;
use crate::router::{Inner, Router, Shared};
use crate::routes::Routes;
use crate::schedulers::queueing::Queueing;
use crate::schedulers::schedule;
use crate::schedulers::view::say_beyond_link;
use crate::settings::{Base, Settings, Started};
use crate::view::ShadowedView;
use crate::workers::commands::{own_routes, start_commands};
use crate::workers::death::Death;
use crate::workers::route_table::RouteTable;
use crate::workers::supervision::Supervision;
use crate::workers::watchdog::{Watch, Watchdog};
use crate::{ControlError, admission};
use workers::start_workers;

/// Options of a start that are not in the configuration.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    /// Whether to start even if the router bypasses policies that the kernel has for the ports.
    pub ignore_kernel_policy: bool,
    /// Function that ends the process at once, without running further code of the process. The watchdog
    /// thread calls it when an instance's call does not return. If the function is `None`, there is no
    /// watchdog and no crash handler.
    pub end: Option<fn()>,
    /// Command-line options that override the configuration.
    pub overrides: Overrides,
    /// Text and origin of the configuration; `None` if the configuration has no text.
    pub source: Option<Source>,
    /// Name of the router in the revision store: the path of the router's socket.
    pub router: Option<String>,
}

/// Text of a configuration, and its origin.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name of the file or of the revision.
    pub origin: String,
    /// Text of the configuration.
    pub text: String,
}

/// Returns the revision store of a router that has this configuration.
pub fn revisions(config: &Config, router: Option<String>) -> Store {
    Store::open(state_directory(config).as_deref()).of(router)
}

/// Starts a router. When this returns, the router forwards.
///
/// # Errors
/// Returns the reason of the failure in one sentence. All completed steps of the start are undone then.
pub async fn start(mut config: Config, options: StartOptions) -> Result<Router, ControlError> {
    let base = Base::started(first_revision(&config, options.source)?);
    options.overrides.put_into(&mut config);
    let state = state_directory(&config);
    let mut memory = Memory::open(state.as_deref());
    if options.end.is_some() {
        remember_crashes(&mut memory, state.as_deref())?;
    }
    memory.damages().for_each(|damage| tracing::error!("{damage}"));
    admission::check(&config)?;
    let loader = Loader::new(&config).with_processes();
    let mut model = Model::remembering(&config, memory, &loader)?;
    let ignores_policy = options.ignore_kernel_policy || config.router.ignore_kernel_policy;
    let mirrored = match model.ports.iter().any(PortPlan::is_kernel) {
        true => Some(claim_devices(&mut model, ignores_policy).await?),
        false => None,
    };
    let control_wake =
        Wake::new().map_err(|error| ControlError::system("make an event descriptor", error))?;
    let (overrides, store) = (options.overrides, Store::open(state.as_deref()).of(options.router));
    let mut inner = begun(&config, model, loader.clone(), &control_wake, (base, overrides, store))?;
    let audit = crate::observe::audit::open(state.as_deref(), &config.api, &inner.observation.events)?;
    let tokens = Tokens::open(state.as_deref());
    tokens.damage().into_iter().for_each(|damage| tracing::error!("{damage}"));
    inner.supervision.tell_names(&inner.model.plugins, &inner.workers);
    let watch = |end| Watch {
        workers: inner.workers.watched(),
        limit: config.plugins.watchdog.duration(),
        names: inner.supervision.names.clone(),
        state,
        end,
    };
    let watch = options.end.map(watch).filter(|watch| !watch.limit.is_zero());
    let result = watch.map(Watchdog::start).transpose().and_then(|watchdog| {
        inner.supervision.watchdog = watchdog;
        bring_up(&mut inner, mirrored)
    });
    let events = inner.observation.events.clone();
    let (inner, memory_guard) = (Mutex::new(inner), OnceLock::new());
    let (stop, requested, turn) = (Notify::new(), Notify::new(), Default::default());
    let shared = Shared { inner, turn, stop, requested, control_wake, events, audit, tokens, memory_guard };
    let router = Router(Arc::new(shared));
    match result {
        Ok(()) => {
            router.lock().note_start();
            router.receive_code(&loader);
            Ok(router)
        }
        Err(error) => {
            // The caller gets the reason why the start failed. A failure of this shutdown is ignored.
            let _ = router.shutdown().await;
            Err(error)
        }
    }
}

/// Starts the mirror of the kernel, claims the devices, and completes the settings of the model's ports.
async fn claim_devices(
    model: &mut Model,
    ignores_policy: bool,
) -> Result<(Vec<Claimed>, Mirrored), ControlError> {
    let (mirror, mut changes) = start_mirror().await?;
    let first = changes.recv().await.unwrap_or_default();
    let links = claim_links(kernel_links(model, &mirror.state())?)?;
    let devices: Vec<u32> = links.iter().map(|claimed| claimed.link.ifindex).collect();
    check_policy(&devices, ignores_policy, model.router.forwarding)?;
    complete(model, &mirror.state());
    model.ports.iter().for_each(|plan| warn_of_forwarding(&plan.settings));
    Ok((links, (mirror, changes, first)))
}

/// Returns the state of a router before any device is opened. The workers run without a configuration.
fn begun(
    config: &Config,
    model: Model,
    loader: Loader,
    control_wake: &Wake,
    started: Started,
) -> Result<Inner, ControlError> {
    let route_table = RouteTable::new()?;
    let (workers, threads, panics) = start_workers(config, &route_table, control_wake)?;
    loader.place_clock();
    let (router, has_kernel) = (&config.router, model.ports.iter().any(PortPlan::is_kernel));
    let death = Death::of(config, &model);
    let settings = Settings::new(mode_name(router.mode), state_directory(config), started);
    let flow_cache = make_cache(has_kernel, router.offloaded_flows, router.workers);
    Ok(Inner {
        tables: GateTables::default(),
        supervision: Supervision::new(threads, panics, death),
        devices: Devices::default(),
        kernel: Kernel::default(),
        routes: Routes::new(route_table),
        offload: Offload::new(flow_cache),
        plugins: Plugins::new(loader, HostLevel::new(control_wake.clone(), model.options.instances)),
        queueing: Queueing::default(),
        settings,
        observation: Observation::default(),
        counters: Counters::default(),
        principals: Principals::of(workers.len()),
        model,
        workers,
        loads: Loads::default(),
    })
}

/// Returns the configuration of the start as a revision draft.
fn first_revision(config: &Config, source: Option<Source>) -> Result<Draft, ControlError> {
    let Source { origin, text } = match source {
        Some(source) => source,
        None => Source { origin: "start".into(), text: config.clone().normalized().to_text()? },
    };
    let comment = Some("start configuration".to_owned());
    Ok(Draft { who: Who::router(), comment, origin, state: State::Good, changes: 0, text })
}

/// Puts the instances whose calls crashed an earlier run into quarantine, and installs the crash handler for
/// this run.
fn remember_crashes(memory: &mut Memory, state: Option<&Path>) -> Result<(), ControlError> {
    if let Some(directory) = state {
        match memory.quarantine.take_crashes(directory) {
            Ok(found) => {
                for Held { instance, plugin, .. } in &found.held {
                    tracing::error!(instance, plugin, "a call of the instance crashed in the last run");
                }
                if found.unreadable > 0 {
                    tracing::warn!(lines = found.unreadable, "lines of the crash records can't be read");
                }
            }
            Err(problem) => tracing::error!("the crash records are ignored: {problem}"),
        }
    }
    crate::workers::crash::watch(state)
}

/// Returns the errors in the rest of a configuration whose invalid entries were left out. Callers pass this
/// function to [`Config::parse_further`](millrace_config::Config::parse_further).
pub fn check_rest(rest: &Config) -> Option<millrace_config::ConfigErrors> {
    Model::wrong_with_rest(rest, &Loader::new(rest).planning())
}

/// Checks a configuration, as far as possible on a machine other than the router's. Returns the filters and
/// bindings that never win.
pub fn check(config: &Config) -> Result<Vec<ShadowedView>, ControlError> {
    let model = Model::planned(config)?;
    admission::check_elsewhere(config)?;
    Ok(never_winning(&model))
}

/// Mirror of the kernel, the receiver of its changes, and the first batch of changes: the whole state of the
/// kernel.
type Mirrored = (Mirror, Changes, Vec<HostChange>);

/// Kernel device claimed by this router, so that no other router can use it.
struct Claimed {
    plan: PortPlan,
    link: HostLink,
    claim: Claim,
}

fn claim_links(links: Vec<(PortPlan, HostLink)>) -> Result<Vec<Claimed>, ControlError> {
    let claim = |(plan, link): (PortPlan, HostLink)| {
        let claim = Claim::take(link.ifindex, &link.name)?;
        Ok(Claimed { plan, link, claim })
    };
    links.into_iter().map(claim).collect()
}

pub(crate) async fn start_mirror() -> Result<(Mirror, Changes), ControlError> {
    let started = Mirror::start(MirrorOptions::default()).await;
    started.map_err(|error| ControlError::system("mirror the kernel's tables", error))
}

fn bring_up(inner: &mut Inner, mirrored: Option<(Vec<Claimed>, Mirrored)>) -> Result<(), ControlError> {
    inner.principals.follow(&inner.model.principals, &inner.model.router)?;
    inner.principals.place_threads(&inner.workers, inner.model.router.worker_policy);
    let (links, mirrored) = mirrored.unzip();
    open_kernel_devices(inner, links.unwrap_or_default())?;
    // The queueing disciplines cause no events here, because the check of kernel policies has reported them
    // already.
    store_queueing(&mut inner.devices);
    inner.counters.device_drops_before = device_drops_now(&inner.model);
    set_host_path(&mut inner.devices, &mut inner.workers)?;
    set_witness(&mut inner.devices)?;
    inner.offload.begin(&mut inner.devices, &inner.model, &mut inner.workers)?;
    if !inner.model.placements.pinned.is_empty() {
        tell_placements(&inner.model, &mut inner.offload, &mut inner.workers)?;
    }
    let own = OwnDevice::prepare(&mut inner.model.ports)?;
    for plan in inner.model.ports.clone() {
        inner.workers.tell(|| PortCommand::Set(plan.id, plan.settings.clone()))?;
    }
    inner.tell_shares()?;
    for commands in start_commands(&inner.model, &mut inner.tables, inner.workers.len())? {
        inner.workers.tell_each(commands)?;
    }
    inner.offload.load_variants(&inner.model, &mut inner.workers)?;
    inner.plugins.begin_host_companions(&inner.model)?;
    for (port, changes) in inner.model.begin_schedulers()? {
        schedule(port, changes, &mut inner.devices, &inner.model, &mut inner.workers)?;
    }
    inner.routes.table.change(own_routes(&inner.model), &mut inner.workers)?;
    match mirrored {
        Some(mirrored) => take_over(inner, mirrored, own),
        None => OwnDevice::give_all(own, &mut inner.devices.capabilities, &mut inner.workers),
    }
}

/// Attaches the programs of kernel devices, then opens the devices at the workers. No packet arrives before
/// [`take_over`].
fn open_kernel_devices(inner: &mut Inner, links: Vec<Claimed>) -> Result<(), ControlError> {
    let segment_mtu = links.iter().map(|claimed| mtu_of(&claimed.link)).min().unwrap_or(1500);
    let mut attached = Vec::new();
    for Claimed { plan, link, claim } in links {
        let options = inner.kernel_options(plan.id, segment_mtu);
        let device = AttachedDevice::attach(&plan, &link, claim, options, inner.offload.cache())?;
        attached.push((plan, device));
    }
    for (plan, device) in attached {
        let (device, capabilities) = device.open(&mut inner.workers)?;
        if !capabilities.why.is_empty() {
            tracing::info!(port = %plan.settings.name, driver = capabilities.driver, mode = %capabilities.mode, "{}", capabilities.why);
        }
        device.warn_of_tags(&plan, &inner.model.ports);
        inner.devices.capabilities.insert(plan.settings.device, capabilities);
        inner.devices.kernel.insert(plan.id, device);
    }
    Ok(())
}

/// Sends the kernel's state to the workers, then lets packets arrive from all devices.
fn take_over(
    inner: &mut Inner,
    (mirror, changes, first): Mirrored,
    own: Vec<OwnDevice>,
) -> Result<(), ControlError> {
    inner.kernel.mirror = Some(mirror);
    inner.kernel.changes = Some(changes);
    inner.kernel.actions =
        Some(Actions::open().map_err(|error| ControlError::system("open a netlink socket", error))?);
    inner.configured_routes().begin()?;
    inner.observation.know_neighbours(&inner.devices.by_index(), &first);
    inner.apply(first)?;
    inner.devices.refresh_programs(&inner.model, &inner.kernel)?;
    // The answer to this question shows that all earlier commands were carried out.
    inner.seen().snapshot()?;
    OwnDevice::give_all(own, &mut inner.devices.capabilities, &mut inner.workers)?;
    let own: HashMap<_, _> = inner.model.ports.iter().map(|plan| (plan.id, plan.settings.mac)).collect();
    for (port, device) in &mut inner.devices.kernel {
        device.take_over(own.get(port).copied().unwrap_or(MacAddr::ZERO))?;
    }
    let ports: Vec<_> = inner.devices.kernel.keys().copied().collect();
    for port in ports {
        say_beyond_link(port, &inner.model, &inner.devices, &inner.kernel);
    }
    let queues = inner.principals.queues_of_packets(&inner.model);
    inner.devices.set_host_outputs(&inner.model, &queues, &mut inner.workers)
}

/// Returns the kernel ports, each with its device.
pub(crate) fn kernel_links(
    model: &Model,
    state: &HostState,
) -> Result<Vec<(PortPlan, HostLink)>, ControlError> {
    let mut links = Vec::new();
    for plan in model.ports.iter().filter(|plan| plan.is_kernel()) {
        let device = plan.config.device.as_deref().unwrap_or_default();
        let known = state.links().map(|link| link.name.as_str());
        let link = state
            .link_by_name(device)
            .ok_or_else(|| ControlError::unknown("network device", device, known))?;
        if link.loopback || link.mac.is_none() {
            return Err(ControlError::invalid(format!(
                "device {device:?} is not an Ethernet device: a port needs one"
            )));
        }
        if !link.admin_up {
            return Err(ControlError::conflict(format!(
                "device {device:?} is down: set it up with `ip link set {device} up`"
            )));
        }
        links.push((plan.clone(), link.clone()));
    }
    Ok(links)
}

/// Whether the router refuses to start because of a kernel policy that it bypasses.
pub(crate) fn is_serious(finding: &PolicyFinding) -> bool {
    !matches!(finding.kind, PolicyKind::Forwarding | PolicyKind::ReversePath | PolicyKind::MulticastRouting)
}

pub(crate) fn findings(devices: &[u32], forwarding: Forwarding) -> Result<Vec<PolicyFinding>, ControlError> {
    let switches = match forwarding {
        Forwarding::On => SwitchUse::Ignored,
        Forwarding::Kernel => SwitchUse::Followed,
    };
    // The devices are claimed by now, so no running router uses them. If they have programs of Millrace, a
    // dead router left these programs.
    policy::inspect(devices, &Ours { programs: own_program_ids(), switches })
        .map_err(|error| ControlError::system("ask the kernel for its policies", error))
}

fn check_policy(devices: &[u32], ignore: bool, forwarding: Forwarding) -> Result<(), ControlError> {
    let findings = findings(devices, forwarding)?;
    let (serious, others): (Vec<_>, Vec<_>) = findings.iter().partition(|finding| is_serious(finding));
    others.iter().for_each(|finding| tracing::warn!("{finding}"));
    if serious.is_empty() {
        return Ok(());
    }
    if ignore {
        for finding in serious {
            tracing::warn!("bypassed because of --ignore-kernel-policy: {finding}");
        }
        return Ok(());
    }
    let named: Vec<String> = serious.iter().map(ToString::to_string).collect();
    Err(ControlError::conflict(format!(
        "the kernel has policies for these ports' packets, which the router would bypass: {}; remove the policies, or use \
         --ignore-kernel-policy",
        named.join("; ")
    )))
}

fn mode_name(mode: PollMode) -> &'static str {
    match mode {
        PollMode::Poll => "poll",
        PollMode::Interrupt => "interrupt",
        PollMode::Adaptive => "adaptive",
    }
}
