//! Tests of plugins in five runtimes: built-in, wasm, native, process and executable. One rule, written in Rust
//! and in C, must treat the same packets alike in all of them.

mod conformance;
mod contexts;
mod features;
mod memory;
mod native;
mod process;
mod rule;
mod support;
