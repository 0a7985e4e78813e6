//! Types of plugins and their instances.

use std::sync::Arc;

use millrace_units::Instant;
use serde_json::{Map, Value};

use crate::{
    DriverForm, DriverMemory, Features, FlowKey, MapHandle, MapShape, Output, Packets, PluginError, Position,
};

/// A control message: a name and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What the instance is asked to do.
    pub name: String,
    /// The arguments by name; empty when there are none.
    pub arguments: Map<String, Value>,
}

/// What an instance answers to a control message.
pub type Reply = Result<Value, PluginError>;

/// Where the code of a plugin lives, and so what it can reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Home {
    /// It is part of the router.
    #[default]
    BuiltIn,
    /// A WebAssembly module: it reaches what it was given.
    Contained,
    /// A shared object: it reaches all that the router reaches, and is stopped by nobody.
    Trusted,
}

impl Home {
    /// What to say of it, in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::BuiltIn => "built in",
            Self::Contained => "contained: a WebAssembly module",
            Self::Trusted => "trusted: a shared object, not contained",
        }
    }
}

/// A type of plugin.
pub trait Plugin: Send + Sync {
    /// Its name, by which instances of it are created.
    fn name(&self) -> &'static str;

    /// Where its code lives.
    fn home(&self) -> Home {
        Home::BuiltIn
    }

    /// Its version, `major.minor.patch`.
    fn version(&self) -> &'static str;

    /// What it does, in one line.
    fn summary(&self) -> &'static str;

    /// The positions whose gates its instances may be bound at.
    fn positions(&self) -> &[Position];

    /// The control messages that its instances understand, each with a line on what it does and takes.
    fn messages(&self) -> &[(&'static str, &'static str)];

    /// The JSON Schema of the settings, where there is one: they are checked against it before an instance is made, and a
    /// setting whose `format` is `port` or `instance` names one, and comes as its number.
    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        None
    }

    /// Its manual page, where it has one: see [`manual_of`](crate::manual_of).
    fn manual(&self) -> Option<String> {
        None
    }

    /// What it needs of the interface. It is refused where the router does not offer all of that.
    fn features(&self) -> Features {
        Features::NONE
    }

    /// The capabilities that it asks for, by the names that manifests give them; none for what is part of the router, which
    /// needs none.
    fn capabilities(&self) -> &[&'static str] {
        &[]
    }

    /// The names of its counters, which the router adds up.
    fn counters(&self) -> &[&'static str] {
        &[]
    }

    /// The maps that its instances have and write, by their numbers.
    fn maps(&self) -> &[MapShape] {
        &[]
    }

    /// The plugin of its host companion: an instance of it runs on the host level for each instance of this one, and exchanges
    /// messages with those at the workers.
    fn host_companion(&self) -> Option<&dyn Plugin> {
        None
    }

    /// Its form for the driver, where it has one.
    fn driver_form(&self) -> Option<DriverForm> {
        None
    }

    /// A new instance with `settings` (empty for the defaults).
    ///
    /// # Errors
    /// [`PluginError::Setting`] for a setting that is unknown, of the wrong type or out of range.
    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError>;

    /// The version of what its instances [`save`](Instance::save), and of the state that they keep for flows.
    fn state_version(&self) -> u32 {
        0
    }

    /// The one answer out of those that the instances on several workers gave to `message`, in the order of the workers.
    /// Unless said otherwise, numbers are added up and everything else is as the first has it: see [`merged`].
    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        replies.into_iter().reduce(merged).unwrap_or(Value::Null)
    }
}

/// Two answers as one: numbers added; objects by key, what only one has included; lists of objects of equal length
/// element by element; anything else as `first` has it.
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

/// A flow that has ended: idle for too long, displaced by others, or no longer bound to the instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEnd {
    /// Its six-tuple.
    pub key: FlowKey,
    /// Packets of it since the router came to know it.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
}

/// What an instance did wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its kind, by which faults are counted: `unreachable`, `stack overflow`, `wrong verdict`, …
    pub kind: &'static str,
    /// What happened, in a sentence.
    pub text: String,
}

/// How far a call has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// The verdicts are written.
    #[default]
    Done,
    /// Its time is up. The router keeps the packets, and asks again by [`Instance::resume`].
    Suspended,
}

/// One configured copy of a plugin. A worker owns it; it is never called from two threads.
pub trait Instance: Send {
    /// Handles packets of the flows that the instance is bound to. Neither allocates, locks nor waits.
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress;

    /// Whether it ever looks at packets or at the keys of their flows, or decides anything but that they pass. Where no instance on
    /// their way does, keys are not made up for it. Asked once, when the instance is added.
    fn looks_at_packets(&self) -> bool {
        true
    }

    /// Whether it ever changes bytes or the length of packets. The router then checks the headers of each packet that goes on behind it.
    /// Asked once, when the instance is added.
    fn writes_packets(&self) -> bool {
        true
    }

