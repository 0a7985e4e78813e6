//! Shadow instances: a new version of an instance processes copies of the old version's packets, and the
//! router compares the verdicts.

use std::time::Duration;

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin_abi::{Instance, Packets, Progress, Verdict};
use millrace_units::Instant;

use crate::fault::overrun;

/// Maximum number of slices of a shadow call, for which the worker waits.
const MOST_SLICES: u32 = 10;
/// Number of packet bytes that are compared.
const COMPARED: usize = 128;

/// Result of a shadow run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShadowReport {
    /// Packets that both instances processed.
    pub packets: u64,
    /// Number of these packets that the instances treated differently.
    pub different: u64,
    /// Description of the first difference.
    pub first: Option<String>,
    /// Fault of the new instance, which ends the comparison.
    pub fault: Option<String>,
}

/// Receiver of the report at the end of a shadow run; gets `None` if the instance doesn't exist.
pub type Reported = Box<dyn FnOnce(Option<ShadowReport>) + Send>;

/// Shadow instance with its results so far.
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
        // Only the active instance accesses maps.
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

    /// Processes the copies in slices of the given length, and compares the results with those of the active
    /// instance. Returns whether packets are left to compare.
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
        for _ in 1..MOST_SLICES {
            if progress == Progress::Suspended {
                progress = self.instance.resume(&mut copies, now);
            }
        }
        if progress == Progress::Suspended {
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
        Verdict::Pass => "it passes".to_owned(),
        Verdict::Drop(reason) => format!("it is dropped for reason {reason}"),
        Verdict::Consume => "it is consumed".to_owned(),
        Verdict::Hold(until) => format!("it is held until {} ms", until.as_nanos() / 1_000_000),
        Verdict::Port(port) => format!("it leaves by port {}", port.0),
        Verdict::Ports(ports) => format!("it leaves by the ports of the bits {ports:#x}"),
        Verdict::Queue(queue) => format!("it waits in queue {}", queue.0),
        Verdict::Instance(id) => format!("instance {} gets it", id.0),
        Verdict::Classify => "it is classified again".to_owned(),
        Verdict::Fault => "the instance fails at it".to_owned(),
    }
}

type Treated<'a> = (Verdict, &'a [u8], u8);

fn difference(number: u64, key: &FlowKey, old: Treated<'_>, new: Treated<'_>) -> String {
    let what = if old.0 != new.0 {
        format!("{} before, {} now", in_words(old.0), in_words(new.0))
    } else if old.2 != new.2 {
        format!("tag {} has become {}", old.2, new.2)
    } else {
        let at = old.1.iter().zip(new.1).position(|(old, new)| old != new);
        format!("byte {} differs", at.unwrap_or_else(|| old.1.len().min(new.1.len())))
    };
    let (source, destination) = (key.source(), key.destination());
    format!("packet {number}, from {source} to {destination}: {what}")
}
