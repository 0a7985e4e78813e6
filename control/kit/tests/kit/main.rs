//! Plugins are created, built both ways, looked at and driven; the header for C has the layout of the interface.

mod examples;
mod header;
mod support;
