//! Entrances: sockets, client threads and access control. They pass requests to control, and carry out no
//! operation themselves.

pub(crate) mod access_control;
pub(crate) mod certificate;
pub(crate) mod control_channel;
pub(crate) mod listener;
pub(crate) mod remote;
pub(crate) mod serving;
pub(crate) mod users;
