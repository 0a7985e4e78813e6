//! Entrances: sockets, the threads that speak with clients, and access control. None of it carries out an operation.

pub(crate) mod access_control;
pub(crate) mod certificate;
pub(crate) mod control_channel;
pub(crate) mod listener;
pub(crate) mod remote;
pub(crate) mod serving;
pub(crate) mod users;
