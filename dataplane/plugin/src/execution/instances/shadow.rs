//! Shadow: a new version of an instance runs on copies of the old version's packets, and the router compares
//! the verdicts.
//!
//! If another process runs the new version, the worker doesn't wait for its answer: it looks for the answer in each
//! iteration, as for other calls of processes, and compares the verdicts then. Packets that arrive meanwhile are not
//! compared.

use std::time::Duration;

use millrace_packet::{BATCH_SIZE, FlowKey, Packet, Pool};
use millrace_plugin_abi::{Instance, Packets, Progress, Verdict};
use millrace_units::{Instant, PrincipalId};

use super::awaited::Awaited;
use super::pace::MOST_IN_CALL;
use crate::CallLimits;
use crate::fault::overrun;

/// Maximum number of slices of a shadow's call at the worker, which runs all of them at once.
const MOST_SLICES: u32 = 10;
/// Number of leading packet bytes that are compared.
const COMPARED: usize = 128;

/// Result of a shadow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShadowReport {
    /// Packets that both instances processed.
    pub packets: u64,
    /// Number of these packets whose verdict, first bytes or tag differed.
    pub different: u64,
    /// Packets that only the active instance got: the shadow was in a call, memory was short, or the call of the active
    /// instance was aborted.
    pub skipped: u64,
    /// Packets of a call that the shadow's process had not answered at its time limit, or at the end of the comparison.
    pub unanswered: u64,
    /// Description of the first difference; `None` if there was none.
    pub first: Option<String>,
    /// Fault of the new version, which ends the comparison; `None` if it had no fault.
    pub fault: Option<String>,
}

/// Receiver of a shadow's report at its end; gets `None` if the instance doesn't exist.
pub type Reported = Box<dyn FnOnce(Option<ShadowReport>) + Send>;

/// Step of the comparison of a call.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// No call is compared.
    Idle,
    /// The packets are copied. The call of the active instance has not ended.
    Copied,
    /// Another process runs the shadow's call.
    Awaited(Awaited),
}

/// New version of an instance, with the results of the comparison so far.
pub(crate) struct Shadow {
    instance: Box<dyn Instance>,
    /// Number of packets still to compare.
    left: u64,
    report: ShadowReport,
    reported: Option<Reported>,
    pool: Pool,
    step: Step,
    /// Principal that pays for the call.
    payer: Option<PrincipalId>,
    /// Copies of the call's packets. They share no memory with the packets, which may leave the router first.
    copies: Vec<Packet>,
    keys: Vec<FlowKey>,
    /// Verdicts of the shadow.
    verdicts: Vec<Verdict>,
    /// Results of the active instance.
    results: Vec<CallResult>,
}

impl Drop for Shadow {
    /// Sends the results so far to the receiver of the report.
    fn drop(&mut self) {
        self.forget_call();
        if let Some(reported) = self.reported.take() {
            reported(Some(std::mem::take(&mut self.report)));
        }
    }
}

impl Shadow {
    pub fn new(mut instance: Box<dyn Instance>, packets: u64, pool: Pool, reported: Reported) -> Self {
        // Only the active instance may access maps.
        instance.attach_maps(Vec::new());
        Self {
            instance,
            left: packets,
            report: ShadowReport::default(),
            reported: Some(reported),
            pool,
            step: Step::Idle,
            payer: None,
            copies: Vec::new(),
            keys: Vec::new(),
            verdicts: Vec::new(),
            results: Vec::new(),
        }
    }

    /// Copies the packets of a call before the active instance processes them. Skips packets while another process runs
    /// the shadow's previous call. `payer`: principal that pays for the call.
    pub fn watch(
        &mut self,
        (packets, keys): (&[Packet], &[FlowKey]),
        members: &[u16],
        payer: Option<PrincipalId>,
    ) {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(members.len());
        if matches!(self.step, Step::Awaited(_)) {
            self.report.skipped += wanted as u64;
            return;
        }
        self.forget_call();
        let most = if self.instance.is_awaited() { wanted.min(MOST_IN_CALL) } else { wanted };
        for index in members.iter().take(most).map(|member| usize::from(*member)) {
            let (Some(packet), Some(key)) = (packets.get(index), keys.get(index)) else { break };
            let Some(copy) = own_copy(packet, &self.pool) else { break };
            self.copies.push(copy);
            self.keys.push(*key);
        }
        self.report.skipped += (wanted - self.copies.len()) as u64;
        (self.step, self.payer) = (Step::Copied, payer);
    }

    /// Runs the new version on the copies, and compares its results with the results of the active instance. If another
    /// process runs the new version, [`look`](Self::look) compares later. `slice` is the length of a slice. Returns
    /// whether the shadow has packets left to compare.
    pub fn compare(
        &mut self,
        packets: &[Packet],
        members: &[u16],
        verdicts: &[Verdict],
        (now, slice): (Instant, Duration),
    ) -> bool {
        if !matches!(self.step, Step::Copied) || self.copies.is_empty() {
            return true;
        }
        for index in members.iter().take(self.copies.len()).map(|member| usize::from(*member)) {
            let (Some(verdict), Some(packet)) = (verdicts.get(index), packets.get(index)) else { break };
            self.results.push(CallResult::of(*verdict, packet));
        }
        self.verdicts.resize(self.copies.len(), Verdict::Pass);
        let mut progress = self.call(|instance, copies| instance.process(copies, now));
        for _ in 1..MOST_SLICES {
            if progress == Progress::Suspended {
                progress = self.call(|instance, copies| instance.resume(copies, now));
            }
        }
        match progress {
            Progress::Awaited => {
                self.step = Step::Awaited(Awaited::since(now));
                return true;
            }
            Progress::Suspended => {
                self.instance.abort();
                self.report.fault = Some(overrun(self.copies.len(), MOST_SLICES, slice));
            }
            Progress::Done => {}
        }
        self.end_call()
    }

