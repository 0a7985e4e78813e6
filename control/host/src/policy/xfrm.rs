//! IPsec policies.

use super::{EVERYWHERE, PolicyFinding, PolicyKind, unless_lacking};
use crate::HostError;
use crate::netlink::request::{DUMP, Request};
use crate::netlink::socket::Socket;

const NEW_POLICY: u16 = 0x13;
const GET_POLICY: u16 = 0x15;
/// Length of `struct xfrm_userpolicy_id`.
const POLICY_ID: usize = 64;
/// Offset of the direction in `struct xfrm_userpolicy_info`.
const DIRECTION: usize = 160;
const OUT: u8 = 1;
const FORWARD: u8 = 2;

pub(super) fn inspect() -> Result<Vec<PolicyFinding>, HostError> {
    let (mut out, mut forward) = (0, 0);
    let listed = Socket::open(libc::NETLINK_XFRM as isize).and_then(|mut socket| {
        let request = Request::new(GET_POLICY, DUMP, &[0; POLICY_ID]);
        socket.dump(request, "IPsec policies", |kind, payload| match payload.get(DIRECTION) {
            Some(&OUT) if kind == NEW_POLICY => out += 1,
            Some(&FORWARD) if kind == NEW_POLICY => forward += 1,
            _ => {}
        })
    });
    unless_lacking(listed)?;
    Ok((out + forward > 0).then(|| finding(out, forward)).into_iter().collect())
}

fn finding(out: u32, forward: u32) -> PolicyFinding {
    PolicyFinding {
        kind: PolicyKind::Xfrm,
        what: format!("IPsec policies: {out} outgoing, {forward} forwarding"),
        place: EVERYWHERE.into(),
        consequence: "packets that they would encrypt or refuse would be forwarded in the clear".into(),
    }
}
