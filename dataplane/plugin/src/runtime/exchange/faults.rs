//! Faults that a plugin survives.

use millrace_plugin_abi::{Fault, Verdict};

use crate::fault::FaultKind;
use crate::runtime::raw_packet::{Written, WrongVerdict, verdict_of};

/// Faults that a plugin survived.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Latest wrong verdict, until it is reported.
    wrong: Option<WrongVerdict>,
    /// Name of a function that the plugin called without its capability, until it is reported.
    not_granted: Option<&'static str>,
}

impl Faults {
    /// Converts the plugin's answer into a verdict. Keeps a wrong verdict for the report.
    #[inline]
    pub fn judge(&mut self, written: Written) -> Result<Verdict, WrongVerdict> {
        let verdict = verdict_of(written);
        if let Err(wrong) = verdict {
            self.wrong = Some(wrong);
        }
        verdict
    }

    /// Keeps for the report a call of a function whose capability the plugin's manifest doesn't request.
    #[cold]
    pub fn refuse(&mut self, function: &'static str) {
        self.not_granted = Some(function);
    }

    /// Takes the report of a fault that the plugin survives; `None` without such a fault.
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
