//! Plugin types and their instances.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use millrace_units::Instant;
use serde_json::{Map, Value};

use crate::process::ProcessWork;
use crate::{
    EbpfVariant, Features, FlowKey, MapHandle, MapShape, MemoryAccount, Output, Packets, PluginError,
    Position, StateScope, VariantMemory,
};

/// Control message to an instance: a name and arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Name of the message.
    pub name: String,
    /// Arguments by name; may be empty.
    pub arguments: Map<String, Value>,
}

/// Answer of an instance to a control message.
pub type Reply = Result<Value, PluginError>;

/// Runtime of a plugin's code, which determines what the code can access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Runtime {
    /// Code built into the router.
    #[default]
    BuiltIn,
    /// Sandboxed WebAssembly module: the code can access only its own memory and the functions given to it.
    Contained,
    /// Trusted shared object: the code can access everything that the router can, and can't be interrupted.
    Trusted,
    /// Shared object in a process of its own: the code can access only its own memory and the functions given
    /// to it.
    Process,
    /// Executable in a process of its own, which can access as much.
    Executable,
}

impl Runtime {
    /// Returns a description of the runtime.
    pub const fn text(self) -> &'static str {
        match self {
            Self::BuiltIn => "built in",
            Self::Contained => "sandboxed: a WebAssembly module",
            Self::Trusted => "trusted: a shared object, not sandboxed",
            Self::Process => "confined: a shared object in a process of its own",
            Self::Executable => "confined: an executable in a process of its own",
        }
    }

    /// Whether each instance at each worker has a process of its own.
    pub const fn has_processes(self) -> bool {
        matches!(self, Self::Process | Self::Executable)
    }
}

/// Cycles that a plugin declares for its calls on a kind of processor.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DeclaredCycles {
    /// Cycles per second, without packets.
    pub fixed: f64,
    /// Cycles per call, whatever its number of packets.
    pub call: f64,
    /// Cycles per packet, on average.
    pub packet: f64,
    /// Cycles per byte.
    pub byte: f64,
}

/// Needs of an instance beside cycles, as its plugin declares them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeclaredNeeds {
    /// Memory in bytes.
    pub memory: f64,
    /// Packets that leave for each packet that arrives.
    pub output: f64,
}

impl Default for DeclaredNeeds {
    fn default() -> Self {
        Self { memory: 0.0, output: 1.0 }
    }
}

/// Plugin type.
pub trait Plugin: Send + Sync {
    /// Returns the plugin's name, by which users create instances.
    fn name(&self) -> &'static str;

    /// Returns the runtime of the plugin's code.
    fn runtime(&self) -> Runtime {
        Runtime::BuiltIn
    }

    /// Returns the version, `major.minor.patch`.
    fn version(&self) -> &'static str;

    /// Returns a one-line summary.
    fn summary(&self) -> &'static str;

    /// Returns the positions whose gates accept the plugin's instances.
    fn positions(&self) -> &[Position];

    /// Returns the control messages of the plugin's instances, each with a line about its effect and
    /// arguments.
    fn messages(&self) -> &[(&'static str, &'static str)];

