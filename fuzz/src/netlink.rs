//! Fuzz target of netlink messages: the mirror of the kernel applies or ignores any bytes. The changes that
//! it reports must add up to its state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_host::fuzzing::{apply, begin_list, end_list};
use millrace_host::{HostChange, HostLink, HostNeighbour, HostRoute, HostState};

use crate::input::Input;

/// Message types: those that the mirror reads, and two that it ignores.
const KINDS: [u16; 16] = [16, 17, 20, 21, 24, 24, 24, 25, 28, 29, 36, 80, 81, 104, 105, 32];
/// Maximum number of buffers of a run.
const MOST: usize = 48;

/// State that the reported changes add up to.
#[derive(Default)]
struct Told {
    links: BTreeMap<u32, HostLink>,
    addresses: BTreeSet<(u32, IpNet)>,
    routes: BTreeMap<IpNet, HostRoute>,
    neighbours: BTreeMap<(u32, IpAddr), HostNeighbour>,
}

impl Told {
    fn hear(&mut self, changes: Vec<HostChange>) {
        for change in changes {
            match change {
                HostChange::Link(link) => drop(self.links.insert(link.ifindex, link)),
                HostChange::LinkGone(ifindex) => drop(self.links.remove(&ifindex)),
                HostChange::Address { ifindex, net, present: true } => {
                    self.addresses.insert((ifindex, net));
                }
                HostChange::Address { ifindex, net, present: false } => {
                    self.addresses.remove(&(ifindex, net));
                }
                HostChange::Route { prefix, route: Some(route) } => drop(self.routes.insert(prefix, route)),
                HostChange::Route { prefix, route: None } => drop(self.routes.remove(&prefix)),
                HostChange::Neighbour { ifindex, ip, neighbour: Some(neighbour) } => {
                    self.neighbours.insert((ifindex, ip), neighbour);
                }
                HostChange::Neighbour { ifindex, ip, neighbour: None } => {
                    self.neighbours.remove(&(ifindex, ip));
                }
                _ => {}
            }
        }
    }

    fn compare(&self, state: &HostState) {
        let links: BTreeMap<_, _> = state.links().map(|link| (link.ifindex, link.clone())).collect();
        assert_eq!(self.links, links, "devices that were told, devices that are there");
        let addresses: BTreeSet<_> =
            state.addresses().map(|address| (address.ifindex, address.net())).collect();
        assert_eq!(self.addresses, addresses, "addresses that were told, addresses that are there");
        let routes: BTreeMap<IpNet, HostRoute> = state.routes().map(|route| (route.prefix, route)).collect();
        assert_eq!(self.routes, routes, "routes that were told, routes that are there");
        let neighbours: BTreeMap<_, _> =
            state.neighbours().map(|neighbour| ((neighbour.ifindex, neighbour.ip), *neighbour)).collect();
        assert_eq!(self.neighbours, neighbours, "neighbours that were told, neighbours that are there");
    }
}

/// Applies buffers made of the input's bytes.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (mut state, mut told, mut listed) = (HostState::default(), Told::default(), false);
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let buffer = match input.below(16) {
            0 => {
                let count = usize::from(input.byte());
                input.take(count).to_vec()
            }
            1 if listed => {
                told.hear(end_list(&mut state));
                listed = false;
                Vec::new()
            }
            1 => {
                begin_list(&mut state);
                listed = true;
                Vec::new()
            }
            _ => message(&mut input),
        };
        told.hear(apply(&mut state, &buffer, listed));
        told.compare(&state);
    }
    let mut anew = Told::default();
    anew.hear(state.snapshot());
    anew.compare(&state);
    let _ = millrace_host::local_addresses(&state);
    let _ = millrace_host::forwarding_advice(&state, &[1, 2, 3], Default::default());
}

/// Returns a message with small numbers in its header and plausible attributes.
fn message(input: &mut Input<'_>) -> Vec<u8> {
    let kind = input.pick(&KINDS);
    let flags = input.pick(&[0u16, 0x100, 0x400, 0x800, 0x502]);
    let mut payload = header(input, kind);
    for _ in 0..input.below(6) {
        attribute(input, &mut payload, 0);
    }
    let length = 16 + payload.len() as u32;
    let length = if input.one_in(32) { u32::from(input.byte()) } else { length };
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(payload);
    bytes
}

/// Returns the fixed header of a message type: with families, devices, tables and flags that occur, or with
/// any bytes.
fn header(input: &mut Input<'_>, kind: u16) -> Vec<u8> {
    let family = input.pick(&[2u8, 10, 0, 7]);
    let device = [input.byte() % 4, 0, 0, 0];
    let mut bytes = match kind {
        16 | 17 => {
            let flags = input.byte();
            let up = if flags & 1 == 0 { [0x41, 0, 1, 0] } else { [flags, 0, flags, 0] };
            [vec![0, 0, 1, 0], device.to_vec(), up.to_vec(), vec![0; 4]].concat()
        }
        20 | 21 => [vec![family, input.byte(), input.byte(), 0], device.to_vec()].concat(),
        24 | 25 => {
            let table = input.pick(&[254u8, 255, 253, 7]);
            let length = input.pick(&[0u8, 8, 16, 24, 32, 64, 128, 200]);
            let kind = input.pick(&[1u8, 1, 1, 2, 3, 6, 7, 8, 9, 0]);
            vec![family, length, 0, input.byte() % 2, table, 4, 0, kind, input.byte() % 32, 0, 0, 0]
        }
        28 | 29 => {
            let state = 1u8 << (input.byte() % 8);
            [vec![family, 0, 0, 0], device.to_vec(), vec![state, 0, input.byte(), 0]].concat()
        }
        36 => [vec![0; 4], device.to_vec(), vec![0; 12]].concat(),
        104 | 105 => vec![family, 0, 4, 0, input.byte() % 32, 0, 0, 0],
        _ => vec![family, 0, 0, 0],
    };
    if input.one_in(16) {
        bytes.truncate(input.below(20));
    }
    bytes
}

fn attribute(input: &mut Input<'_>, bytes: &mut Vec<u8>, depth: usize) {
    let kind = u16::from(input.byte() % 48);
    let value: Vec<u8> = match input.below(10) {
        0 | 1 => vec![10, input.byte() % 4, 0, input.byte() % 4],
        2 => [&[0xfd, 0, 0, input.byte() % 4][..], &[0; 11], &[input.byte() % 4]].concat(),
        3 | 4 => vec![input.byte() % 4, 0, 0, 0],
        5 => vec![2, 0, 0, 0, 0, input.byte() % 4],
        6 => b"eth0\0".to_vec(),
        // Members of a next-hop group, or next hops of a route.
        7 => (0..input.below(4))
            .flat_map(|_| [8, 0, input.byte() % 32, 0, input.byte() % 4, 0, 0, 0])
            .collect(),
        8 if depth < 2 => {
            let mut nested = Vec::new();
            (0..input.below(4)).for_each(|_| attribute(input, &mut nested, depth + 1));
            nested
        }
        _ => {
            let count = input.below(20);
            input.take(count).to_vec()
        }
    };
    let length = value.len() as u16 + 4;
    let length = if input.one_in(32) { u16::from(input.byte()) } else { length };
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(&value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}
