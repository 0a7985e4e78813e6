//! Operations that replace a plugin by another version while packets pass through it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use millrace_config::ObjectRuntime;
use millrace_pipeline::PluginCommand;
use millrace_plugin::{Inheritance, ShadowReport, Successors};
use millrace_plugin_abi::Plugin;
use millrace_telemetry::EventKind;
use millrace_units::InstanceId;
use serde_json::{Map, Value, json};

use crate::ControlError;
use crate::admission::services::place_version;
use crate::events::Events;
use crate::model::Model;
use crate::operation::kinds::{Acting, Action, Reading};
use crate::operation::{Effect, Operation};
use crate::plugins::Earlier;
use crate::plugins::load::{admit, log, note_loaded, remember, take_back};
use crate::plugins::upgrade::{Late, Succeeded, handed_on, succeed_all, warn_if_failed};
use crate::request::{NewPlugin, Upgrade};
use crate::router::instances::tell_levels;
use crate::router::{Inner, Router};
use crate::view::{ShadowView, UpgradeView};
use crate::workers::commands::connections_at_worker;

/// Time limit of a trial. The trial ends then, even if too few packets have arrived.
const TRIAL: Duration = Duration::from_secs(10);

/// Upgrades a plugin to the version in a file. Its instances keep their settings, bindings and state. No
/// packet is lost.
#[derive(Clone, Debug)]
pub struct UpgradePlugin {
    /// Name of the plugin.
    pub name: String,
    /// File of the new version, and options of the upgrade.
    pub upgrade: Upgrade,
}

impl Operation for UpgradePlugin {
    type Answer = UpgradeView;
    type Kind = Action;
    const EFFECT: Effect = Effect::Code;
    const TAKES_MEMORY: bool = true;
    const NO_INVERSE: &'static str = "the earlier version is restored by a rollback of the plugin";

    /// # Errors
    /// Returns the errors of [`LoadPlugin`](super::LoadPlugin). Also returns an error for a file of another
    /// plugin, for settings or state that the new version refuses, or for differences found in a trial. The
    /// old version keeps running then.
    async fn carry_out(self, acting: &Acting) -> Result<UpgradeView, ControlError> {
        let Self { name, upgrade } = self;
        let router = acting.router();
        let upgraded = upgrade_to_file(router, &name, &upgrade).await;
        log(&upgrade.path, upgraded.as_ref().map(|_| (name.as_str(), "as an upgrade")));
        if let Ok(view) = &upgraded {
            note_version(router.events(), EventKind::PluginUpgraded, view);
        }
        upgraded
    }
}

/// Restores the version that a plugin had before its last upgrade. Instances keep their state if the restored
/// version accepts it.
#[derive(Clone, Debug)]
pub struct RollBackPlugin {
    /// Name of the plugin.
    pub name: String,
}

impl Operation for RollBackPlugin {
    type Answer = UpgradeView;
    type Kind = Action;
    const EFFECT: Effect = Effect::Code;
    const NO_INVERSE: &'static str = "the later version is loaded from its file again";

    /// # Errors
    /// Returns an error for an unknown plugin, a plugin without an earlier version, or instances that can't
    /// be replaced.
    async fn carry_out(self, acting: &Acting) -> Result<UpgradeView, ControlError> {
        let name = self.name.as_str();
        let mut inner = acting.router().to_change()?;
        inner.model.plugins.plugin_named(name)?;
        let Some(Earlier { plugin, file }) = inner.plugins.previous.get(name).cloned() else {
            let held = inner.quarantine().of_plugin(name)?;
            return Err(ControlError::conflict(no_earlier_version(name, &held)));
        };
        let view = change_version(&mut inner, &plugin, Inheritance::Tried)?;
        inner.model.repository.rolled_back(name);
        // At the next start, too, the file is that of the earlier version, which is below the highest one by then.
        let is_other = view.from != view.to;
        if let (Some(file), Some(now)) = (file, file_of(&mut inner.model, name)) {
            *now = millrace_config::Plugin { allow_downgrade: file.allow_downgrade || is_other, ..file };
        }
        note_version(acting.events(), EventKind::PluginRolledBack, &view);
        Ok(view)
    }
}

