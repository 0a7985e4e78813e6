//! Tests of the kit: creation, build for both runtimes, inspection and calls of plugins, and the layout of
//! the header for C.

mod documents;
mod examples;
mod header;
mod json;
mod support;
