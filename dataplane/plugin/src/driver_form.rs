//! What of a path a program in the driver can do by itself, for the packets of one flow.
//!
//! That is: nothing; counting them for filters whose action is no more than that; dropping them; and taking from one token bucket, or
//! asking the form of one plugin. What the program has done is told to the bindings later, so that it is counted where a worker would
//! have counted it.

use std::sync::Arc;

use millrace_plugin_abi::DriverMemory;

use crate::path::Stage;

/// Bindings that a flow in the driver may meet.
pub const MOST_DRIVER_STEPS: usize = 4;

/// The form of an instance for the driver, which is loaded there.
#[derive(Clone, Debug)]
pub struct LoadedForm {
    /// By which number programs know it.
    pub place: u16,
    /// Instructions that it takes for a packet, at most.
    pub instructions: u32,
    /// What the instance shares with it.
    pub memory: Arc<dyn DriverMemory>,
    /// Whether it may be asked: else packets for the instance stay at the worker.
    pub is_asked: bool,
}

/// What a program does with the packets of a flow, beside forwarding them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverForm {
    /// The bindings that are told, in the order of the journey, as words.
    pub(crate) bindings: [u64; MOST_DRIVER_STEPS],
    pub(crate) count: u8,
    /// Which of them drops what finds no room in its token bucket.
    pub(crate) polices_at: Option<u8>,
    /// Which of them is one of an instance whose form is asked.
    pub(crate) asks_at: Option<u8>,
    /// The place and the instructions of that form.
    pub(crate) asked: (u16, u32),
    /// Which of them drops everything.
    pub(crate) drops_at: Option<u8>,
}

/// A step of such a form, for who tells people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverStep {
    /// Packets are counted.
    Count,
    /// Packets take from a token bucket.
    Police,
    /// The form of a plugin is asked, which takes so many instructions.
    Ask(u32),
    /// Packets are dropped.
    Drop,
}

/// Why a path is a worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverRefusal {
    /// An instance handles its packets that has no form for the driver.
    Instance,
    /// An instance handles its packets that was placed at the workers, or whose form is not loaded.
    Placed,
    /// An instance handles its packets that is not well, or beside which another one is tried out.
    Unwell,
    /// Their sources are told that they are refused.
    Reject,
    /// A filter names a queue for them.
    Queue,
    /// They are copied.
    Copy,
    /// Too many filters match.
    Steps,
    /// There are several token buckets or forms of plugins, or one before a filter that drops.
    Policers,
}

impl DriverForm {
    /// Whether all packets are dropped.
    pub fn drops(&self) -> bool {
        self.drops_at.is_some()
    }

    /// The place of the form of a plugin that is asked.
    pub fn asks(&self) -> Option<u16> {
        self.asks_at.map(|_| self.asked.0)
    }

    /// Its steps.
    pub fn steps(&self) -> impl Iterator<Item = DriverStep> + '_ {
        (0..self.count).map(|step| match step {
            step if self.drops_at == Some(step) => DriverStep::Drop,
            step if self.polices_at == Some(step) => DriverStep::Police,
            step if self.asks_at == Some(step) => DriverStep::Ask(self.asked.1),
            _ => DriverStep::Count,
        })
    }

    pub(crate) fn add(&mut self, stage: &Stage, step: DriverStep) -> Result<(), DriverRefusal> {
        let at = self.count;
        let place = self.bindings.get_mut(usize::from(at)).ok_or(DriverRefusal::Steps)?;
        *place = stage.binding.to_word();
        self.count += 1;
        let one = match step {
            DriverStep::Count => return Ok(()),
            DriverStep::Police => &mut self.polices_at,
            DriverStep::Ask(_) => &mut self.asks_at,
            DriverStep::Drop => &mut self.drops_at,
        };
        let is_first = one.is_none();
        *one = Some(at);
        // What was dropped is told in one number.
        let drop = [self.polices_at, self.asks_at, self.drops_at];
        let is_only = drop.iter().flatten().count() == 1;
        if is_first && is_only { Ok(()) } else { Err(DriverRefusal::Policers) }
    }
}
