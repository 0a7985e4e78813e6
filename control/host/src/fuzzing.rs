//! Entry points of the fuzz targets: they apply netlink messages from bytes, without a socket.

use crate::netlink::decode::decode;
use crate::netlink::socket::{Received, messages};
use crate::state::Scope;
use crate::{HostChange, HostState};

/// Applies the messages in a buffer, as received from a netlink socket; returns the changes. With `listed`,
/// the messages are entries of a dump, between [`begin_list`] and [`end_list`].
pub fn apply(state: &mut HostState, buffer: &[u8], listed: bool) -> Vec<HostChange> {
    let mut changes = Vec::new();
    for envelope in messages(buffer) {
        let Received::Message { kind, flags, payload } = envelope.content else { continue };
        match decode(kind, flags, payload) {
            Some(message) if listed => state.apply_listed(message, &mut changes),
            Some(message) => state.apply_to(message, &mut changes),
            None => {}
        }
    }
    changes
}

/// Begins a dump of the whole state.
pub fn begin_list(state: &mut HostState) {
    state.begin_list(Scope::All);
}

/// Ends a dump; returns the changes for entries that the dump did not contain.
pub fn end_list(state: &mut HostState) -> Vec<HostChange> {
    let mut changes = Vec::new();
    state.sweep(Scope::All, &mut changes);
    changes
}