/// Upgrades a plugin like [`UpgradePlugin`], but writes no log line and notes no event.
async fn upgrade_to_file(
    router: &Router,
    name: &str,
    upgrade: &Upgrade,
) -> Result<UpgradeView, ControlError> {
    let before = router.to_change()?.model.plugins.plugin_named(name)?;
    let runtime = {
        let inner = router.lock();
        let file = inner.model.files.iter().find(|(known, _)| *known == name);
        file.map(|(_, file)| file.runtime).unwrap_or_default()
    };
    let (path, allow_downgrade) = (upgrade.path.clone(), upgrade.allow_downgrade);
    let new = NewPlugin { path, allow_downgrade, runtime };
    let loaded = router.read_plugin(&new, Some(name)).await?;
    let admission = admit(&router.lock().model, &loaded, &new)?;
    let plugin = loaded.plugin;
    let shadow = match upgrade.shadow {
        None => None,
        Some(0) => {
            let problem = format!("plugin {name}: shadow must be 1 packet or more, not 0");
            return Err(ControlError::invalid(problem));
        }
        Some(packets) => Some(try_out(router, &plugin, packets).await?),
    };
    if let Some(report) = shadow.as_ref().filter(|report| !report.is_clean() && !upgrade.accept_differences) {
        return Err(ControlError::conflict(format!(
            "plugin {name}: the new version treats packets differently, so the old version keeps running: \
             {report}; to upgrade anyway, use --accept-differences (accept_differences)"
        )));
    }
    let inheritance = if upgrade.without_state { Inheritance::Renounced } else { Inheritance::Required };
    let mut inner = router.to_change()?;
    // Another request may have replaced the plugin while the new version was loaded and tried.
    if !Arc::ptr_eq(&before, &inner.model.plugins.plugin_named(name)?) {
        return Err(ControlError::conflict(format!(
            "plugin {name}: another request has replaced the plugin in the meantime, so this upgrade was not \
             carried out: check the running version, and try again"
        )));
    }
    let remembered = remember(&mut inner.model, &admission)?;
    let replaced = change_version(&mut inner, &plugin, inheritance);
    let mut view = match replaced {
        Ok(view) => view,
        Err(error) => {
            take_back(&mut inner.model, remembered);
            return Err(error);
        }
    };
    note_loaded(&mut inner.model, admission);
    if let Some(file) = file_of(&mut inner.model, name) {
        file.file = new.path.into();
        file.allow_downgrade |= new.allow_downgrade;
    }
    view.shadow = shadow;
    Ok(view)
}

/// Moves the instances of a plugin that is a shared object to another runtime. They keep settings, bindings and
/// state, and no packet is lost.
///
/// # Errors
/// The file can't be loaded or has changed, or the instances can't hand their state over. The plugin keeps its
/// runtime then.
pub(super) async fn move_to_runtime(
    router: &Router,
    name: &str,
    runtime: ObjectRuntime,
) -> Result<(), ControlError> {
    let (before, new) = with_runtime(&router.to_change()?.model, name, runtime)?;
    let loaded = router.read_plugin(&new, Some(name)).await?;
    check_version(&*before, &*loaded.plugin)?;
    let mut inner = router.to_change()?;
    if !Arc::ptr_eq(&before, &inner.model.plugins.plugin_named(name)?) {
        return Err(unmoved(name, "another request has replaced it in the meantime: try again"));
    }
    inner.replace(&loaded.plugin, Inheritance::Required)?;
    if let Some(file) = file_of(&mut inner.model, name) {
        file.runtime = runtime;
    }
    Ok(())
}

/// Checks that the instances of a plugin can move to another runtime, as far as its file tells. No code of the file
/// runs.
///
/// # Errors
/// The file can't be loaded or has changed.
pub(super) async fn check_runtime(
    reading: &Reading,
    name: &str,
    runtime: ObjectRuntime,
) -> Result<(), ControlError> {
    let (before, new) = with_runtime(&reading.lock().model, name, runtime)?;
    let described = reading.describe_plugin(&new, name).await?;
    check_version(&*before, &*described.plugin)
}