    /// Returns the JSON Schema of the settings; `None` if the plugin checks them itself. The router validates
    /// settings against the schema before it creates an instance. A setting with the `format` `port` or
    /// `instance` names a port or an instance, and arrives as its number.
    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        None
    }

    /// Returns the manual page; `None` if there is none (see [`manual_of`](crate::manual_of)).
    fn manual(&self) -> Option<String> {
        None
    }

    /// Returns the features of the plugin interface that the plugin requires. A router that lacks one of them
    /// refuses the plugin.
    fn features(&self) -> Features {
        Features::NONE
    }

    /// Returns the capabilities that the plugin requests, by their names in manifests. A built-in plugin
    /// needs none.
    fn capabilities(&self) -> &[&'static str] {
        &[]
    }

    /// Returns the names of the plugin's counters. The router adds up their counts over all workers.
    fn counters(&self) -> &[&'static str] {
        &[]
    }

    /// Returns the maps that the plugin's instances own and write, in the order of their numbers.
    fn maps(&self) -> &[MapShape] {
        &[]
    }

    /// Returns the number of contexts of an instance at each worker: 1 or more. Each context is a copy of the
    /// instance with a call of its own. The router creates them one by one by [`create`](Self::create).
    fn contexts(&self) -> u8 {
        1
    }

    /// Returns the cycles that the plugin declares for calls on a kind of processor, such as `worker` or `process`;
    /// `None` if it declares none.
    fn declared_cycles(&self, _kind: &str) -> Option<DeclaredCycles> {
        None
    }

    /// Returns what the plugin declares for an instance beside cycles.
    fn declared_needs(&self) -> DeclaredNeeds {
        DeclaredNeeds::default()
    }

    /// Returns the cycles that an instance with these settings needs at most for a packet; `None` if the plugin states
    /// no bound. A built-in plugin with a small bound runs in line: its packets don't wait for the processor.
    fn packet_budget(&self, _settings: &Map<String, Value>) -> Option<u32> {
        None
    }

    /// Returns the plugin's host companion, if it has one. Each instance of this plugin then has an instance
    /// of the host companion at the host level, and exchanges messages with it.
    fn host_companion(&self) -> Option<&dyn Plugin> {
        None
    }

    /// Returns the eBPF variant of the plugin; `None` if it has none.
    fn ebpf_variant(&self) -> Option<EbpfVariant> {
        None
    }

    /// Creates an instance with `settings`; settings that are missing have their defaults.
    ///
    /// # Errors
    /// [`PluginError::Setting`] for a setting that is unknown, of a wrong type or out of range.
    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError>;

    /// Returns the version of the [saved](Instance::save) state and of the flow states.
    fn state_version(&self) -> u32 {
        0
    }

    /// Merges the replies of an instance at several workers to `message` into one answer. `replies` are in
    /// the order of the workers, and those of a worker in the order of its contexts. By default, adds numbers and takes everything else from the first reply (see
    /// [`merged`]).
    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        replies.into_iter().reduce(merged).unwrap_or(Value::Null)
    }
}

/// Merges two answers. Adds numbers. Merges objects key by key, and keeps keys that only one of them has.
/// Merges lists of objects element by element if their lengths are equal. Takes anything else from `first`.
pub fn merged(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Number(a), Value::Number(b)) => match (a.as_u64(), b.as_u64(), a.as_f64(), b.as_f64()) {
            (Some(a), Some(b), ..) => a.saturating_add(b).into(),
            (_, _, Some(x), Some(y)) => (x + y).into(),
            _ => Value::Number(a),
        },
        (Value::Object(mut a), Value::Object(b)) => {
            for (key, value) in b {
                let sum = match a.remove(&key) {
                    Some(own) => merged(own, value),
                    None => value,
                };
                a.insert(key, sum);
            }
            Value::Object(a)
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() && a.iter().all(Value::is_object) => {
            Value::Array(a.into_iter().zip(b).map(|(a, b)| merged(a, b)).collect())
        }
        (first, _) => first,
    }
}

/// Flow that has ended for an instance: it was idle for too long, displaced by other flows, or is no longer
/// bound to the instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEnd {
    /// Six-tuple of the flow.
    pub key: FlowKey,
    /// Number of the flow's packets since the router has had a record of the flow.
    pub packets: u64,
    /// Bytes of `packets`, link headers included.
    pub bytes: u64,
}

/// Fault of an instance during a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Kind of the fault, for counters: `unreachable`, `stack overflow`, `wrong verdict`, …
    pub kind: &'static str,
    /// Description of the fault, as a sentence.
    pub text: String,
}

/// Progress of a call of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// The call is complete, and the verdicts are written.
    #[default]
    Done,
    /// The call's slice is over. The router stores the packets, and continues the call by
    /// [`Instance::resume`] in a later iteration.
    Suspended,
    /// Another process runs the call. The router stores the packets, and asks for the result by
    /// [`Instance::resume`] in each iteration.
    Awaited,
}

/// Configured instance of a plugin. A worker owns the instance, and two threads never call it at the same
/// time.
pub trait Instance: Send {
    /// Processes packets of the flows that the instance is bound to. Must not allocate, lock or wait.
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress;

