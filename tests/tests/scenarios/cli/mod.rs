//! Command line, shell, labs, and the router as a service.

mod bad_input;
mod commands;
mod lab;
mod operator;
mod service;
mod shell;
