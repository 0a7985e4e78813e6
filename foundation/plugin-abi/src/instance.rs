//! Plugin types and their instances.

use std::sync::Arc;

use millrace_units::Instant;
use serde_json::{Map, Value};

use crate::{
    EbpfVariant, Features, FlowKey, MapHandle, MapShape, Output, Packets, PluginError, Position,
    VariantMemory,
};

/// Control message: a name and arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Name of the message.
    pub name: String,
    /// Arguments by name; may be empty.
    pub arguments: Map<String, Value>,
}

/// Answer of an instance to a control message.
pub type Reply = Result<Value, PluginError>;

/// Runtime of a plugin's code, which determines its access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Runtime {
    /// Code built into the router.
    #[default]
    BuiltIn,
    /// WebAssembly module: the code accesses only the memory and functions that it was given.
    Contained,
    /// Shared object: the code accesses everything that the router accesses, and can't be interrupted.
    Trusted,
}

impl Runtime {
    /// Describes the runtime in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::BuiltIn => "built in",
            Self::Contained => "sandboxed: a WebAssembly module",
            Self::Trusted => "trusted: a shared object, not sandboxed",
        }
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

    /// Returns the control messages of the plugin's instances, each with a line about effect and arguments.
    fn messages(&self) -> &[(&'static str, &'static str)];

    /// Returns the JSON Schema of the settings, if any. The router validates settings against it before it
    /// creates an instance. A setting with the `format` `port` or `instance` names a port or an instance, and
    /// arrives as its number.
    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        None
    }

    /// Returns the manual page, if any: see [`manual_of`](crate::manual_of).
    fn manual(&self) -> Option<String> {
        None
    }

    /// Returns the required interface features. A router that lacks a feature refuses the plugin.
    fn features(&self) -> Features {
        Features::NONE
    }

    /// Returns the requested capabilities, by their names in manifests. A built-in plugin needs none.
    fn capabilities(&self) -> &[&'static str] {
        &[]
    }

    /// Returns the names of the plugin's counters, which the router adds up.
    fn counters(&self) -> &[&'static str] {
        &[]
    }

    /// Returns the maps that the plugin's instances own and write, in the order of their numbers.
    fn maps(&self) -> &[MapShape] {
        &[]
    }

    /// Returns the plugin's host companion, if it has one. Each instance of this plugin then has an instance
    /// of the host companion at the host level, and exchanges messages with it.
    fn host_companion(&self) -> Option<&dyn Plugin> {
        None
    }

    /// Returns the eBPF variant of the plugin, if any.
    fn ebpf_variant(&self) -> Option<EbpfVariant> {
        None
    }

    /// Creates an instance with `settings` (empty for the defaults).
    ///
    /// # Errors
    /// [`PluginError::Setting`] for a setting that is unknown, of a wrong type or out of range.
    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError>;

    /// Returns the version of the [saved](Instance::save) state and of the flow states.
    fn state_version(&self) -> u32 {
        0
    }

    /// Merges the replies of the instances on several workers to `message` into one answer. `replies` are in
    /// the order of the workers. The default adds numbers and takes everything else from the first reply: see
    /// [`merged`].
    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        replies.into_iter().reduce(merged).unwrap_or(Value::Null)
    }
}

/// Merges two answers. Adds numbers; merges objects key by key, with keys of either; merges lists of objects
/// with equal length element by element; takes anything else from `first`.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_add_up_and_settings_stay() {
        let first = json!({ "packets": { "udp": 2 }, "what": "all", "on": true, "ports": [80, 443],
            "ranges": [{ "ports": "80", "dropped": 1 }], "rate": 0.5 });
        let second = json!({ "packets": { "tcp": 3, "udp": 1 }, "what": "all", "on": true, "ports": [80, 443],
            "ranges": [{ "ports": "80", "dropped": 4 }], "rate": 1 });
        let sum = json!({ "packets": { "udp": 3, "tcp": 3 }, "what": "all", "on": true, "ports": [80, 443],
            "ranges": [{ "ports": "80", "dropped": 5 }], "rate": 1.5 });
        assert_eq!(merged(first, second), sum);
    }
}

/// Ended flow: idle for too long, displaced by other flows, or no longer bound to the instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEnd {
    /// Six-tuple of the flow.
    pub key: FlowKey,
    /// Number of the flow's packets since the router learned the flow.
    pub packets: u64,
    /// Bytes of these packets, link headers included.
    pub bytes: u64,
}

/// Fault of an instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Kind of the fault for counters: `unreachable`, `stack overflow`, `wrong verdict`, …
    pub kind: &'static str,
    /// Description of the fault, as a sentence.
    pub text: String,
}

/// Progress of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// The call is complete, and the verdicts are written.
    #[default]
    Done,
    /// The call's slice is over. The router keeps the packets, and continues the call by
    /// [`Instance::resume`].
    Suspended,
}

/// Configured instance of a plugin. A worker owns the instance; two threads never call it at once.
pub trait Instance: Send {
    /// Processes packets of the flows that the instance is bound to. Must not allocate, lock or wait.
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress;

