//! Isolation of principals: control groups, steal time, processors and real-time policies of this machine.

use millrace_principals::{Finding, Machine, Verdict, isolation};

use super::system::Check;

/// Checks the isolation that this machine can give to principals.
pub(super) fn checks() -> Vec<Check> {
    match Machine::detect() {
        Ok(machine) => isolation(&machine).iter().map(check).collect(),
        Err(error) => {
            vec![Check::of("isolation", Err(format!("control groups can't be inspected: {error}")))]
        }
    }
}

fn check(finding: &Finding) -> Check {
    let Finding { verdict, reason, remedy, .. } = finding;
    let text = match remedy {
        Some(remedy) => format!("{reason}; {remedy}"),
        None => reason.clone(),
    };
    let text = match verdict {
        Verdict::Isolated => Ok(text),
        Verdict::Partly => Err(format!("principals are isolated only in part: {text}")),
        Verdict::Shared => Err(format!("principals are not isolated: {text}")),
    };
    Check::of(finding.topic, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deficiency_has_its_remedy() {
        let finding = Finding {
            topic: "memory",
            verdict: Verdict::Shared,
            reason: "no controller".to_owned(),
            remedy: Some("mount it".to_owned()),
        };
        let text = "principals are not isolated: no controller; mount it".to_owned();
        assert_eq!(check(&finding), Check { topic: "memory", fine: false, text });
        let fine = Finding { verdict: Verdict::Isolated, remedy: None, ..finding };
        assert!(check(&fine).fine);
    }
}
