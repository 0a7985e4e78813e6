//! Converts the configuration of scheduler nodes. Refuses settings that have no effect, either on a node of
//! this kind or under a parent of this kind.

use millrace_config::{
    Bits, CurveText, DelayTime, Length, LengthUnit, Manage, QueueSize, SchedulerKind, SchedulerNode,
};
use millrace_schedule::{
    Aqm, CodelSettings, Curve, Curves, FlowQueuesSettings, FqCodelSettings, NodeKind, QueueSettings, Rate,
    RedSettings, RedUnit, Share,
};
use millrace_units::Message;

use crate::ControlError;

/// Default burst of a token bucket, in bytes: two Ethernet frames.
const BURST: u32 = 2 * 1538;

/// Returns the share of a node under its parent: level, quantum or curves, depending on the parent's kind.
pub(crate) fn share(node: &SchedulerNode, above: Option<SchedulerKind>) -> Result<Share, ControlError> {
    let needed = |what: Message| {
        let kind = above.map_or("port", SchedulerKind::name);
        let message = Message::from(format!("node {:?}: it is under a {kind}, so it needs ", node.name));
        ControlError::invalid(message.append(what))
    };
    Ok(match above {
        Some(SchedulerKind::Priority) => Share::Level(node.level.ok_or_else(|| needed("a level".into()))?),
        Some(SchedulerKind::DeficitRoundRobin) => {
            Share::Quantum(node.quantum.ok_or_else(|| needed("a quantum".into()))?.bytes_u32())
        }
        Some(SchedulerKind::Hfsc) => {
            let curves = [node.real_time, node.link_sharing, node.upper_limit].map(|text| text.map(curve));
            let [real_time, link_sharing, upper_limit] = curves;
            if real_time.is_none() && link_sharing.is_none() {
                return Err(needed(
                    Message::from("a curve: ").key("real-time").text(" or ").key("link-sharing"),
                ));
            }
            Share::Curves(Curves { real_time, link_sharing, upper_limit })
        }
        _ => Share::Only,
    })
}

fn curve(CurveText { first, micros, then }: CurveText) -> Curve {
    Curve { first: Rate(first.0), duration: micros.saturating_mul(1000), then: Rate(then.0) }
}

/// Returns the kind of a node with its settings. `port` is the port's rate.
pub(crate) fn kind(
    node: &SchedulerNode,
    above: Option<SchedulerKind>,
    port: Option<Bits>,
) -> Result<NodeKind, ControlError> {
    refuse_what_means_nothing(node, above)?;
    Ok(match node.kind {
        SchedulerKind::Fifo => NodeKind::Fifo(queue(node, port)?),
        SchedulerKind::FlowQueues => {
            let usual = FlowQueuesSettings::default();
            NodeKind::FlowQueues(FlowQueuesSettings {
                queues: node.queues.unwrap_or(usual.queues),
                quantum: own_quantum(node, above).unwrap_or(usual.quantum),
                queue: queue(node, port)?,
                capacity: node.rate.map(|Bits(bits)| Rate(bits)),
                ..usual
            })
        }
        SchedulerKind::FqCodel => {
            let usual = FqCodelSettings::default();
            NodeKind::FqCodel(FqCodelSettings {
                flows: node.queues.unwrap_or(usual.flows),
                quantum: own_quantum(node, above).unwrap_or(usual.quantum),
                limit: node.limit.unwrap_or(usual.limit),
                codel: codel(node),
                ..usual
            })
        }
        SchedulerKind::Priority => NodeKind::Priority,
        SchedulerKind::DeficitRoundRobin => NodeKind::DeficitRoundRobin,
        SchedulerKind::Hfsc => NodeKind::Hfsc,
        SchedulerKind::TokenBucket => {
            let rate = node.rate.ok_or_else(|| {
                ControlError::invalid(format!("node {:?}: a token-bucket needs a rate", node.name))
            })?;
            NodeKind::TokenBucket {
                rate: Rate(rate.0),
                burst: node.burst.map_or(BURST, QueueSize::bytes_u32),
            }
        }
    })
}

/// Returns the quantum that each flow of a node gets. Returns `None` under a deficit round robin, where the
/// setting is the quantum of the node.
fn own_quantum(node: &SchedulerNode, above: Option<SchedulerKind>) -> Option<u32> {
    node.quantum.filter(|_| above != Some(SchedulerKind::DeficitRoundRobin)).map(QueueSize::bytes_u32)
}

fn queue(node: &SchedulerNode, port: Option<Bits>) -> Result<QueueSettings, ControlError> {
    let threshold = node.threshold.map_or(QueueSettings::default().threshold, QueueSize::bytes_u32);
    let aqm = match node.manage {
        None | Some(Manage::TailDrop) => Aqm::TailDrop,
        Some(Manage::Codel) => Aqm::Codel(codel(node)),
        Some(Manage::Red) => {
            let usual = RedSettings::default();
            let (unit, half) = match node.unit {
                None | Some(LengthUnit::Bytes) => (RedUnit::Bytes, threshold / 2),
                Some(LengthUnit::Packets) => (RedUnit::Packets, threshold / 2 / usual.mean_packet),
            };
            let maximum = length(node, "maximum", node.maximum, unit)?.unwrap_or(half.max(1));
            let minimum = length(node, "minimum", node.minimum, unit)?.unwrap_or(maximum / 4);
            Aqm::Red(RedSettings {
                unit,
                minimum,
                maximum,
                probability: node.probability.unwrap_or(usual.probability),
                weight: node.weight.unwrap_or(usual.weight),
                gentle: node.gentle.unwrap_or(usual.gentle),
                ecn: node.ecn.unwrap_or(true),
                // While the queue is empty, RED's average queue length falls at the port's rate.
                rate: port.map_or(usual.rate, |Bits(bits)| Rate(bits)),
                ..usual
            })
        }
    };
    Ok(QueueSettings { threshold, aqm })
}

