//! Entrances: sockets, the client threads, and access control. None of them carries out an operation.

pub(crate) mod access_control;
pub(crate) mod certificate;
pub(crate) mod control_channel;
pub(crate) mod listener;
pub(crate) mod remote;
pub(crate) mod serving;
pub(crate) mod users;
