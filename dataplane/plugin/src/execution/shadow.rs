//! Shadow: a new version of an instance runs on copies of the old version's packets, and the router compares
//! the verdicts.

use std::time::{Duration, Instant as Clock};

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin_abi::{Instance, Packets, Progress, Verdict};
use millrace_units::Instant;

use crate::fault::overrun;

/// Maximum number of slices of a shadow's call. The worker waits for the end of the call.
const MOST_SLICES: u32 = 10;
/// Maximum time of a shadow's call in another process. The worker waits for the end of the call.
const LONGEST_WAIT: Duration = Duration::from_millis(5);
/// Number of leading packet bytes that are compared.
const COMPARED: usize = 128;

/// Result of a shadow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShadowReport {
    /// Packets that both instances processed.
    pub packets: u64,
    /// Number of these packets whose verdict, first bytes or tag differed.
    pub different: u64,
    /// Description of the first difference; `None` if there was none.
    pub first: Option<String>,
    /// Fault of the new version, which ends the comparison; `None` if it had no fault.
    pub fault: Option<String>,
}

/// Receiver of a shadow's report at its end; gets `None` if the instance doesn't exist.
pub type Reported = Box<dyn FnOnce(Option<ShadowReport>) + Send>;

/// New version of an instance, with the results of the comparison so far.
pub(crate) struct Shadow {
    instance: Box<dyn Instance>,
    /// Number of packets still to compare.
    left: u64,
    report: ShadowReport,
    reported: Option<Reported>,
    pool: Pool,
    copies: Vec<Packet>,
    keys: Vec<FlowKey>,
}

impl Drop for Shadow {
    /// Sends the results so far to the receiver of the report.
    fn drop(&mut self) {
        self.tell();
    }
}

impl Shadow {
    pub fn new(mut instance: Box<dyn Instance>, packets: u64, pool: Pool, reported: Reported) -> Self {
        // Only the active instance may access maps.
        instance.attach_maps(Vec::new());
        let (report, reported) = (ShadowReport::default(), Some(reported));
        Self { instance, left: packets, report, reported, pool, copies: Vec::new(), keys: Vec::new() }
    }

    /// Copies the packets of a call before the active instance processes them.
    pub fn watch(&mut self, packets: &[Packet], keys: &[FlowKey], members: &[u16]) {
        self.copies.clear();
        self.keys.clear();
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        for index in members.iter().take(most).map(|member| usize::from(*member)) {
            let (Some(packet), Some(key)) = (packets.get(index), keys.get(index)) else { break };
            let Some(copy) = packet.copy(&self.pool) else { break };
            self.copies.push(copy);
            self.keys.push(*key);
        }
    }

    /// Runs the new version on the copies, and compares its results with the results of the active instance.
    /// `slice` is the length of a slice. Returns whether the shadow has packets left to compare.
    #[expect(
        clippy::disallowed_methods,
        reason = "the worker waits, so the time that it passes stands still"
    )]
    pub fn compare(
        &mut self,
        packets: &[Packet],
        members: &[u16],
        verdicts: &[Verdict],
        (now, slice): (Instant, Duration),
    ) -> bool {
        let mut own = vec![Verdict::Pass; self.copies.len()];
        let numbers: Vec<u16> = (0..self.copies.len() as u16).collect();
        let mut copies = Packets::new(&mut self.copies, &self.keys, &numbers, &mut own);
        let mut progress = self.instance.process(&mut copies, now);
        let begun = Clock::now();
        while progress == Progress::Awaited && begun.elapsed() < LONGEST_WAIT {
            std::thread::yield_now();
            progress = self.instance.resume(&mut copies, now);
        }
        for _ in 1..MOST_SLICES {
            if progress == Progress::Suspended {
                progress = self.instance.resume(&mut copies, now);
            }
        }
        if progress != Progress::Done {
            self.instance.abort();
            self.report.fault = Some(overrun(self.copies.len(), MOST_SLICES, slice));
        }
        if let Some(fault) = self.instance.take_fault() {
            self.report.fault.get_or_insert(format!("{}: {}", fault.kind, fault.text));
        }
        for (((copy, key), verdict), member) in self.copies.iter().zip(&self.keys).zip(&own).zip(members) {
            let index = usize::from(*member);
            let (Some(decided), Some(packet)) = (verdicts.get(index), packets.get(index)) else { break };
            self.report.packets += 1;
            let old = (*decided, start(packet), packet.tag);
            let new = (*verdict, start(copy), copy.tag);
            if self.report.fault.is_none() && old != new {
                self.report.different += 1;
                let number = self.report.packets;
                self.report.first.get_or_insert_with(|| difference(number, key, old, new));
            }
        }
        self.left = self.left.saturating_sub(self.copies.len() as u64);
        self.copies.clear();
        let goes_on = self.left > 0 && self.report.fault.is_none();
        if !goes_on {
            self.tell();
        }
        goes_on
    }

    fn tell(&mut self) {
        if let Some(reported) = self.reported.take() {
            reported(Some(std::mem::take(&mut self.report)));
        }
    }
}

fn start(packet: &Packet) -> &[u8] {
    let data = packet.data();
    data.get(..COMPARED).unwrap_or(data)
}

/// Describes a verdict in words.
fn in_words(verdict: Verdict) -> String {
    match verdict {
        Verdict::Pass => "passes it".to_owned(),
        Verdict::Drop(reason) => format!("drops it for reason {reason}"),
        Verdict::Reject(reason) => format!("rejects it for reason {reason}"),
        Verdict::Consume => "consumes it".to_owned(),
        Verdict::Hold(until) => format!("holds it until {} ms", until.as_nanos() / 1_000_000),
        Verdict::Port(port) => format!("sends it by port {}", port.0),
        Verdict::Ports(ports) => format!("sends it by the ports of the bit mask {ports:#x}"),
        Verdict::Queue(queue) => format!("puts it into queue {}", queue.0),
        Verdict::Instance(id) => format!("gives it to instance {}", id.0),
        Verdict::Classify => "classifies it again".to_owned(),
        Verdict::Fault => "fails at it".to_owned(),
    }
}

type Treated<'a> = (Verdict, &'a [u8], u8);

fn difference(number: u64, key: &FlowKey, old: Treated<'_>, new: Treated<'_>) -> String {
    let what = if old.0 != new.0 {
        format!("the old version {}, the new version {}", in_words(old.0), in_words(new.0))
    } else if old.2 != new.2 {
        format!("the old version sets tag {}, the new version tag {}", old.2, new.2)
    } else {
        let at = old.1.iter().zip(new.1).position(|(old, new)| old != new);
        format!("byte {} differs", at.unwrap_or_else(|| old.1.len().min(new.1.len())))
    };
    let (source, destination) = (key.source(), key.destination());
    format!("packet {number}, from {source} to {destination}: {what}")
}