    /// Returns whether the instance ever reads packets or flow keys, or returns a verdict other than pass. If
    /// no instance on a path does, the router skips building flow keys for it. The router asks once, when the
    /// instance is added.
    fn looks_at_packets(&self) -> bool {
        true
    }

    /// Returns whether the instance ever changes bytes or length of packets. If so, the router checks the
    /// headers of each packet that the instance lets continue. The router asks once, when the instance is
    /// added.
    fn writes_packets(&self) -> bool {
        true
    }

    /// Returns whether the instance reads or writes bytes behind the headers in place, and not by
    /// [`Packet::read`](millrace_packet::Packet::read). If so, the router copies these bytes of a packet that
    /// another worker has lent. The router asks once, when the instance is added.
    fn needs_linear_packets(&self) -> bool {
        false
    }

    /// Returns the processor time that the process of the instance has consumed so far; `None` if it is unknown. This
    /// takes a system call.
    fn consumed(&self) -> Option<Duration> {
        None
    }

    /// Returns the work of the processes of the instance so far. This takes a system call.
    fn process_work(&self) -> ProcessWork {
        ProcessWork::default()
    }

    /// Returns how many times longer than usual a call may wait for another process: 1 or more. It is above 1
    /// while that process starts, and if the system limits its processor time.
    fn patience(&self) -> u32 {
        1
    }

    /// Returns the number of requests that another process has carried out. A call may consist of several, such as ends
    /// of flows before the packets. The time limit of the call begins anew with each.
    fn answers(&self) -> u64 {
        0
    }

    /// Returns whether another process runs the calls, so that they end as [`Progress::Awaited`] at first. The
    /// router asks once, when the instance is added.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Continues a suspended call. `packets` holds the same packets as before, in the same order.
    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    /// Aborts a suspended call. The call limits of the instance decide about the packets of the call.
    fn abort(&mut self) {}

    /// Removes and returns the fault of the finished call; `None` if the call did not fail. After a fault,
    /// the instance is unusable until [`restart`](Self::restart).
    fn take_fault(&mut self) -> Option<Fault> {
        None
    }

    /// Returns the cycles that a call takes at most, as the plugin declares them: `packet` is the maximum, not the
    /// average. `None` if the plugin declares no maximum.
    fn worst_case(&self) -> Option<DeclaredCycles> {
        None
    }

    /// Returns the number of calls that the router cut because it had misjudged them as short. Such a call is no
    /// fault: the instance has started again already, without its earlier state.
    fn misjudged(&self) -> u64 {
        0
    }

    /// Returns the counts since the instance's creation, each with the name of the counter.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Restarts the instance after a fault, with the same settings and without its earlier state.
    fn restart(&mut self) -> Result<(), PluginError> {
        Ok(())
    }

    /// Handles a control message.
    ///
    /// # Errors
    /// [`PluginError`] for an unknown message or a wrong argument. In this case the message must have changed
    /// nothing.
    fn control(&mut self, message: &Message) -> Reply;

    /// Starts to handle a control message. Returns `None` if the slice is over before the answer is ready.
    /// The router then continues the call by [`resume`](Self::resume) with an empty batch, and gets the
    /// answer by [`take_reply`](Self::take_reply).
    fn begin_control(&mut self, message: &Message) -> Option<Reply> {
        Some(self.control(message))
    }

    /// Returns the answer to a suspended control message once it is handled; `None` before that.
    fn take_reply(&mut self) -> Option<Reply> {
        None
    }

    /// Returns the time of the next call of [`periodic`](Self::periodic); `None` if none is due.
    fn next_call(&self) -> Option<Instant> {
        None
    }

    /// Returns whether [`next_call`](Self::next_call) ever returns a time. The router asks once, when the
    /// instance is added.
    fn has_timers(&self) -> bool {
        false
    }

    /// Runs the periodic work. If the slice is over before the work is done, the router continues the call by
    /// [`resume`](Self::resume) with an empty batch.
    fn periodic(&mut self, _now: Instant) -> Progress {
        Progress::Done
    }

    /// Handles a message: an instance at a worker gets it from its host companion, a host companion from its
    /// instances. [`Progress::Suspended`] has the same effect as for [`periodic`](Self::periodic).
    fn message(&mut self, _bytes: &[u8]) -> Progress {
        Progress::Done
    }

