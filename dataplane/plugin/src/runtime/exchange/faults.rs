//! Faults after which a plugin continues to run.

use millrace_plugin_abi::{Fault, Verdict};

use crate::fault::FaultKind;
use crate::runtime::raw_packet::{Written, WrongVerdict, verdict_of};

/// Unreported faults after which the plugin continues to run: the latest of each kind.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Latest invalid verdict.
    wrong: Option<WrongVerdict>,
    /// Name of the latest function that the plugin called without its capability.
    not_granted: Option<&'static str>,
}

impl Faults {
    /// Converts the plugin's answer into a verdict. Records an invalid verdict as a fault.
    #[inline]
    pub fn judge(&mut self, written: Written) -> Result<Verdict, WrongVerdict> {
        let verdict = verdict_of(written);
        if let Err(wrong) = verdict {
            self.wrong = Some(wrong);
        }
        verdict
    }

    /// Records a call of a function whose capability the manifest doesn't request.
    #[cold]
    pub fn refuse(&mut self, function: &'static str) {
        self.not_granted = Some(function);
    }

    /// Removes and returns a recorded fault; `None` if there is none.
    pub fn take(&mut self) -> Option<Fault> {
        if let Some(wrong) = self.wrong.take() {
            return Some(Fault { kind: FaultKind::WrongVerdict.name(), text: wrong.to_string() });
        }
        let function = self.not_granted.take()?;
        let text =
            format!("the plugin called {function}, but its manifest lacks the capability for this function");
        Some(Fault { kind: FaultKind::NotGranted.name(), text })
    }
}