    /// Goes on with a call that was suspended: `packets` are the same, in the same order.
    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    /// Gives up a call that was suspended. What becomes of its packets is the router's matter.
    fn abort(&mut self) {}

    /// What went wrong in the call that is done; the instance is of no use then until it is restarted.
    fn take_fault(&mut self) -> Option<Fault> {
        None
    }

    /// What it counted since it was made, by the names of its plugin's counters.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Begins anew after a fault, with the settings that it has, and without what it knew.
    ///
    /// # Errors
    /// [`PluginError`] when that fails.
    fn restart(&mut self) -> Result<(), PluginError> {
        Ok(())
    }

    /// Handles a control message.
    ///
    /// # Errors
    /// [`PluginError`] when the message or an argument is not understood; nothing has changed then.
    fn control(&mut self, message: &Message) -> Reply;

    /// Begins with a control message; `None` when its time is up. The router then asks again by
    /// [`resume`](Self::resume), with no packets, and takes the answer by [`take_reply`](Self::take_reply).
    fn begin_control(&mut self, message: &Message) -> Option<Reply> {
        Some(self.control(message))
    }

    /// The answer to a control message that was suspended and is done; `None` when there is none.
    fn take_reply(&mut self) -> Option<Reply> {
        None
    }

    /// When [`periodic`](Self::periodic) is to be called next; `None` when it isn't.
    fn next_call(&self) -> Option<Instant> {
        None
    }

    /// Whether [`next_call`](Self::next_call) ever says a time. Asked once, when the instance is added.
    fn has_timers(&self) -> bool {
        false
    }

    /// Does what it does from time to time. When its time is up, the router goes on by [`resume`](Self::resume), with no
    /// packets.
    fn periodic(&mut self, _now: Instant) -> Progress {
        Progress::Done
    }

    /// Gets a message of the other half of its plugin. [`Progress::Suspended`] as of [`periodic`](Self::periodic).
    fn message(&mut self, _bytes: &[u8]) -> Progress {
        Progress::Done
    }

    /// What it gives beside verdicts, the oldest first; `None` when there is nothing more. Asked after each call, if
    /// [`has_output`](Self::has_output).
    fn take_output(&mut self) -> Option<Output> {
        None
    }

    /// Whether [`take_output`](Self::take_output) ever gives something. Asked once, when the instance is added.
    fn has_output(&self) -> bool {
        false
    }

    /// Bytes of state that the router keeps for each flow that it is bound to; see
    /// [`Packets::state_mut`]. Asked once, when the instance is added.
    fn flow_state(&self) -> usize {
        0
    }

    /// What stands in the memory that it keeps for all its flows together, and that the router keeps for it when it begins anew or
    /// another instance takes its place: as many bytes as its plugin declares, as they were after the last call that was
    /// completed. Empty where it keeps none.
    fn service_state(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes over what another instance kept there, which is as long. It sees that before it is asked to
    /// [`restore`](Self::restore) anything.
    fn adopt_service_state(&mut self, _state: &[u8]) {}

    /// Gives it its maps: those that its plugin declares, and behind them those of other instances that its settings name, by the
    /// numbers that it got for them. It has none before, and so none while it begins.
    fn attach_maps(&mut self, _maps: Vec<MapHandle>) {}

    /// Gives it the memory that it shares with its form for the driver, which gets its settings from now on by that. After
    /// [`restore`](Self::restore), where it takes over what another instance knew.
    fn attach_driver(&mut self, _memory: Arc<dyn DriverMemory>) {}

    /// Hands over what it knows, to be taken over by the instance of another version of its plugin; `None` when it knows
    /// nothing, or has no way to say it.
    ///
    /// # Errors
    /// [`PluginError`] when that fails.
    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Ok(None)
    }

    /// Takes over what an instance handed over whose plugin's [`state_version`](Plugin::state_version) is `version`.
    ///
    /// # Errors
    /// [`PluginError`] when it can't; the instance is of no use then until it is restarted.
    fn restore(&mut self, _state: &[u8], version: u32) -> Result<(), PluginError> {
        Err(PluginError::Refused(format!("it takes no state over, of version {version} or any other")))
    }

    /// Learns that a flow it was bound to has ended, once for each record of the flow that the router kept. `state` is
    /// what it kept for the flow, empty where there was none. [`Progress::Suspended`] as of [`periodic`](Self::periodic); of flows
    /// that end in the middle of something it may hear later.
    fn flow_ended(&mut self, _flow: &FlowEnd, _state: &[u8]) -> Progress {
        Progress::Done
    }

    /// Whether [`flow_ended`](Self::flow_ended) is to be called: new flows cost less where nobody listens. Asked once, when
    /// the instance is added.
    fn hears_flow_ends(&self) -> bool {
        true
    }
}
