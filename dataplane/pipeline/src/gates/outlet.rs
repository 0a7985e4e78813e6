//! Outlet of the gates: the tables and memory that a gate needs to send packets out of ports.

use millrace_packet::{Packet, Pool};

use crate::forward::fib::Fib;
use crate::ports::PortTable;

/// Tables and memory that a gate needs to send packets out of ports that instances choose.
pub struct Outlet<'a> {
    /// FIB, which determines the gateway at the chosen port.
    pub fib: &'a Fib,
    /// Ports, whose backlogs instances may compare.
    pub ports: &'a PortTable,
    /// Memory for copies.
    pub pool: &'a Pool,
    /// Copies made, each with its route in its annotations.
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
