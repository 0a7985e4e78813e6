//! Requests: what a service needs, and the packets it is meant for (VERA, section 4.3.1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hardware::Processor;

/// Request to place a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Request {
    /// Name of the service.
    pub name: String,
    /// Packets that the service handles.
    pub class: Class,
    /// Group of ports whose packets arrive; the first of the hardware if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// File of a plugin whose manifest declares the needs, from the folder of the scenario; absent if the request
    /// has `needs` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// Machines and processors that may host the service; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// User who asks, whose allowances apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Needs of the service.
    #[serde(default)]
    pub needs: Needs,
    /// Packets that arrive; not given for a global service.
    #[serde(default)]
    pub input: Stream,
    /// Packets that leave; as many as arrive if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Stream>,
}

/// Packets that a service handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Every packet of the processor.
    Global,
    /// Packets of one flow.
    PerFlow,
}

/// Needs of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Needs {
    /// Cycles by kind of processor; `any` stands for all kinds without an entry. Without an entry the service
    /// doesn't run on processors of that kind.
    pub cycles: BTreeMap<String, Cycles>,
    /// Whether the service reads whole packets; else their headers are enough.
    #[serde(default)]
    pub whole_packet: bool,
    /// Memory in bytes.
    #[serde(default)]
    pub memory_bytes: f64,
    /// Code slots.
    #[serde(default)]
    pub code_slots: f64,
}

/// Cycles of a service on one kind of processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cycles {
    /// Cycles per second, independent of packets. A service with such cycles doesn't run on statically scheduled
    /// processors, which have cycles for packets only.
    #[serde(default)]
    pub fixed: f64,
    /// Cycles per packet on average.
    pub packet: f64,
    /// Cycles per packet at most; the average if absent.
    #[serde(default)]
    pub packet_maximum: Option<f64>,
    /// Cycles per byte.
    #[serde(default)]
    pub byte: f64,
}

/// Rate and sizes of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stream {
    /// Packets per second on average.
    pub packets_per_second: f64,
    /// Bytes per packet on average.
    pub bytes: f64,
    /// Bytes per packet at most; the largest packet of the hardware if absent.
    #[serde(default)]
    pub bytes_maximum: Option<f64>,
}

/// Fault in a request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// Number outside its range.
    #[error("request {request:?}: {key} = {value} is not {need}")]
    Number {
        /// Name of the request.
        request: String,
        /// Key of the number.
        key: String,
        /// Value.
        value: f64,
        /// Allowed values.
        need: &'static str,
    },
    /// Kind of processor that the hardware lacks.
    #[error("request {request:?}: no processor is of kind {kind:?}; kinds here: {known}")]
    Kind {
        /// Name of the request.
        request: String,
        /// Unknown kind.
        kind: String,
        /// Kinds of the hardware.
        known: String,
    },
    /// Group of ports that the hardware lacks.
    #[error("request {request:?}: there is no port {port:?}; ports here: {known}")]
    Port {
        /// Name of the request.
        request: String,
        /// Unknown group of ports.
        port: String,
        /// Groups of ports of the hardware.
        known: String,
    },
    /// Machine or processor that the hardware lacks.
    #[error("request {request:?}: there is no machine or processor {place:?}; here: {known}")]
    Place {
        /// Name of the request.
        request: String,
        /// Unknown machine or processor.
        place: String,
        /// Machines and processors of the hardware.
        known: String,
    },
    /// Service that no processor of the hardware can run.
    #[error("request {0:?}: it declares no cycles for any processor")]
    Nowhere(String),
    /// Request with needs and a plugin that declares them.
    #[error("request {0:?}: give either plugin or needs: the manifest of the plugin declares its needs")]
    Twice(String),
}

impl Cycles {
    /// Returns the largest number of cycles per packet.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.packet_maximum.unwrap_or(self.packet)
    }
}

impl Needs {
    /// Returns the cycles on a kind of processor; `None` where the service doesn't run there.
    #[must_use]
    pub fn on(&self, kind: &str) -> Option<&Cycles> {
        self.cycles.get(kind).or_else(|| self.cycles.get("any"))
    }
}

impl Request {
    /// Returns the request with the needs that a plugin's manifest declares. `output` is the number of packets that
    /// leave the plugin for each packet that arrives; it counts unless the request states its output.
    ///
    /// # Errors
    /// The request has needs of its own.
    pub fn declared(self, needs: Needs, output: f64) -> Result<Self, RequestError> {
        if self.needs != Needs::default() {
            return Err(RequestError::Twice(self.name));
        }
        let leaving = Stream { packets_per_second: self.input.packets_per_second * output, ..self.input };
        let changes_rate = output != 1.0;
        let output = self.output.or_else(|| changes_rate.then_some(leaving));
        Ok(Self { needs, output, plugin: None, ..self })
    }

    /// Returns the packets that leave.
    #[must_use]
    pub fn leaving(&self) -> Stream {
        self.output.unwrap_or(self.input)
    }

    /// Whether a processor may host the service.
    #[must_use]
    pub fn may_run_on(&self, processor: &Processor) -> bool {
        self.on.is_empty() || self.on.iter().any(|place| processor.is_in(place))
    }

    /// Returns every number with its key, whether it must be above 0, for checks.
    pub(crate) fn numbers(&self) -> Vec<(String, f64, bool)> {
        let mut numbers = vec![
            ("needs.memory-bytes".to_owned(), self.needs.memory_bytes, false),
            ("needs.code-slots".to_owned(), self.needs.code_slots, false),
        ];
        for (kind, cycles) in &self.needs.cycles {
            let mut add = |key: &str, value: f64| {
                numbers.push((format!("needs.cycles.{kind}.{key}"), value, false));
            };
            add("fixed", cycles.fixed);
            add("packet", cycles.packet);
            add("packet-maximum", cycles.worst());
            add("byte", cycles.byte);
        }
        let streams = [("input", Some(self.input)), ("output", self.output)];
        for (name, stream) in streams.into_iter().filter_map(|(name, stream)| Some((name, stream?))) {
            let is_flow = self.class == Class::PerFlow;
            numbers.push((
                format!("{name}.packets-per-second"),
                stream.packets_per_second,
                is_flow && name == "input",
            ));
            numbers.push((format!("{name}.bytes"), stream.bytes, is_flow && name == "input"));
            if let Some(most) = stream.bytes_maximum {
                numbers.push((format!("{name}.bytes-maximum"), most, true));
            }
        }
        numbers
    }
}
