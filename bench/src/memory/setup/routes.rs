//! Routes of a router in memory, and the writer that changes them during forwarding.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use ipnet::IpNet;
use millrace_forward::{NextHop, NextHops, Route, SharedFib};
use millrace_pipeline::{Command, RouteChange, RouteCommand};
use rtrb::{Producer, PushError};

use super::packets::destination;
use super::{OUT, Place};
use crate::BenchError;
use crate::family::Family;

/// Maximum number of replaced parts of the route table that wait for reuse. At this number, the writer starts
/// a grace period.
const WAITING: usize = 1024;

/// Writer that changes routes while the router forwards.
pub(crate) struct RouteWriter<'a> {
    pub(super) fib: &'a mut SharedFib,
    pub(super) commands: &'a mut Producer<Command>,
    pub(super) stop: &'a AtomicBool,
}

impl RouteWriter<'_> {
    /// Whether the measurement has ended.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Adds or removes routes to `prefixes`. They use the same next hop as all other routes.
    pub fn change(&mut self, family: Family, prefixes: &[IpNet], add: bool) -> Result<(), BenchError> {
        for prefix in prefixes {
            if add {
                let (number, _) = self.fib.intern(Route::Forward(next_hop(family, &[OUT], 0)));
                let stored = self.fib.store(*prefix, number);
                stored.map_err(|error| BenchError::measurement("routes", error.to_string()))?;
            } else {
                self.fib.remove(*prefix);
            }
        }
        let changed = prefixes.iter().map(|prefix| RouteChange { prefix: *prefix, own: false }).collect();
        self.push(RouteCommand::Changed(changed).into());
        if self.fib.waiting() >= WAITING {
            let epoch = self.fib.close_epoch();
            let (reply, answer) = sync_channel(1);
            self.push(Command::Barrier(reply));
            if answer.recv().is_ok() {
                self.fib.quiesced(epoch);
            }
        }
        Ok(())
    }

    fn push(&mut self, command: Command) {
        let mut waiting = Some(command);
        while let Some(command) = waiting.take() {
            if let Err(PushError::Full(command)) = self.commands.push(command) {
                std::thread::yield_now();
                waiting = Some(command);
            }
        }
    }
}

/// Returns the next hop behind an output port, by the port's index.
pub(super) fn gateway(family: Family, place: usize) -> IpAddr {
    let subnet = out_subnet(place);
    match family {
        Family::V4 => IpAddr::from([10, subnet, 0, 1]),
        Family::V6 => IpAddr::from([0xfd00, u16::from(subnet), 0, 0, 0, 0, 0, 1]),
    }
}

/// Returns the subnet number of an input port's addresses.
pub(super) fn in_subnet(place: usize) -> u8 {
    1 + 2 * place as u8
}

/// Returns the subnet number of an output port's addresses.
pub(super) fn out_subnet(place: usize) -> u8 {
    2 + 2 * place as u8
}

fn next_hop(family: Family, outs: &[Place], place: usize) -> NextHops {
    NextHops::single(NextHop::new(outs[place].port, Some(gateway(family, place))))
}

/// Returns routes that use the output ports in rotation.
pub(super) fn routes(family: Family, count: u32, outs: &[Place]) -> Vec<(IpNet, Option<Route>)> {
    let hops: Vec<NextHops> = (0..outs.len()).map(|place| next_hop(family, outs, place)).collect();
    let length = if family == Family::V4 { 24 } else { 64 };
    let route = |route: u32| {
        let network = IpNet::new(destination(family, route, 0), length).ok()?;
        Some((network, Some(Route::Forward(hops[route as usize % hops.len()].clone()))))
    };
    (0..count).filter_map(route).collect()
}
