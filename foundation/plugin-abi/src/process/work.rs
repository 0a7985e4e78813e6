//! Work of processes, as a worker measures it.

use core::ops::AddAssign;
use core::time::Duration;

/// Work that the processes of an instance have done for its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessWork {
    /// Processor time, without that of starts and that in which the processes looked for requests.
    pub time: Duration,
    /// Number of packets.
    pub packets: u64,
    /// Number of calls with packets.
    pub calls: u64,
}

impl AddAssign for ProcessWork {
    fn add_assign(&mut self, other: Self) {
        self.time += other.time;
        self.packets += other.packets;
        self.calls += other.calls;
    }
}
