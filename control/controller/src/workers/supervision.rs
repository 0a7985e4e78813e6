//! Supervision of the workers: their threads, panics and hanging calls.

use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use millrace_plugin_abi::Runtime;

use super::Workers;
use super::death::Death;
use super::watchdog::{Names, Watchdog};
use super::worker_panic::WorkerPanic;
use crate::model::Plugins;

pub(crate) struct Supervision {
    pub threads: Vec<JoinHandle<()>>,
    /// Receiver of worker panics, of which control writes captures.
    pub panics: Receiver<WorkerPanic>,
    /// Treatment of packets after the router has died.
    pub death: Death,
    /// Names of instances, which the watchdog reads.
    pub names: Names,
    /// Watchdog of instances' calls; `None` if it is off.
    pub watchdog: Option<Watchdog>,
}

impl Supervision {
    /// Creates the supervision of worker threads, without a watchdog.
    pub fn new(threads: Vec<JoinHandle<()>>, panics: Receiver<WorkerPanic>, death: Death) -> Self {
        Self { threads, panics, death, names: Names::default(), watchdog: None }
    }

    /// Sends the names of instances to the watchdog and to the crash handler.
    pub fn tell_names(&self, plugins: &Plugins, workers: &Workers) {
        self.names.set(plugins.instance_names());
        let is_trusted = |plugin: &str| {
            plugins.plugin_named(plugin).is_ok_and(|plugin| plugin.runtime() == Runtime::Trusted)
        };
        let can_crash = plugins.instance_names().filter(|(_, _, plugin)| is_trusted(plugin));
        crate::workers::crash::tell(workers.watched(), can_crash);
    }
}
