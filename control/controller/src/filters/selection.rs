//! Selections: expressions that choose the packets of captures, traces and lists.
//!
//! Parsing and compiling 16 KiB of text takes milliseconds, for which the router's lock would block all other
//! callers. Both therefore happen without the lock; it is held only to look up port names.

use std::collections::BTreeMap;

use millrace_classify::{CompiledSelection, Selection, UnknownPort};
use millrace_units::PortId;

use crate::ControlError;
use crate::filters::parse_filter;
use crate::model::Model;
use crate::router::Router;

/// Parsed selection whose port names are not looked up yet.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ReadSelection {
    /// Expression of the selection; `None` for all packets.
    expression: Option<Selection>,
}

/// Selection with the ids of the ports that it names.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ResolvedSelection {
    expression: Option<Selection>,
    ports: BTreeMap<String, PortId>,
}

impl ReadSelection {
    /// Parses the selection of a request; a missing or empty text selects all packets.
    ///
    /// # Errors
    /// An invalid filter.
    pub fn read(text: Option<&str>) -> Result<Self, ControlError> {
        let given = text.filter(|text| !text.trim().is_empty());
        Ok(Self { expression: given.map(parse_filter).transpose()? })
    }

    /// Returns the selection of a parsed expression.
    pub fn of(expression: Selection) -> Self {
        Self { expression: Some(expression) }
    }

    /// Looks up the ports that the selection names.
    ///
    /// # Errors
    /// An unknown port name.
    pub fn resolve(self, model: &Model) -> Result<ResolvedSelection, ControlError> {
        let mut ports = BTreeMap::new();
        for name in self.expression.iter().flat_map(Selection::incoming) {
            if ports.contains_key(name) {
                continue;
            }
            let refused = |error| {
                let unknown = UnknownPort { name: name.to_owned() };
                self.expression.as_ref().map_or(error, |whole| model.unknown_port(whole, &unknown))
            };
            let plan = model.port(name).map_err(refused)?;
            ports.insert(name.to_owned(), plan.id);
        }
        Ok(ResolvedSelection { expression: self.expression, ports })
    }
}

impl ResolvedSelection {
    /// Compiles the selection; `None` for all packets.
    ///
    /// # Errors
    /// A port without an id; [`resolve`](ReadSelection::resolve) leaves none.
    pub fn compile(&self) -> Result<Option<CompiledSelection>, ControlError> {
        let Some(expression) = &self.expression else { return Ok(None) };
        let compiled = expression.compile(|name| self.ports.get(name).copied());
        compiled.map(Some).map_err(|unknown| ControlError::system("compile the filter", unknown))
    }
}

impl Router {
    /// Parses and compiles the selection of a request. The lock is held only while port names are looked up.
    ///
    /// # Errors
    /// An invalid filter, an unknown port name.
    pub(crate) fn select(&self, text: Option<&str>) -> Result<Option<CompiledSelection>, ControlError> {
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
    use crate::flows::lookup::ReadPacket;
    use crate::operation::{
        ExplainFilters, Lookup, Operation, Principal, SetQueue, StartCapture, StartTrace,
    };
    use crate::{CaptureRequest, StartOptions, TraceRequest, start};

    const PORT: &str =
        "[plugins]\nstate = \"none\"\ncache = \"none\"\n[[port]]\nname = \"lan\"\nkind = \"memory\"\n";

    fn model() -> Model {
        Model::new(&Config::parse(PORT, "test").unwrap()).unwrap()
    }

    async fn is_refused<O: Operation>(router: &Router, operation: O) -> bool {
        router.execute(&Principal::router(), operation).await.is_err()
    }

    #[test]
    fn selection_without_text_is_of_all_packets() {
        for text in [None, Some(""), Some("  ")] {
            let resolved = ReadSelection::read(text).unwrap().resolve(&model()).unwrap();
            assert!(resolved.compile().unwrap().is_none(), "{text:?}");
        }
    }

    #[test]
    fn resolved_selection_compiles_as_the_model_does() {
        let model = model();
        for text in ["proto udp", "in lan", "proto udp in lan or (proto tcp and not dport 80-90)", "*"] {
            let whole = model.compile_selection(&parse_filter(text).unwrap()).unwrap();
            let resolved = ReadSelection::read(Some(text)).unwrap().resolve(&model).unwrap();
            assert_eq!(resolved.compile().unwrap(), Some(whole), "{text}");
        }
    }

    #[test]
    fn unknown_port_is_refused_when_names_are_looked_up() {
        let read = ReadSelection::read(Some("proto udp or in dmz")).unwrap();
        let refused = read.resolve(&model()).unwrap_err().to_string();
        assert!(refused.contains("filter \"proto udp or in dmz\"") && refused.contains("lan"), "{refused}");
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