    /// Whether the instance ever reads packets or flow keys, or returns a verdict other than pass. If no
    /// instance on a path does, the router skips building flow keys for it. Asked once, when the instance is
    /// added.
    fn looks_at_packets(&self) -> bool {
        true
    }

    /// Whether the instance ever changes bytes or length of packets. The router then checks the headers of
    /// each packet that the instance lets continue. Asked once, when the instance is added.
    fn writes_packets(&self) -> bool {
        true
    }

    /// Continues a suspended call. `packets` are the same packets in the same order.
    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    /// Aborts a suspended call. The router decides about its packets.
    fn abort(&mut self) {}

    /// Removes and returns the fault of the finished call; `None` if it did not fail. After a fault the
    /// instance is unusable until a restart.
    fn take_fault(&mut self) -> Option<Fault> {
        None
    }

    /// Returns the counts since the instance's creation, by the names of its plugin's counters.
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
    /// [`PluginError`] for an unknown message or a wrong argument; the message has changed nothing.
    fn control(&mut self, message: &Message) -> Reply;

    /// Starts to handle a control message. Returns `None` if its slice is over. The router then continues by
    /// [`resume`](Self::resume) without packets, and gets the answer by [`take_reply`](Self::take_reply).
    fn begin_control(&mut self, message: &Message) -> Option<Reply> {
        Some(self.control(message))
    }

    /// Returns the answer to a suspended control message after its completion; `None` without an answer.
    fn take_reply(&mut self) -> Option<Reply> {
        None
    }

    /// Returns the time of the next call of [`periodic`](Self::periodic); `None` without such a call.
    fn next_call(&self) -> Option<Instant> {
        None
    }

    /// Whether [`next_call`](Self::next_call) ever returns a time. Asked once, when the instance is added.
    fn has_timers(&self) -> bool {
        false
    }

    /// Runs the periodic work. If its slice is over, the router continues by [`resume`](Self::resume) without
    /// packets.
    fn periodic(&mut self, _now: Instant) -> Progress {
        Progress::Done
    }

    /// Handles a message of the other half of its plugin. [`Progress::Suspended`] as for
    /// [`periodic`](Self::periodic).
    fn message(&mut self, _bytes: &[u8]) -> Progress {
        Progress::Done
    }

    /// Removes and returns the oldest output besides verdicts; `None` if none is left. Asked after each call
    /// if [`has_output`](Self::has_output).
    fn take_output(&mut self) -> Option<Output> {
        None
    }

    /// Whether [`take_output`](Self::take_output) ever returns an output. Asked once, when the instance is
    /// added.
    fn has_output(&self) -> bool {
        false
    }

    /// Returns the bytes of state that the router keeps for each bound flow; see [`Packets::state_mut`].
    /// Asked once, when the instance is added.
    fn flow_state(&self) -> usize {
        0
    }

    /// Returns the state common to all flows, as of the last completed call, with the size that its plugin
    /// declares. The router keeps this state across a restart and hands it to a successor. Empty without such
    /// state.
    fn service_state(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes over the state common to all flows of another instance; both have the same size. Called before
    /// [`restore`](Self::restore).
    fn adopt_service_state(&mut self, _state: &[u8]) {}

    /// Attaches maps: first the maps that the plugin declares, then the maps of other instances that its
    /// settings name. The order matches the map numbers. Maps are not available during the instance's
    /// creation.
    fn attach_maps(&mut self, _maps: Vec<MapHandle>) {}

    /// Attaches the memory shared with the instance's eBPF variant, through which the variant gets its
    /// settings. Called after [`restore`](Self::restore) if the instance takes over state.
    fn attach_ebpf_variant(&mut self, _memory: Arc<dyn VariantMemory>) {}

    /// Saves the state, for an instance of another version of its plugin. Returns `None` without state, or if
    /// the plugin can't save it.
    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Ok(None)
    }

    /// Restores state that an instance saved under the state version `version` of its plugin
    /// ([`state_version`](Plugin::state_version)).
    ///
    /// # Errors
    /// [`PluginError`] if the state can't be restored; the instance is unusable until a restart.
    fn restore(&mut self, _state: &[u8], version: u32) -> Result<(), PluginError> {
        Err(PluginError::Refused(format!("it takes no state over, of version {version} or any other")))
    }

    /// Notifies the instance that a bound flow has ended, once for each record of the flow that the router
    /// kept. `state` is the flow's state, empty if there was none. [`Progress::Suspended`] as for
    /// [`periodic`](Self::periodic). A busy instance may be notified later.
    fn flow_ended(&mut self, _flow: &FlowEnd, _state: &[u8]) -> Progress {
        Progress::Done
    }

    /// Whether the router calls [`flow_ended`](Self::flow_ended): new flows cost less if no instance
    /// subscribes. Asked once, when the instance is added.
    fn hears_flow_ends(&self) -> bool {
        true
    }
}
