//! Traits that a plugin implements.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_plugin_abi::binary::RawFlowEnd;

use crate::{Features, Packets, Plain, host};

/// Instance of a plugin. All times are nanoseconds of a monotonic clock.
pub trait Plugin: Sized + Send + 'static {
    /// Creates an instance from its settings. They are a JSON object, which
    /// [`json::Object`](crate::json::Object) reads.
    ///
    /// # Errors
    /// Text that names the wrong setting and the valid values.
    fn init(settings: &[u8]) -> Result<Self, Refusal>;

    /// Processes 1 to 64 packets at the time `now`. A packet without a verdict passes.
    fn packets(&mut self, packets: &mut Packets<'_>, now: u64);

    /// Answers a control message with JSON. `arguments` is a JSON object. The router passes only messages
    /// that the manifest declares.
    ///
    /// # Errors
    /// Text with the reason for the refusal.
    fn control(&mut self, message: &str, _arguments: &[u8]) -> Result<String, Refusal> {
        Err(Refusal::unknown_message(message))
    }

    /// Called at each `period` of the manifest, and when a [`timer`](crate::host::timer) expires.
    fn periodic(&mut self, _now: u64) {}

    /// Handles a message from the plugin's other part. For an instance at a worker, the other part is the
    /// host companion; for the host companion, it is an instance. Called only with `hears: true` in the
    /// manifest.
    fn message(&mut self, _message: &[u8]) {}

    /// Called at the end of a flow, but only with `flow_ends: true` in the manifest.
    fn flow_ended(&mut self, _flow: &FlowEnd<'_>) {}

    /// Returns the instance's state in any format, for the instance that replaces this one after an upgrade.
    /// Called only with `state_version` in the manifest.
    ///
    /// # Errors
    /// Text with the reason that the state can't be saved.
    fn save(&mut self) -> Result<Vec<u8>, Refusal> {
        Ok(Vec::new())
    }

    /// Restores a state that an instance saved with [`save`](Self::save). `_version` is the version of the
    /// state format in which it was saved.
    ///
    /// # Errors
    /// Text with the reason that the state can't be restored.
    fn restore(&mut self, _state: &[u8], _version: u32) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Declarations of a plugin, implemented by [`millrace_plugin!`](crate::millrace_plugin).
pub trait Declared: Plugin {
    /// Manifest as JSON.
    const MANIFEST: &'static str;
    /// Required interface features: those implied by other keys, and those under `features`.
    const FEATURES: Features;
    /// Bytes of state for each flow.
    const FLOW_STATE: u16;
    /// Bytes of the service state, which is common to all flows.
    const SERVICE_STATE: u16;
    /// Maps that the plugin writes: name, bytes of a key, bytes of a value, maximum number of entries.
    const MAPS: &'static [(&'static str, usize, usize, usize)];
    /// Maximum bytes of a packet's window.
    const WINDOW: u16;
    /// Capabilities of the plugin.
    const CAPABILITIES: &'static [&'static str];

    /// Returns the service state, which is common to all flows of the instance. It is all zeros at first.
    /// `None` if the manifest's `service_state` is smaller than `T`.
    ///
    /// The router keeps this state when the instance restarts after a fault, and hands it to the next version
    /// of the plugin.
    #[must_use]
    fn service_state<T: Plain>() -> Option<T> {
        let state = host::service_state();
        if state.is_null() {
            return None;
        }
        // SAFETY: the router keeps as many bytes there as the manifest declares, for this instance alone.
        // Only this SDK writes them during a call, and it keeps no reference.
        T::read(unsafe { core::slice::from_raw_parts(state, Self::SERVICE_STATE.into()) })
    }

    /// Sets the service state. Returns `false` if the manifest's `service_state` is smaller than `T`.
    fn set_service_state<T: Plain>(state: &T) -> bool {
        let place = host::service_state();
        // SAFETY: the router keeps as many bytes there as the manifest declares, for this instance alone. No
        // other reference to them exists.
        !place.is_null()
            && state.write(unsafe { core::slice::from_raw_parts_mut(place, Self::SERVICE_STATE.into()) })
    }
}

/// Refusal of a plugin, with a text for users that states the problem and the valid values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(pub String);

impl Refusal {
    /// Creates the refusal of an unknown control message.
    #[must_use]
    pub fn unknown_message(message: &str) -> Self {
        Self(["unknown message ", message].concat())
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

/// Flow that has ended, or connection in the direction of its first packet.
pub struct FlowEnd<'a> {
    pub(crate) raw: &'a RawFlowEnd,
    pub(crate) state: &'a [u8],
}

impl FlowEnd<'_> {
    /// Returns the number of the flow, as in [`Packet::flow`](crate::Packet::flow).
    #[must_use]
    pub fn flow(&self) -> u32 {
        self.raw.flow
    }

    /// Returns the IP protocol; for IPv6 the upper-layer protocol.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.raw.protocol
    }

    /// Returns source and destination address.
    #[must_use]
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.address(self.raw.source), self.address(self.raw.destination))
    }

    /// Returns source and destination port; both are 0 for a protocol without ports.
    #[must_use]
    pub fn ports(&self) -> (u16, u16) {
        (self.raw.source_port, self.raw.destination_port)
    }

    /// Returns the number of packets and the number of bytes of the flow.
    #[must_use]
    pub fn count(&self) -> (u64, u64) {
        (self.raw.packets, self.raw.bytes)
    }

    /// Returns the flow's state as a value of type `T`; `None` without state, or if the state is smaller than
    /// `T`.
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