/// Returns a plugin, and its file for another runtime.
fn with_runtime(
    model: &Model,
    name: &str,
    runtime: ObjectRuntime,
) -> Result<(Arc<dyn Plugin>, NewPlugin), ControlError> {
    let plugin = model.plugins.plugin_named(name)?;
    let file = model.files.iter().find(|(known, _)| *known == name);
    let (_, file) = file.ok_or_else(|| unmoved(name, "it was not loaded from a file"))?;
    Ok((plugin, NewPlugin { runtime, ..NewPlugin::configured(file) }))
}

/// Refuses a file with another version than the running plugin.
fn check_version(running: &dyn Plugin, loaded: &dyn Plugin) -> Result<(), ControlError> {
    match loaded.version() == running.version() {
        true => Ok(()),
        false => Err(unmoved(running.name(), "its file has another version now: use `plugin upgrade` first")),
    }
}

/// Returns the error for a plugin that keeps its runtime.
fn unmoved(name: &str, problem: &str) -> ControlError {
    ControlError::conflict(format!("plugin {name}: {problem}"))
}

/// Returns the configured file of a plugin; `None` for a built-in plugin.
fn file_of<'a>(model: &'a mut Model, name: &str) -> Option<&'a mut millrace_config::Plugin> {
    model.files.iter_mut().find(|(known, _)| *known == name).map(|(_, file)| file)
}

/// Notes an event for a new version of a plugin.
fn note_version(events: &Events, kind: EventKind, view: &UpgradeView) {
    let UpgradeView { name, from, to, instances, lost, .. } = view;
    let text = format!("plugin {name} changed from version {from} to {to}");
    let details = json!({"plugin": name, "from": from, "to": to, "instances": instances, "lost": lost});
    events.note(kind, name, text, details);
}

/// Runs a new version as shadow of each instance, on copies of the instance's packets. Returns the sum of the
/// reports of all shadows.
///
/// # Errors
/// Returns an error if the plugin has no instances, if an instance got too few packets, or if plugin or
/// instances changed during the trial.
async fn try_out(
    router: &Router,
    plugin: &Arc<dyn Plugin>,
    packets: u64,
) -> Result<ShadowView, ControlError> {
    let name = plugin.name();
    let refused = |problem: String| ControlError::conflict(format!("plugin {name}: {problem}"));
    let tried = tried_beside(&router.lock().model, name)?;
    // A client that leaves, and a failure, end the trial, too.
    let mut trial = Trial { router, tried: Some(&tried) };
    let (reports, contexts) = begin_trial(&mut router.lock(), &tried, &**plugin, packets)?;
    if reports.is_empty() {
        return Err(refused(
            "a trial runs beside an instance, and the plugin has no instance: omit the trial".into(),
        ));
    }
    let end = Instant::now() + TRIAL;
    // A context that gets no packets sends no report.
    let mut all = vec![None; reports.len()];
    let enough = |all: &[Option<ShadowReport>]| {
        all.chunks(contexts).all(|one| {
            let seen: u64 = one.iter().flatten().map(|report| report.packets).sum();
            seen >= packets || one.iter().flatten().any(|report| report.fault.is_some())
        })
    };
    while !enough(&all) && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(10)).await;
        gather(&reports, &mut all);
    }
    let mut inner = router.lock();
    trial.tried = None;
    end_shadows(&mut inner, &tried)?;
    inner.workers.barrier()?;
    gather(&reports, &mut all);
    if !tried_beside(&inner.model, name).is_ok_and(|now| now.is(&tried)) {
        return Err(refused("the plugin or its instances changed during the trial: try again".into()));
    }
    let has_seen = enough(&all);
    let view = all.into_iter().flatten().fold(ShadowView::default(), add);
    if !has_seen && view.is_clean() {
        return Err(refused(format!(
            "the trial ended after {} s, because not every instance got {} ({} in all, {} skipped, {} \
             unanswered), and the old version keeps running: try fewer packets, or run the trial under load",
            TRIAL.as_secs(),
            millrace_units::count(packets, "packet"),
            view.packets,
            view.skipped,
            view.unanswered
        )));
    }
    Ok(view)
}

