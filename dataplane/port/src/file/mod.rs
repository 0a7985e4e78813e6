//! Opening of packet files: with checks, because the router opens them with its own rights.

mod input;
mod output;

pub(crate) use input::open_input;
pub use output::{check_recording, create_output, create_recording};
