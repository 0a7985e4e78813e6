//! Types of the functions that modules import and export.

use std::fmt;

use millrace_plugin_abi::binary::export;
use wasmparser::{FuncType, ValType};

/// Type of a function in the plugin interface.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature {
    parameters: &'static [ValType],
    result: Option<ValType>,
}

const I32: ValType = ValType::I32;
const I64: ValType = ValType::I64;

const fn signature(parameters: &'static [ValType], result: Option<ValType>) -> Signature {
    Signature { parameters, result }
}

impl Signature {
    /// Whether a function has this type.
    pub fn is(&self, function: &FuncType) -> bool {
        function.params() == self.parameters && function.results() == self.result.as_slice()
    }

    /// Returns the type of a plugin's export; `None` for a name outside the interface.
    pub fn of_export(name: &str) -> Option<Self> {
        Some(match name {
            export::ABI | export::SAVE => signature(&[], Some(I32)),
            export::RESERVE => signature(&[I32], Some(I32)),
            export::RELEASE | export::MESSAGE => signature(&[I32, I32], None),
            export::INIT => signature(&[I32, I32], Some(I32)),
            export::PACKETS | export::FLOW_ENDED => signature(&[I32], None),
            export::CONTROL => signature(&[I32, I32, I32, I32], Some(I32)),
            export::PERIODIC => signature(&[I64], None),
            export::RESTORE => signature(&[I32, I32, I32], Some(I32)),
            _ => return None,
        })
    }

    /// Returns the type of a host function; `None` for a name outside the interface.
    pub fn of_import(name: &str) -> Option<Self> {
        Some(match name {
            "fail" | "reply" => signature(&[I32, I32], None),
            "log" => signature(&[I32, I32, I32], None),
            "packet_read" | "packet_write" => signature(&[I32, I32, I32, I32], Some(I32)),
            "packet_resize" | "request" | "send" => signature(&[I32, I32], Some(I32)),
            "packet_make" | "flow_backlog" => signature(&[I32, I32, I32], Some(I32)),
            "timer" => signature(&[I64], None),
            "count" => signature(&[I32, I64], None),
            "map_get" | "map_set" => signature(&[I32, I32, I32, I32, I32], Some(I32)),
            "map_remove" => signature(&[I32, I32, I32], Some(I32)),
            "service_state" => signature(&[], Some(I32)),
            _ => return None,
        })
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_type(f, self.parameters, self.result.as_slice())
    }
}

fn write_type(f: &mut dyn fmt::Write, parameters: &[ValType], results: &[ValType]) -> fmt::Result {
    let list = |types: &[ValType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    write!(f, "({}) -> ({})", list(parameters), list(results))
}

/// Writes the type of a function as text.
pub(super) fn type_name(function: &FuncType) -> String {
    let mut text = String::new();
    // Writing to a string doesn't fail.
    let _ = write_type(&mut text, function.params(), function.results());
    text
}