    /// Looks for the answer of the process that runs the shadow's call. If it has arrived, compares its results. A call
    /// has the time limit of a call of an instance. Returns whether the shadow has packets left to compare.
    pub fn look(&mut self, now: Instant) -> bool {
        let Step::Awaited(mut awaited) = self.step else { return true };
        if self.call(|instance, copies| instance.resume(copies, now)) == Progress::Done {
            return self.end_call();
        }
        let instance = &self.instance;
        awaited.look(instance.answers(), now);
        let limit = CallLimits::default().awaited(self.copies.len());
        let exceeded = awaited.exceeded(limit, || (instance.consumed(), instance.patience()));
        self.step = Step::Awaited(awaited);
        let Some(exceeded) = exceeded else { return true };
        self.instance.abort();
        self.report.fault = Some(exceeded.to_string());
        self.forget_call();
        false
    }

    /// Returns the principal that pays for the call which another process runs, and the time of the latest look for its
    /// answer; `None` if no process runs a call.
    pub fn awaited(&self) -> Option<(Option<PrincipalId>, Instant)> {
        match self.step {
            Step::Awaited(awaited) => Some((self.payer, awaited.seen)),
            Step::Idle | Step::Copied => None,
        }
    }

    /// Lets the call that a removed principal pays for continue without a payer.
    pub fn forget_payer(&mut self, payer: PrincipalId) {
        self.payer = self.payer.filter(|known| *known != payer);
    }

    /// Begins or continues the call of the new version.
    fn call(&mut self, what: impl FnOnce(&mut dyn Instance, &mut Packets<'_>) -> Progress) -> Progress {
        let members: [u16; BATCH_SIZE] = std::array::from_fn(|number| number as u16);
        let members = members.get(..self.copies.len()).unwrap_or(&members);
        let mut copies = Packets::new(&mut self.copies, &self.keys, members, &mut self.verdicts);
        what(&mut *self.instance, &mut copies)
    }

    /// Compares the results of a call that the new version has ended. Returns whether the shadow has packets left to
    /// compare.
    fn end_call(&mut self) -> bool {
        if let Some(fault) = self.instance.take_fault() {
            self.report.fault.get_or_insert(format!("{}: {}", fault.kind, fault.text));
        }
        let copies = self.copies.iter().zip(&self.keys).zip(&self.verdicts);
        for (((copy, key), verdict), old) in copies.zip(&self.results) {
            self.report.packets += 1;
            let new = CallResult::of(*verdict, copy);
            if self.report.fault.is_none() && *old != new {
                self.report.different += 1;
                let number = self.report.packets;
                self.report.first.get_or_insert_with(|| difference(number, key, old, &new));
            }
        }
        self.left = self.left.saturating_sub(self.copies.len() as u64);
        self.clear_call();
        self.left > 0 && self.report.fault.is_none()
    }

    /// Ends the comparison of a call without a result, if one is compared. Counts its packets.
    pub fn forget_call(&mut self) {
        let packets = self.copies.len() as u64;
        match self.step {
            Step::Idle => {}
            Step::Copied => self.report.skipped += packets,
            Step::Awaited(_) => self.report.unanswered += packets,
        }
        self.clear_call();
    }

    fn clear_call(&mut self) {
        self.step = Step::Idle;
        self.copies.clear();
        self.keys.clear();
        self.verdicts.clear();
        self.results.clear();
    }
}

/// Copies a packet with all its bytes. Returns `None` if the pool has too few free frames.
fn own_copy(packet: &Packet, pool: &Pool) -> Option<Packet> {
    let mut copy = packet.copy(pool)?;
    copy.make_writable(pool).then_some(copy)
}

/// Result of a call for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CallResult {
    verdict: Verdict,
    tag: u8,
    /// First bytes of the packet; zeros behind its end.
    start: [u8; COMPARED],
    /// Number of these bytes that the packet has.
    length: u8,
}

impl CallResult {
    fn of(verdict: Verdict, packet: &Packet) -> Self {
        let mut start = [0; COMPARED];
        let length = packet.read(0, &mut start) as u8;
        Self { verdict, tag: packet.tag, start, length }
    }

    /// Returns the first bytes of the packet.
    fn start(&self) -> &[u8] {
        self.start.get(..self.length.into()).unwrap_or(&self.start)
    }
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

/// Describes a difference between the results of the old and the new version.
fn difference(number: u64, key: &FlowKey, old: &CallResult, new: &CallResult) -> String {
    let what = if old.verdict != new.verdict {
        format!("the old version {}, the new version {}", in_words(old.verdict), in_words(new.verdict))
    } else if old.tag != new.tag {
        format!("the old version sets tag {}, the new version tag {}", old.tag, new.tag)
    } else {
        let at = old.start().iter().zip(new.start()).position(|(old, new)| old != new);
        format!("byte {} differs", at.unwrap_or_else(|| old.start().len().min(new.start().len())))
    };
    let (source, destination) = (key.source(), key.destination());
    format!("packet {number}, from {source} to {destination}: {what}")
}
