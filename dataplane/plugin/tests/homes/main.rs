//! Tests of plugins in three runtimes: built-in, wasm and native. One rule, written in Rust and in C, must
//! treat the same packets alike in all of them.

mod conformance;
mod features;
mod native;
mod rule;
mod support;
