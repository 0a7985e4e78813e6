//! Bindings with queues: their answers, their refusals, and the texts about waits.

use millrace_controller::NewBinding;
use millrace_controller::operation::{Bind, GetConfiguration, Lookup};
use serde_json::{Value, json};

use super::{ask, bindings, explain, with_router};

const PACKET: &str = "src 10.1.0.9 dst 10.2.0.9 proto udp sport 9 dport 9 in lan";

fn binding(more: &Value) -> Bind {
    let mut new = json!({"instance": "stats1", "gate": "process", "filter": "proto udp"});
    if let (Some(new), Some(more)) = (new.as_object_mut(), more.as_object()) {
        new.extend(more.clone());
    }
    Bind(serde_json::from_value::<NewBinding>(new).unwrap())
}

#[test]
fn queue_of_a_binding_is_shown_saved_and_refused() {
    with_router(async |router| {
        let before = bindings(&router).await.len();
        for (more, said) in [
            (json!({"queue_weight": 3}), "needs a queue"),
            (json!({"queue": true, "queue_weight": 0}), "must be 1 to 100, not 0"),
        ] {
            let error = ask(&router, binding(&more)).await.unwrap_err().to_string();
            assert!(error.contains(said), "{more}: {error}");
        }
        assert_eq!(bindings(&router).await.len(), before);
        let bound = ask(&router, binding(&json!({"queue": true, "queue_weight": 3}))).await.unwrap();
        assert_eq!((bound.calls.queue_weight, bound.calls.principal.as_deref()), (Some(3), Some("default")));
        let running = ask(&router, GetConfiguration).await.unwrap();
        assert!(running.text.contains("queue = true\nqueue-weight = 3"), "{}", running.text);
        let wait = "for the processor, which principal default pays for, in a queue of their own before gate process";
        let gates = explain(&router, PACKET).await.unwrap();
        let chosen = gates.iter().flat_map(|gate| &gate.candidates).find(|one| one.chosen).unwrap();
        assert!(chosen.outcome.ends_with(&format!("; packets wait {wait}")), "{}", chosen.outcome);
        let looked = ask(&router, Lookup { packet: PACKET.to_owned() }).await.unwrap();
        let said = format!("wait {wait}; pass, unless the instance decides otherwise");
        assert!(looked.steps.iter().any(|step| step.text.contains(&said)), "{:?}", looked.steps);
    });
}
