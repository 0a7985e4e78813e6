//! The command `place`: placements of flows.

use hyper::Method;
use serde_json::{Value, json};

use crate::arguments::{Place, PlaceAction, word};
use crate::client::Client;
use crate::commands::forwarding::flow::flows_path;
use crate::output::{Failure, done, plain, rows, show, table};

const PLACEMENTS: &str = "flows=flow | placed at=level | offloaded=offload | at a worker=worker \
    | at a worker, because=why_worker";
const FLOWS: &str = "flow | level | placed | packets | not offloaded, because=why_not_offloaded";

/// Places flows, or shows their levels.
pub fn place(client: &Client, place: &Place, json: bool) -> Result<(), Failure> {
    match (&place.action, &place.flow, place.level) {
        (Some(PlaceAction::Show { flow, limit }), ..) => {
            let value = client.get(&flows_path(flow.as_deref(), &format!("order=packets&limit={limit}")))?;
            show(&value, json, || table(rows(&value["flows"]), FLOWS));
        }
        (None, Some(flow), Some(level)) => {
            let body = json!({"flow": flow, "level": word(level)});
            let value = client.send(Method::PUT, "/placements", Some(&body))?;
            done(&value, &placed(&value), json);
        }
        _ => {
            let value = client.get("/placements")?;
            show(&value, json, || listed(&value));
        }
    }
    Ok(())
}

/// Formats the result of a placement as a line.
fn placed(value: &Value) -> String {
    let [flow, level] = ["flow", "level"].map(|key| plain(&value[key]));
    let (offload, worker) = (plain(&value["offload"]), plain(&value["worker"]));
    let reasons = value["why_worker"].as_object().into_iter().flatten();
    let why: String = reasons.map(|(why, flows)| format!("; {} because {why}", plain(flows))).collect();
    format!("{flow}: {level}; now {offload} offloaded, {worker} at a worker{why}")
}

/// Formats all placements, with the levels of flows.
pub fn listed(value: &Value) -> String {
    let mut text = table(rows(&value["placements"]), PLACEMENTS);
    let budget = &value["budget"];
    text += &format!(
        "\nall flows: {} offloaded, {} at a worker\n",
        plain(&value["offload"]),
        plain(&value["worker"])
    );
    for (why, flows) in value["why_worker"].as_object().into_iter().flatten() {
        text += &format!("  {} because {why}\n", plain(flows));
    }
    text += &format!(
        "instruction budget of the XDP program: {} instructions per packet; forwarding or dropping takes {} (longest path: {}), a token bucket {}, calling an eBPF variant {}, the variant itself at most {}\n",
        plain(&budget["instructions"]),
        plain(&budget["forward"]),
        plain(&budget["longest_path"]),
        plain(&budget["token_bucket"]),
        plain(&budget["ebpf_variant_call"]),
        plain(&budget["ebpf_variant"])
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_is_reported_in_one_line() {
        let value = json!({"flow": "dport 9", "level": "worker", "offload": 0, "worker": 2, "why_worker": {"a placement pins it to the worker": 2}});
        let line =
            "dport 9: worker; now 0 offloaded, 2 at a worker; 2 because a placement pins it to the worker";
        assert_eq!(placed(&value), line);
    }

    #[test]
    fn list_gives_reasons_for_flows_at_a_worker() {
        let value = json!({
            "placements": [{"flow": "dport 9", "level": "worker", "offload": 7, "worker": 2, "why_worker": {}}], "offload": 3, "worker": 1, "why_worker": {"a filter copies its packets": 1},
            "budget": {"instructions": 10, "forward": 5, "longest_path": 4, "token_bucket": 2, "ebpf_variant_call": 1, "ebpf_variant": 3},
        });
        let text = listed(&value);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["dport", "9", "worker", "7", "2", "-"], "{text}");
        assert!(
            text.contains("all flows: 3 offloaded, 1 at a worker\n  1 because a filter copies its packets\n"),
            "{text}"
        );
        assert!(
            text.contains("10 instructions per packet; forwarding or dropping takes 5 (longest path: 4), a token bucket 2, calling an eBPF variant 1, the variant itself at most 3"),
            "{text}"
        );
    }
}
