//! HTTP interface: requests, remote access, limits, events and clients.

mod certificates;
mod clients;
mod dashboard;
mod events;
mod interface;
mod limits;
mod operations;
mod remote;
mod unauthorized;
