//! Outlet of the gates: tables and memory for packets that instances send out of ports.

use millrace_packet::{Packet, Pool};

use crate::forward::fib::Fib;
use crate::ports::PortTable;

/// Tables and memory needed to send packets out of ports that instances choose.
pub struct Outlet<'a> {
    /// FIB, for gateways.
    pub fib: &'a Fib,
    /// Ports, for their backlogs.
    pub ports: &'a PortTable,
    /// Memory for copies.
    pub pool: &'a Pool,
    /// Copies, each with its route.
    pub made: &'a mut Vec<Packet>,
    /// Number of copies made.
    pub copies: u64,
}

impl<'a> Outlet<'a> {
    /// Returns an outlet that has made no copies yet.
    pub fn new(fib: &'a Fib, ports: &'a PortTable, pool: &'a Pool, made: &'a mut Vec<Packet>) -> Self {
        Self { fib, ports, pool, made, copies: 0 }
    }
}
