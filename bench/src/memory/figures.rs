//! Default cases of the benchmark, with their promises.

use super::case::Case;
use super::setup::{GatesSetup, QueueSetup, Setup};
use super::workload::Workload;
use crate::family::Family;

/// Case to measure: packets, router setup, and the promised nanoseconds per packet.
pub(super) struct Figure {
    pub name: String,
    pub case: Case,
    pub setup: Setup,
    pub limit: Option<f64>,
    /// Promised maximum: additional nanoseconds per packet compared with the previous case; `None` without a
    /// promise.
    pub beyond: Option<f64>,
}

/// Number of flows in large cases.
const MANY_FLOWS: u32 = 128_000;
const MOST_FLOWS: u32 = 1_000_000;
const ROUTES4: u32 = 500_000;
const ROUTES6: u32 = 200_000;
/// Promised maximum: additional nanoseconds per packet if each flow has its own queue, compared with one
/// queue for all flows.
const QUEUES: f64 = 12.0;

/// Returns all cases.
pub(super) fn figures() -> Vec<Figure> {
    let usual = Setup::default();
    let bare = Setup { flows_max: 0, routes: 1, ..usual };
    let gates = Setup { gates: GatesSetup::Empty, ..usual };
    let figure = |family, name: &str, flows, setup, limit| Figure {
        name: name.to_owned(),
        case: Case { family, flows },
        setup,
        limit,
        beyond: None,
    };
    let v4 = |name, flows, setup, limit| figure(Family::V4, name, flows, setup, Some(limit));
    let v6 = |name, flows, setup, limit| figure(Family::V6, name, flows, setup, Some(limit));
    vec![
        v4("IPv4, no flow table, 1 route", 1000, bare, 9.0),
        v4(
            "IPv4, no flow table, 500 K routes, 1 M destinations",
            MOST_FLOWS,
            Setup { routes: ROUTES4, ..bare },
            20.0,
        ),
        v4("IPv4, 1 flow", 1, usual, 14.0),
        v4("IPv4, 1 K flows", 1000, usual, 14.0),
        v4("IPv4, 1 K flows, 1 packet in 1,000 traced", 1000, Setup { traced: 1000, ..usual }, 14.5),
        v4("IPv4, 1 K flows, 3 empty gates", 1000, gates, 14.0),
        v4("IPv4, 128 K flows, 3 empty gates", MANY_FLOWS, gates, 17.0),
        Figure {
            beyond: Some(QUEUES),
            ..figure(
                Family::V4,
                "IPv4, 128 K flows, 3 empty gates, a queue for each flow",
                MANY_FLOWS,
                Setup { queue: QueueSetup::PerFlow, ..gates },
                None,
            )
        },
        v4(
            "IPv4, 1 M flows, 500 K routes, 3 empty gates",
            MOST_FLOWS,
            Setup { routes: ROUTES4, ..gates },
            30.0,
        ),
        v6("IPv6, 1 K flows, 3 empty gates", 1000, gates, 22.0),
        v6(
            "IPv6, 128 K flows, 200 K routes, 3 empty gates",
            MANY_FLOWS,
            Setup { routes: ROUTES6, ..gates },
            22.0,
        ),
    ]
}

/// Returns the case for a workload. If [`figures`] has an equal case, the result has the promise of that
/// case.
pub(super) fn of(workload: &Workload) -> Figure {
    let (case, setup) = (workload.case(), workload.setup());
    let promised = figures().into_iter().find(|figure| figure.case == case && figure.setup == setup);
    Figure {
        name: workload.to_string(),
        case,
        setup,
        limit: promised.and_then(|figure| figure.limit),
        beyond: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic::Size;
    use super::super::workload::EmptyGates;
    use super::*;

    #[test]
    fn a_workload_that_something_is_promised_of_has_the_limit() {
        let workload =
            Workload { flows: "128K".parse().unwrap(), gates: EmptyGates::THREE, ..Workload::default() };
        assert_eq!(of(&workload).limit, Some(17.0));
        assert_eq!(of(&Workload { size: Size::Imix, ..workload }).limit, None);
    }

    #[test]
    fn case_with_an_extra_target_differs_only_by_the_queue() {
        for pair in figures().windows(2).filter(|pair| pair[1].beyond.is_some()) {
            assert_eq!(Setup { queue: pair[0].setup.queue, ..pair[1].setup }, pair[0].setup);
            assert_eq!(pair[0].case, pair[1].case);
        }
    }
}
