//! A new version of an instance sees copies of the packets that the old one gets, and what it would do is compared.

use std::time::Duration;

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin_abi::{Instance, Packets, Progress, Verdict};
use millrace_units::Instant;

use crate::fault::overrun;

/// Slices that a call may take: the worker waits for it.
const MOST_SLICES: u32 = 10;
/// Bytes of a packet that are compared.
const COMPARED: usize = 128;

/// What came of a shadow's work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShadowReport {
    /// Packets that both had.
    pub packets: u64,
    /// Packets of these that they treated differently.
    pub different: u64,
    /// The first of those, in a sentence.
    pub first: Option<String>,
    /// What the new instance did wrong; it sees nothing more then.
    pub fault: Option<String>,
}

/// Takes the report when a shadow's work is done; `None` when there is no such instance.
pub type Reported = Box<dyn FnOnce(Option<ShadowReport>) + Send>;

/// A new instance, and what came of its work so far.
pub(crate) struct Shadow {
    instance: Box<dyn Instance>,
    /// Packets that it is still to see.
    left: u64,
    report: ShadowReport,
    reported: Option<Reported>,
    pool: Pool,
    copies: Vec<Packet>,
    keys: Vec<FlowKey>,
}

impl Drop for Shadow {
    /// Whoever waits for the report gets what there is.
    fn drop(&mut self) {
        self.tell();
    }
}

impl Shadow {
    pub fn new(mut instance: Box<dyn Instance>, packets: u64, pool: Pool, reported: Reported) -> Self {
        // Maps are for the one that counts.
        instance.attach_maps(Vec::new());
        let (report, reported) = (ShadowReport::default(), Some(reported));
        Self { instance, left: packets, report, reported, pool, copies: Vec::new(), keys: Vec::new() }
    }

    /// Copies the packets of a call before the instance gets them.
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

    /// Treats the copies in slices of the given length, and compares with what became of the packets. Whether there is more to do.
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

/// What becomes of a packet, in words.
fn in_words(verdict: Verdict) -> String {
    match verdict {
        Verdict::Pass => "it passes".to_owned(),
        Verdict::Drop(reason) => format!("it is dropped for reason {reason}"),
        Verdict::Consume => "it is used up".to_owned(),
        Verdict::Hold(until) => format!("it is held until {} ms", until.as_nanos() / 1_000_000),
        Verdict::Port(port) => format!("it leaves by port {}", port.0),
        Verdict::Ports(ports) => format!("it leaves by the ports of the bits {ports:#x}"),
        Verdict::Queue(queue) => format!("it waits in queue {}", queue.0),
        Verdict::Instance(id) => format!("instance {} gets it", id.0),
        Verdict::Classify => "it is classified anew".to_owned(),
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
        format!("byte {} has become another", at.unwrap_or_else(|| old.1.len().min(new.1.len())))
    };
    let (source, destination) = (key.source(), key.destination());
    format!("packet {number}, from {source} to {destination}: {what}")
}
