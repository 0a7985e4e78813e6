//! Selections of packets in requests.
//!
//! Parsing and compiling 16 KiB of text takes milliseconds, for which the router's lock would block all other
//! callers. Both therefore happen without the lock; it is held only to look up port names.

use millrace_classify::CompiledSelection;

use crate::ControlError;
use crate::filters::selection::ReadSelection;
use crate::router::Router;

impl Router {
    /// Parses and compiles the selection of a request. The lock is held only while port names are looked up.
    ///
    /// # Errors
    /// An invalid filter, an unknown port name.
    pub(super) fn select(&self, text: Option<&str>) -> Result<Option<CompiledSelection>, ControlError> {
        let read = ReadSelection::read(text)?;
        let resolved = read.resolve(&self.lock().model)?;
        resolved.compile()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use millrace_config::Config;
    use serde_json::Map;
    use tokio::runtime::Handle;

    use super::*;
    use crate::model::packets::ReadPacket;
    use crate::operation::{
        ExplainFilters, Lookup, Operation, Principal, SetQueue, StartCapture, StartTrace,
    };
    use crate::{CaptureRequest, StartOptions, TraceRequest, start};

    const PORT: &str =
        "[plugins]\nstate = \"none\"\ncache = \"none\"\n[[port]]\nname = \"lan\"\nkind = \"memory\"\n";

    async fn is_refused<O: Operation>(router: &Router, operation: O) -> bool {
        router.execute(&Principal::router(), operation).await.is_err()
    }

    /// An invalid filter is refused while another thread holds the lock: parsing takes no lock.
    #[tokio::test]
    async fn selections_are_read_while_the_lock_is_held() {
        let config = Config::parse(PORT, "test").unwrap();
        let router = start(config, StartOptions::default()).await.unwrap();
        let mut long = String::from("dport 1");
        (2..500).for_each(|port| write!(long, " or dport {}", 2 * port).unwrap());
        let wrong = format!("{long} or nothing");
        let (done, waits) = std::sync::mpsc::channel();
        let held = router.lock();
        let (caller, runtime) = (router.clone(), Handle::current());
        let asked = std::thread::spawn(move || {
            let filter = Some(wrong.clone());
            let capture = CaptureRequest { filter: filter.clone(), ..CaptureRequest::default() };
            let trace = TraceRequest { filter: filter.clone(), ..TraceRequest::default() };
            let (port, queue) = ("lan".to_owned(), "q".to_owned());
            let set_queue = SetQueue { port, queue, flow: filter, changes: Map::new() };
            let refused = runtime.block_on(async {
                [
                    is_refused(&caller, StartCapture(capture)).await,
                    is_refused(&caller, StartTrace(trace)).await,
                    caller.select(Some(&wrong)).is_err(),
                    is_refused(&caller, Lookup { packet: wrong.clone() }).await,
                    is_refused(&caller, ExplainFilters { packet: wrong.clone() }).await,
                    is_refused(&caller, set_queue).await,
                ]
            });
            done.send(refused).unwrap();
        });
        let refused = waits.recv_timeout(std::time::Duration::from_secs(10)).expect("no lock is waited for");
        assert_eq!(refused, [true; 6]);
        drop(held);
        asked.join().unwrap();
        assert!(ReadPacket::read("proto udp or proto tcp").is_err());
        router.shutdown().await.unwrap();
    }
}
