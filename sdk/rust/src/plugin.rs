//! What a plugin implements.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_plugin_abi::binary::RawFlowEnd;

use crate::{Features, Packets, Plain, host};

/// One configured copy of a plugin. Times are nanoseconds of a clock that never goes back.
pub trait Plugin: Sized + Send + 'static {
    /// Begins with settings, a JSON object; [`json::Object`](crate::json::Object) reads it.
    ///
    /// # Errors
    /// What is wrong with the settings, and what would be right.
    fn init(settings: &[u8]) -> Result<Self, Refusal>;

    /// Handles packets, 1 to 64. Those of which nothing is said go on.
    fn packets(&mut self, packets: &mut Packets<'_>, now: u64);

    /// Answers a control message with JSON. Arguments are a JSON object. Only called for messages of the manifest.
    ///
    /// # Errors
    /// Why it can't be done.
    fn control(&mut self, message: &str, _arguments: &[u8]) -> Result<String, Refusal> {
        Err(Refusal::unknown_message(message))
    }

    /// Does what is done from time to time: every `period` of the manifest, and when a [`timer`](crate::host::timer) is due.
    fn periodic(&mut self, _now: u64) {}

    /// Gets a message of the other half of the plugin. Only called with `hears: true` in the manifest.
    fn message(&mut self, _message: &[u8]) {}

    /// A flow has ended. Only called with `flow_ends: true` in the manifest.
    fn flow_ended(&mut self, _flow: &FlowEnd<'_>) {}

    /// Its state, in whatever form, before it is replaced. Only called with `state_version` in the manifest.
    ///
    /// # Errors
    /// Why there is none to save.
    fn save(&mut self) -> Result<Vec<u8>, Refusal> {
        Ok(Vec::new())
    }

    /// Takes over state that was saved under a version of the state.
    ///
    /// # Errors
    /// Why it can't be taken over.
    fn restore(&mut self, _state: &[u8], _version: u32) -> Result<(), Refusal> {
        Ok(())
    }
}

/// What [`millrace_plugin!`](crate::millrace_plugin) knows of a plugin.
pub trait Declared: Plugin {
    /// The manifest, as JSON.
    const MANIFEST: &'static str;
    /// What it needs of the interface: what its other keys come to, and what `features` says beside.
    const FEATURES: Features;
    /// Bytes of state for each flow.
    const FLOW_STATE: u16;
    /// Bytes of state that is common to all flows.
    const SERVICE_STATE: u16;
    /// Maps that it writes: names, bytes of keys and of values, entries.
    const MAPS: &'static [(&'static str, usize, usize, usize)];
    /// Bytes of a packet that it sees.
    const WINDOW: u16;
    /// What it may call.
    const CAPABILITIES: &'static [&'static str];

    /// The state that is common to all flows of the instance, as a value; `None` where the manifest's `service_state` is less
    /// than that takes. Zeros at first. The router keeps it when the plugin begins anew after a fault, and for the version that
    /// takes its place.
    #[must_use]
    fn service_state<T: Plain>() -> Option<T> {
        let state = host::service_state();
        if state.is_null() {
            return None;
        }
        // SAFETY: the router keeps as many bytes there as the manifest says, for this instance alone, and nobody writes to
        // them during a call but this kit, which keeps no reference.
        T::read(unsafe { core::slice::from_raw_parts(state, Self::SERVICE_STATE.into()) })
    }

    /// Sets the state that is common to all flows of the instance. Returns whether there was room.
    fn set_service_state<T: Plain>(state: &T) -> bool {
        let place = host::service_state();
        // SAFETY: as in `service_state`.
        !place.is_null()
            && state.write(unsafe { core::slice::from_raw_parts_mut(place, Self::SERVICE_STATE.into()) })
    }
}

/// Why a plugin refuses. People read it: it says what is wrong, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(pub String);

impl Refusal {
    /// The refusal of a message that there isn't.
    #[must_use]
    pub fn unknown_message(message: &str) -> Self {
        Self(["there is no message ", message].concat())
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A flow that has ended.
pub struct FlowEnd<'a> {
    pub(crate) raw: &'a RawFlowEnd,
    pub(crate) state: &'a [u8],
}

impl FlowEnd<'_> {
    /// The flow's name, as [`Packet::flow`](crate::Packet::flow) has it.
    #[must_use]
    pub fn flow(&self) -> u32 {
        self.raw.flow
    }

    /// The protocol above IP.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.raw.protocol
    }

    /// Source and destination.
    #[must_use]
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.address(self.raw.source), self.address(self.raw.destination))
    }

    /// Source and destination port; 0 where there are none.
    #[must_use]
    pub fn ports(&self) -> (u16, u16) {
        (self.raw.source_port, self.raw.destination_port)
    }

    /// Its packets and their bytes.
    #[must_use]
    pub fn count(&self) -> (u64, u64) {
        (self.raw.packets, self.raw.bytes)
    }

    /// Its state, if the manifest declares some and `T` fits in.
    #[must_use]
    pub fn state<T: Plain>(&self) -> Option<T> {
        T::read(self.state)
    }

    fn address(&self, bytes: [u8; 16]) -> IpAddr {
        match self.raw.family {
            4 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
            _ => Ipv6Addr::from(bytes).into(),
        }
    }
}
