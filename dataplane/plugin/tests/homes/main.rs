//! Plugins in their three homes: part of the router, WebAssembly module, shared object. One rule, written in Rust and in C, does the
//! same to the same packets in all of them.

mod conformance;
mod features;
mod native;
mod rule;
mod support;
