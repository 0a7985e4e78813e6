//! Tests of plugins in three runtimes: built-in, WebAssembly module, shared object. One rule, written in Rust
//! and in C, treats the same packets alike in all of them.

mod conformance;
mod features;
mod native;
mod rule;
mod support;