/// Returns the error text for a plugin without an earlier version. If instances are in quarantine, the text
/// explains how to release them.
fn no_earlier_version(plugin: &str, held: &[String]) -> String {
    let text = format!(
        "plugin {plugin:?}: there is no earlier version, because the plugin was not upgraded since the router started"
    );
    let Some(first) = held.first() else { return text };
    format!(
        "{text}; in quarantine: {}; `millrace instance release {first}` releases an instance, \
         `millrace plugin upgrade {plugin} FILE` replaces the version",
        held.join(", ")
    )
}

/// Channels on which the shadows send their reports.
type Reports = Vec<Receiver<Option<ShadowReport>>>;

/// Plugin and instances that a new version shadows.
struct Tried {
    plugin: Arc<dyn Plugin>,
    /// Instances with their settings.
    instances: Vec<(InstanceId, Map<String, Value>)>,
}

impl Tried {
    /// Whether plugin, instances and settings are still the same.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.plugin, &other.plugin) && self.instances == other.instances
    }
}

/// Returns a plugin, with its instances and their settings.
fn tried_beside(model: &Model, name: &str) -> Result<Tried, ControlError> {
    let plugins = &model.plugins;
    let plugin = plugins.plugin_named(name)?;
    let own = plugins.instances().into_iter().filter(|one| one.plugin == name);
    let instances = own.map(|one| Ok((plugins.instance(&one.name)?, one.settings)));
    Ok(Tried { plugin, instances: instances.collect::<Result<_, ControlError>>()? })
}

/// Trial that ends when this value is dropped.
struct Trial<'a> {
    router: &'a Router,
    /// Plugin and instances with shadows; `None` if the shadows have ended.
    tried: Option<&'a Tried>,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if let Some(tried) = self.tried {
            // A worker that is gone has no shadows.
            let _ = end_shadows(&mut self.router.lock(), tried);
        }
    }
}

/// Ends the shadows of all instances at all workers.
fn end_shadows(inner: &mut Inner, tried: &Tried) -> Result<(), ControlError> {
    let ends = tried.instances.iter().map(|(id, _)| inner.workers.tell(|| PluginCommand::EndShadows(*id)));
    ends.fold(Ok(()), Result::and)
}

/// Starts a new version as shadow of each context of each instance at each worker. Returns the channels of the reports,
/// and the number of contexts of an instance at all workers. The channels are ordered by instance and then by worker.
fn begin_trial(
    inner: &mut Inner,
    tried: &Tried,
    plugin: &dyn Plugin,
    packets: u64,
) -> Result<(Reports, usize), ControlError> {
    let (workers, contexts) = (inner.workers.len(), tried.plugin.contexts());
    let mut reports = Vec::new();
    for Successors { id, instances, .. } in inner.model.plugins.shadows(plugin, workers)? {
        for (worker, contexts) in instances.into_iter().enumerate() {
            for (number, instance) in (0..).zip(contexts) {
                let begin = |reply| PluginCommand::Shadow((id, number), instance, packets, reply);
                reports.push(inner.workers.get(worker).begin(begin)?);
            }
        }
    }
    Ok((reports, workers * usize::from(contexts)))
}

/// Stores the reports that have arrived in `all`.
fn gather(reports: &[Receiver<Option<ShadowReport>>], all: &mut [Option<ShadowReport>]) {
    for (report, place) in reports.iter().zip(all) {
        if let Ok(report) = report.try_recv() {
            *place = Some(report.unwrap_or_default());
        }
    }
}

fn add(mut sum: ShadowView, report: ShadowReport) -> ShadowView {
    sum.packets += report.packets;
    sum.different += report.different;
    sum.skipped += report.skipped;
    sum.unanswered += report.unanswered;
    sum.first = sum.first.or(report.first);
    sum.fault = sum.fault.or(report.fault);
    sum
}

/// Gives all workers the version `old` of a plugin, since a worker that didn't answer may have switched to the new one.
/// `versions` are the state versions of the old and the new one.
fn restore_version(inner: &mut Inner, old: &dyn Plugin, versions: (u32, u32)) -> Result<(), ControlError> {
    let successors = inner.model.plugins.successors(old, inner.workers.len())?;
    let maps: Vec<_> = successors.iter().map(|one| (one.id, one.maps.clone())).collect();
    let versions = (versions.1, versions.0);
    // If the worker still doesn't answer, it nevertheless gets the old version at last.
    let connections = connections_at_worker(&inner.model.fixed.connections, inner.workers.len());
    let treatment = (Inheritance::Tried, Late::CarryOut);
    if succeed_all(&mut inner.workers, successors, treatment, versions, connections).is_ok() {
        let registry = inner.model.plugins.instance_registry_mut();
        maps.into_iter().for_each(|(id, maps)| registry.note_maps(id, maps));
    }
    Ok(())
}

