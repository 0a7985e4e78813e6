//! nftables base chains on the path of forwarded packets.

use std::collections::HashSet;

use super::{EVERYWHERE, PolicyFinding, PolicyKind, Surroundings, unless_lacking};
use crate::HostError;
use crate::netlink::attribute::{attributes, attributes_after, network_number, text};
use crate::netlink::request::{DUMP, Request};
use crate::netlink::socket::Socket;

const NETFILTER: isize = 12;
const SUBSYSTEM: u16 = 10 << 8;
const NEW_TABLE: u16 = SUBSYSTEM;
const GET_TABLE: u16 = SUBSYSTEM | 1;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const GET_CHAIN: u16 = SUBSYSTEM | 4;
/// `struct nfgenmsg`: family, version, resource.
const HEADER: usize = 4;
const DORMANT: u32 = 1;
const ACCEPT: u32 = 1;

const INET: u8 = 1;
const IPV4: u8 = 2;
const NETDEV: u8 = 5;
const BRIDGE: u8 = 7;
const IPV6: u8 = 10;

/// nftables chain that is attached to a hook.
#[derive(Debug, Default)]
struct BaseChain {
    family: u8,
    table: String,
    name: String,
    hook: u32,
    devices: Vec<DeviceName>,
    policy: u32,
    rules: u32,
}

#[derive(Debug)]
enum DeviceName {
    Exact(String),
    Prefix(String),
}

impl DeviceName {
    fn names(&self, device: &str) -> bool {
        match self {
            Self::Exact(name) => name == device,
            Self::Prefix(prefix) => device.starts_with(prefix.as_str()),
        }
    }
}

pub(super) fn inspect(surroundings: &Surroundings) -> Result<Vec<PolicyFinding>, HostError> {
    let mut dormant = HashSet::new();
    let mut chains = Vec::new();
    let listed = Socket::open(NETFILTER).and_then(|mut socket| {
        socket.dump(Request::new(GET_TABLE, DUMP, &[0; HEADER]), "nftables tables", |kind, payload| {
            if kind == NEW_TABLE {
                dormant.extend(dormant_table(payload));
            }
        })?;
        socket.dump(Request::new(GET_CHAIN, DUMP, &[0; HEADER]), "nftables chains", |kind, payload| {
            if kind == NEW_CHAIN {
                chains.extend(base_chain(payload));
            }
        })
    });
    unless_lacking(listed)?;
    chains.retain(|chain| !dormant.contains(&(chain.family, chain.table.clone())));
    Ok(chains.iter().filter_map(|chain| judge(chain, surroundings)).collect())
}

fn dormant_table(payload: &[u8]) -> Option<(u8, String)> {
    let (mut name, mut flags) = (String::new(), 0);
    for (kind, value) in attributes_after(payload, HEADER) {
        match kind {
            1 => name = text(value),
            2 => flags = network_number(value)?,
            _ => {}
        }
    }
    (flags & DORMANT != 0).then_some((*payload.first()?, name))
}

fn base_chain(payload: &[u8]) -> Option<BaseChain> {
    let mut hook = None;
    let mut chain = BaseChain { family: *payload.first()?, policy: ACCEPT, ..BaseChain::default() };
    for (kind, value) in attributes_after(payload, HEADER) {
        match kind {
            1 => chain.table = text(value),
            3 => chain.name = text(value),
            4 => hook = Some(value),
            5 => chain.policy = network_number(value)?,
            // The use count of a chain includes rules that jump to the chain. No rule can jump to a base
            // chain, so here it is the number of the chain's own rules.
            6 => chain.rules = network_number(value)?,
            _ => {}
        }
    }
    for (kind, value) in attributes(hook?) {
        match kind {
            1 => chain.hook = network_number(value)?,
            3 => chain.devices.push(DeviceName::Exact(text(value))),
            4 => chain.devices.extend(attributes(value).map(device_name)),
            _ => {}
        }
    }
    Some(chain)
}

fn device_name((kind, value): (u16, &[u8])) -> DeviceName {
    const PREFIX: u16 = 2;
    if kind == PREFIX { DeviceName::Prefix(text(value)) } else { DeviceName::Exact(text(value)) }
}

/// Returns the name of the hook if forwarded packets pass it.
fn hook_name(family: u8, hook: u32) -> Option<&'static str> {
    match (family, hook) {
        (IPV4 | IPV6 | INET | BRIDGE, 0) => Some("prerouting"),
        (IPV4 | IPV6 | INET | BRIDGE, 2) => Some("forward"),
        (IPV4 | IPV6 | INET | BRIDGE, 4) => Some("postrouting"),
        (INET, 5) | (NETDEV, 0) => Some("ingress"),
        (NETDEV, 1) => Some("egress"),
        _ => None,
    }
}

fn judge(chain: &BaseChain, surroundings: &Surroundings) -> Option<PolicyFinding> {
    let hook = hook_name(chain.family, chain.hook)?;
    if chain.rules == 0 && chain.policy == ACCEPT {
        return None;
    }
    let place = place(chain, surroundings)?;
    let family = match chain.family {
        INET => "inet",
        IPV4 => "ip",
        IPV6 => "ip6",
        NETDEV => "netdev",
        _ => "bridge",
    };
    let rules = match chain.rules {
        0 => "no rule but the policy drop".to_owned(),
        1 => "1 rule".to_owned(),
        rules => format!("{rules} rules"),
    };
    Some(PolicyFinding {
        kind: PolicyKind::Nftables,
        what: format!("nftables chain {family} {} {} at hook {hook} has {rules}", chain.table, chain.name),
        place,
        consequence: format!(
            "packets that Millrace forwards pass no {hook} hook, so the chain would not apply"
        ),
    })
}

/// Returns the name of the affected ports or namespace; `None` if the chain affects none of the ports.
fn place(chain: &BaseChain, surroundings: &Surroundings) -> Option<String> {
    if chain.family == BRIDGE {
        let bridged = |port: &&crate::HostLink| {
            port.kind.as_deref() == Some("bridge") || port.master_kind.as_deref() == Some("bridge")
        };
        return surroundings.ports.iter().find(bridged).map(|port| port.name.clone());
    }
    if hook_name(chain.family, chain.hook).is_some_and(|hook| hook.ends_with("gress")) {
        let named = |port: &&crate::HostLink| chain.devices.iter().any(|device| device.names(&port.name));
        let ports: Vec<&str> =
            surroundings.ports.iter().filter(named).map(|port| port.name.as_str()).collect();
        return (!ports.is_empty()).then(|| ports.join(", "));
    }
    Some(EVERYWHERE.into())
}
