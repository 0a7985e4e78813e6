//! Tests of a router whose worker does not answer or has ended.

use std::time::Duration;

use millrace_config::Config;

use crate::operation::{GetSummary, Principal};
use crate::workers::handle::silence::Silence;
use crate::{ControlError, Router, StartOptions, start};

const CONFIG: &str = r#"
[plugins]
state = "none"
[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24"]
"#;
/// Duration longer than the interval between two checks of the workers.
const ROUNDS: Duration = Duration::from_millis(2500);

fn with_router(work: impl AsyncFn(Router)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(CONFIG, "one.toml").unwrap();
        work(start(config, StartOptions::default()).await.unwrap()).await;
    });
}

#[test]
fn a_router_whose_worker_is_silent_goes_on_and_who_asks_is_told() {
    with_router(async |router| {
        let silence = Silence::before(router.lock().workers.get(0));
        silence.after(0, u64::MAX);
        let asked = async {
            tokio::time::sleep(ROUNDS).await;
            let refused = router.execute(&Principal::router(), GetSummary).await.map(drop).unwrap_err();
            assert!(
                matches!(&refused, ControlError::Silent(text) if text.contains("did not answer")),
                "{refused}"
            );
            silence.after(0, 0);
            tokio::time::sleep(ROUNDS).await;
            router.execute(&Principal::router(), GetSummary).await.map(drop).unwrap();
        };
        tokio::select! {
            biased;
            ended = router.run() => panic!("it ended: {ended:?}"),
            () = asked => {}
        }
        // `silence` is dropped last: the worker still has to receive the stop command.
        router.shutdown().await.unwrap();
    });
}

#[test]
fn a_router_whose_worker_has_ended_ends() {
    with_router(async |router| {
        router.lock().workers.stop().unwrap();
        let ended = tokio::time::timeout(4 * ROUNDS, router.run()).await.expect("it goes on");
        assert_eq!(ended.unwrap_err().to_string(), "a worker of the data plane has ended");
        router.shutdown().await.unwrap();
    });
}
