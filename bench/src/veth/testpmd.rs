//! Peer: DPDK's testpmd. It rewrites the MAC addresses, and forwards through AF_XDP sockets, as Millrace
//! does.

use std::time::Duration;

use millrace_wire::MacAddr;
use nix::sys::signal::Signal;

use crate::BenchError;
use crate::testbed::network::{GENERATOR_MAC, Network, SINK_MAC};
use crate::testbed::process::{Processor, Running, command};

/// Program file of testpmd, from the package dpdk-dev.
pub(super) const PROGRAM: &str = "dpdk-testpmd";
/// Time limit until testpmd forwards.
const PATIENCE: Duration = Duration::from_secs(15);

/// Number of arrived packets up to which testpmd counts as not running: even without it, neighbour and
/// multicast packets of the kernels arrive at the far end.
const STRAYS: u64 = 100;

/// Running testpmd, which forwards between `r1` and `r2`. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Testpmd {
    running: Running,
}

impl Testpmd {
    /// Starts testpmd. Waits until packets arrive at the far end, because testpmd prints its messages too
    /// late. Both threads of testpmd are bound to `processor`; one of them only waits.
    pub fn start(network: &Network, processor: Processor) -> Result<Self, BenchError> {
        let mut command = command(network.r.open()?, PROGRAM, Some(processor))?;
        command.args(["--lcores", &format!("0@{processor},1@{processor}"), "--main-lcore", "0"]);
        command.args(["--no-huge", "-m", "512", "--no-pci", "--no-telemetry"]);
        command.args(["--file-prefix", network.r.name()]);
        for (number, device) in ["r1", "r2"].iter().enumerate() {
            command
                .args(["--vdev", &format!("net_af_xdp{number},iface={device},start_queue=0,queue_count=1")]);
        }
        command.args(["--", "--forward-mode=mac", "--nb-cores=1", "--auto-start", "--total-num-mbufs=32768"]);
        command.args(["--eth-peer", &format!("1,{}", MacAddr(SINK_MAC))]);
        command.args(["--eth-peer", &format!("0,{}", MacAddr(GENERATOR_MAC))]);
        let before = network.s.received("s0")?;
        let mut running = Running::start(&mut command)?;
        running.wait_ready(PATIENCE, || Ok(network.s.received("s0")? > before + STRAYS))?;
        Ok(Self { running })
    }

    /// Stops testpmd and waits until it has released the devices.
    pub fn stop(self) -> Result<(), BenchError> {
        self.running.stop(Signal::SIGINT).map(drop)
    }
}