    /// Removes and returns the oldest output other than verdicts; `None` if none is left. The router calls
    /// this after each call if [`has_output`](Self::has_output) is `true`.
    fn take_output(&mut self) -> Option<Output> {
        None
    }

    /// Returns whether [`take_output`](Self::take_output) ever returns an output. The router asks once, when
    /// the instance is added.
    fn has_output(&self) -> bool {
        false
    }

    /// Returns the size in bytes of the flow state that the router keeps for each bound flow (see
    /// [`Packets::state_mut`]). The router asks once, when the instance is added.
    fn flow_state(&self) -> usize {
        0
    }

    /// Returns whether each flow has a state of its own, or both directions of a connection share one. The router asks
    /// once, when the instance is added.
    fn state_scope(&self) -> StateScope {
        StateScope::Flow
    }

    /// Returns the service state (common to all flows) after the last completed call, with the size that the
    /// plugin declares; empty if it declares none. The router keeps this state across a restart and hands it
    /// to a successor.
    fn service_state(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes over the service state of another instance, which has the same size. Called before
    /// [`restore`](Self::restore).
    fn adopt_service_state(&mut self, _state: &[u8]) {}

    /// Attaches shared maps: first the maps that the plugin declares, then the maps of other instances that
    /// its settings name. Their order is that of the map numbers. During its creation, an instance has no
    /// maps yet.
    fn attach_maps(&mut self, _maps: Vec<MapHandle>) {}

    /// Returns the bytes of the instance's memory, if the router limits them; otherwise 0.
    fn memory(&self) -> u64 {
        0
    }

    /// Lets the memory of the instance count in the account of the principal that pays for it, or in none. The
    /// memory may only grow as far as the account has room.
    fn set_memory_account(&mut self, _account: Option<Arc<MemoryAccount>>) {}

    /// Attaches the memory shared with the instance's eBPF variant, through which the instance sets the
    /// variant's settings. If the instance takes over state, called after [`restore`](Self::restore).
    fn attach_ebpf_variant(&mut self, _memory: Arc<dyn VariantMemory>) {}

    /// Saves the state, for a successor of another version of the plugin. Returns `None` if there is no
    /// state, or the plugin can't save it.
    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Ok(None)
    }

    /// Restores state that an instance saved under state version `version` (see
    /// [`state_version`](Plugin::state_version)).
    ///
    /// # Errors
    /// [`PluginError`] if the state can't be restored; the instance is then unusable until a restart.
    fn restore(&mut self, _state: &[u8], version: u32) -> Result<(), PluginError> {
        let text = format!("can't restore state of version {version}: the plugin takes over no state");
        Err(PluginError::Refused(text))
    }

    /// Begins to save the state as [`save`](Self::save) does, or continues. Must not wait: another process may save the
    /// state. The router asks again until the result is ready, and makes no other call meanwhile, except
    /// [`abort`](Self::abort).
    fn poll_save(&mut self) -> Poll<Result<Option<Vec<u8>>, PluginError>> {
        Poll::Ready(self.save())
    }

    /// Begins to restore a state as [`restore`](Self::restore) does, or continues, in the manner of
    /// [`poll_save`](Self::poll_save).
    fn poll_restore(&mut self, state: &[u8], version: u32) -> Poll<Result<(), PluginError>> {
        Poll::Ready(self.restore(state, version))
    }

    /// Notifies the instance that a bound flow has ended, once for each record of the flow; or that a connection has
    /// ended, if the state belongs to connections. `flow` then describes the direction of the connection's first packet,
    /// and counts the packets of both directions that the instance got. `state` is the
    /// flow state; empty if there was none. [`Progress::Suspended`] has the same effect as for
    /// [`periodic`](Self::periodic). A busy instance may be notified later.
    fn flow_ended(&mut self, _flow: &FlowEnd, _state: &[u8]) -> Progress {
        Progress::Done
    }

    /// Returns whether the router has to call [`flow_ended`](Self::flow_ended). New flows cost less if no
    /// instance needs this. The router asks once, when the instance is added.
    fn hears_flow_ends(&self) -> bool {
        true
    }
}