/// Replaces a plugin by another version whose declared costs fit: at all workers, or at none.
fn change_version(
    inner: &mut Inner,
    plugin: &Arc<dyn Plugin>,
    inheritance: Inheritance,
) -> Result<UpgradeView, ControlError> {
    let (before, has_moved) = place_version(&mut inner.model, &**plugin, inner.offload.why_no_cache())?;
    let replaced = inner.replace(plugin, inheritance);
    if replaced.is_err() {
        inner.model.placements.services = before;
        return replaced;
    }
    let told = if has_moved { tell_levels(inner) } else { inner.tell_shares() };
    warn_if_failed(&**plugin, "the levels and shares of its instances", told);
    replaced
}

/// Loads the eBPF variants of instances of the version that runs now.
fn load_variants_again(inner: &mut Inner, plugin: &dyn Plugin, instances: Vec<InstanceId>) {
    for id in instances {
        let loaded = inner.offload.load_variant(id, &inner.model, &mut inner.workers);
        warn_if_failed(plugin, "the eBPF variant of an instance", loaded);
    }
}

impl Inner {
    /// Replaces a plugin by another version or runtime: at all workers, or at none.
    fn replace(
        &mut self,
        plugin: &Arc<dyn Plugin>,
        inheritance: Inheritance,
    ) -> Result<UpgradeView, ControlError> {
        let old = self.model.plugins.plugin_named(plugin.name())?;
        let successors = self.model.plugins.successors(&**plugin, self.workers.len())?;
        let host_companions = self.model.plugins.instance_registry().host_companions(&**plugin)?;
        // No error may come after the workers have the new version, so the thread of the companions starts before.
        if host_companions.iter().any(|(_, companion)| companion.is_some()) {
            self.plugins.host_level.make_ready()?;
        }
        let mut view = UpgradeView::new(&*old, &**plugin);
        view.instances = successors.iter().map(|successors| successors.name.clone()).collect();
        let maps: Vec<_> = successors.iter().map(|one| (one.id, one.maps.clone())).collect();
        let versions = (old.state_version(), plugin.state_version());
        let unloaded =
            self.offload.unload_other_variants((&*old, &**plugin), &self.model, &mut self.workers)?;
        let connections = connections_at_worker(&self.model.fixed.connections, self.workers.len());
        let treatment = (inheritance, Late::CallOff);
        let all = match succeed_all(&mut self.workers, successors, treatment, versions, connections) {
            Ok(all) => all,
            Err(problem) => {
                if matches!(problem, ControlError::Silent(_)) {
                    restore_version(self, &*old, versions)?;
                }
                load_variants_again(self, &*old, unloaded);
                let text =
                    format!("plugin {}: {problem}; version {} keeps running", plugin.name(), old.version());
                return Err(match problem.is_failure() {
                    true => ControlError::System(text),
                    false => ControlError::conflict(text),
                });
            }
        };
        for Succeeded { name, inherited, of_flows } in &all {
            view.add(name, inherited, of_flows.as_deref());
        }
        maps.into_iter()
            .for_each(|(id, maps)| self.model.plugins.instance_registry_mut().note_maps(id, maps));
        for (id, companion) in host_companions {
            let put = self.plugins.host_level.put(id, companion, handed_on(&*old, &**plugin));
            warn_if_failed(&**plugin, "its host companion", put);
        }
        let file = file_of(&mut self.model, plugin.name()).cloned();
        let old = self.model.plugins.replace_plugin(plugin.clone())?;
        self.plugins.previous.insert(plugin.name(), Earlier { plugin: old, file });
        load_variants_again(self, &**plugin, unloaded);
        // The change may be from a sandboxed plugin to a shared object, or the reverse.
        self.supervision.tell_names(&self.model.plugins, &self.workers);
        Ok(view)
    }
}
