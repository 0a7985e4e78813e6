//! Plugins are created, built both ways, looked at and driven; the header for C has the layout of the interface.

mod documents;
mod examples;
mod header;
mod json;
mod support;