/// Converts an average queue length to `unit`, the unit of RED.
fn length(
    node: &SchedulerNode,
    key: &str,
    length: Option<Length>,
    unit: RedUnit,
) -> Result<Option<u32>, ControlError> {
    let refused = |hint: String| Err(ControlError::invalid(format!("node {:?}: {key}: {hint}", node.name)));
    match (length, unit) {
        (None, _) => Ok(None),
        (Some(Length::Bytes(size)), RedUnit::Bytes) => Ok(Some(size.bytes_u32())),
        (Some(Length::Packets(packets)), RedUnit::Packets) => Ok(Some(packets)),
        (Some(Length::Packets(number)), RedUnit::Bytes) => {
            refused(format!("{number} has no unit: write \"{number}B\", or set unit = \"packets\""))
        }
        (Some(Length::Bytes(size)), RedUnit::Packets) => {
            refused(format!("\"{size}\" is a size: with unit = \"packets\" write a number"))
        }
    }
}

fn codel(node: &SchedulerNode) -> CodelSettings {
    let usual = CodelSettings::default();
    CodelSettings {
        target: node.target.map_or(usual.target, nanoseconds),
        interval: node.interval.map_or(usual.interval, nanoseconds),
        ecn: node.ecn.unwrap_or(true),
    }
}

fn nanoseconds(time: DelayTime) -> u64 {
    time.microseconds().saturating_mul(1000)
}

fn refuse_what_means_nothing(node: &SchedulerNode, above: Option<SchedulerKind>) -> Result<(), ControlError> {
    use SchedulerKind::{DeficitRoundRobin, Fifo, FlowQueues, FqCodel, Hfsc, Priority, TokenBucket};
    let is = |kinds: &[SchedulerKind]| kinds.contains(&node.kind);
    let red = is(&[Fifo, FlowQueues]) && node.manage == Some(Manage::Red);
    let codel = is(&[FqCodel]) || is(&[Fifo, FlowQueues]) && node.manage == Some(Manage::Codel);
    let under = |kind| above == Some(kind);
    let settings = [
        ("level", node.level.is_some(), under(Priority)),
        ("quantum", node.quantum.is_some(), under(DeficitRoundRobin) || is(&[FlowQueues, FqCodel])),
        ("real-time", node.real_time.is_some(), under(Hfsc)),
        ("link-sharing", node.link_sharing.is_some(), under(Hfsc)),
        ("upper-limit", node.upper_limit.is_some(), under(Hfsc)),
        ("rate", node.rate.is_some(), is(&[TokenBucket, FlowQueues])),
        ("burst", node.burst.is_some(), is(&[TokenBucket])),
        ("threshold", node.threshold.is_some(), is(&[Fifo, FlowQueues])),
        ("queues", node.queues.is_some(), is(&[FlowQueues, FqCodel])),
        ("limit", node.limit.is_some(), is(&[FqCodel])),
        ("manage", node.manage.is_some(), is(&[Fifo, FlowQueues])),
        ("unit", node.unit.is_some(), red),
        ("minimum", node.minimum.is_some(), red),
        ("maximum", node.maximum.is_some(), red),
        ("probability", node.probability.is_some(), red),
        ("weight", node.weight.is_some(), red),
        ("gentle", node.gentle.is_some(), red),
        ("target", node.target.is_some(), codel),
        ("interval", node.interval.is_some(), codel),
        ("ecn", node.ecn.is_some(), red || codel),
    ];
    match settings.iter().find(|(_, given, means)| *given && !means) {
        None => Ok(()),
        Some((key, ..)) => {
            let kind = node.kind.name();
            let above = above.map_or("the port itself".to_owned(), |above| format!("a {}", above.name()));
            Err(ControlError::invalid(
                Message::from(format!("node {:?}: ", node.name))
                    .key(*key)
                    .text(format!(" does not apply to a {kind} under {above}")),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn red(settings: &str, port: Option<u64>) -> RedSettings {
        let node = format!(r#"{{"name": "a", "kind": "fifo", "manage": "red"{settings}}}"#);
        let node: SchedulerNode = serde_json::from_str(&node).unwrap();
        let NodeKind::Fifo(QueueSettings { aqm: Aqm::Red(red), .. }) =
            kind(&node, None, port.map(Bits)).unwrap()
        else {
            panic!("{node:?}");
        };
        red
    }

    #[test]
    fn all_of_red_can_be_set_and_ages_by_the_rate_of_the_port() {
        let usual = RedSettings::default();
        let all = r#", "minimum": "9B", "maximum": "99B", "probability": 0.5, "weight": 0.25, "gentle": false, "ecn": false"#;
        let expected = RedSettings {
            minimum: 9,
            maximum: 99,
            probability: 0.5,
            weight: 0.25,
            gentle: false,
            ecn: false,
            rate: Rate(1_000_000),
            ..usual
        };
        assert_eq!(red(all, Some(1_000_000)), expected);
        assert_eq!(red("", None), RedSettings { minimum: 32_768, maximum: 131_072, ..usual });
        let in_packets = RedSettings { unit: RedUnit::Packets, minimum: 32, maximum: 131, ..usual };
        assert_eq!(red(r#", "unit": "packets""#, None), in_packets);
        let counted = RedSettings { minimum: 3, maximum: 30, ..in_packets };
        assert_eq!(red(r#", "unit": "packets", "minimum": 3, "maximum": 30"#, None), counted);
    }
}
