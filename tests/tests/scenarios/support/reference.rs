//! Reference flows: 1,000 packets a second in each direction. A fault elsewhere must not disturb them.

use std::time::Duration;

use millrace_testkit::{Flow, FlowReport, Line};

use crate::support::{assert_undisturbed, to};

/// Maximum mean gap in a flow when the kernel or the next router takes over forwarding. `bench takeover`
/// measures the median.
pub const GAP: Duration = Duration::from_millis(50);
/// Maximum single gap, because a busy machine may delay one takeover.
pub const LONGEST_GAP: Duration = Duration::from_millis(150);

/// Flows in both directions between the hosts of a line.
pub struct Reference([Flow; 2]);

impl Reference {
    /// Resolves the neighbours and starts both flows.
    pub fn start(line: &Line) -> Self {
        line.h1.run("ping -c 2 -i 0.2 -W 2 10.2.0.2");
        Self([
            Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64),
            Flow::start(&line.h2, &line.h1, to("10.1.0.2:9000"), 1000, 64),
        ])
    }

    /// Lets the flows continue for a time.
    pub fn go_on(&self, time: Duration) {
        self.0[0].go_on(time);
    }

    /// Ends both flows, and returns their reports.
    pub fn finish(self) -> [FlowReport; 2] {
        self.0.map(Flow::finish)
    }

    /// Ends both flows, and checks each direction after `changes` takeovers. No gap may exceed
    /// [`LONGEST_GAP`]; the mean of several gaps must be at most [`GAP`].
    pub fn assert_gaps(self, changes: u32, what: &str) {
        for (report, way) in self.finish().iter().zip(["h1 to h2", "h2 to h1"]) {
            println!("{what}, {way}: {report:?}");
            let longest = report.longest_loss.max(report.longest_delay);
            assert!(report.received > 0 && longest <= LONGEST_GAP, "{what}, {way}: {report:?}");
            let all = (GAP * changes).max(LONGEST_GAP);
            assert!(report.total_loss <= all, "{what}, {way}, {changes} changes: {report:?}");
            assert_eq!((report.reordered, report.duplicated), (0, 0), "{what}, {way}: {report:?}");
        }
    }

    /// Ends both flows, and checks that they lost nothing, kept their order and never waited.
    pub fn assert_undisturbed(self, what: &str) {
        self.finish().iter().for_each(|report| assert_undisturbed(report, what));
    }
}
