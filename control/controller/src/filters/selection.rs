//! Selections: expressions that choose the packets of captures, traces and lists.
//!
//! Parsing and compiling 16 KiB of text takes milliseconds, so both steps run without the router's lock. Only
//! the look-up of port names, which comes between these steps, holds the lock.

use std::collections::BTreeMap;

use millrace_classify::{CompiledSelection, Selection, UnknownPort};
use millrace_units::PortId;

use crate::ControlError;
use crate::filters::parse_filter;
use crate::model::Model;

/// Parsed selection whose port names are not looked up yet.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ReadSelection {
    /// Expression of the selection; `None` for all packets.
    expression: Option<Selection>,
}

/// Selection whose port names are replaced by the ids of the ports.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ResolvedSelection {
    expression: Option<Selection>,
    ports: BTreeMap<String, PortId>,
}

impl ReadSelection {
    /// Parses the selection of a request; a missing or empty text selects all packets.
    pub fn read(text: Option<&str>) -> Result<Self, ControlError> {
        let given = text.filter(|text| !text.trim().is_empty());
        Ok(Self { expression: given.map(parse_filter).transpose()? })
    }

    /// Returns the selection of a parsed expression.
    pub fn of(expression: Selection) -> Self {
        Self { expression: Some(expression) }
    }

    /// Looks up the ports that the selection names.
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
    /// Returns an error for a port whose id is missing; [`resolve`](ReadSelection::resolve) sets the ids of
    /// all ports.
    pub fn compile(&self) -> Result<Option<CompiledSelection>, ControlError> {
        let Some(expression) = &self.expression else { return Ok(None) };
        let compiled = expression.compile(|name| self.ports.get(name).copied());
        compiled.map(Some).map_err(|unknown| ControlError::system("compile the filter", unknown))
    }
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    const PORT: &str =
        "[plugins]\nstate = \"none\"\ncache = \"none\"\n[[port]]\nname = \"lan\"\nkind = \"memory\"\n";

    fn model() -> Model {
        Model::new(&Config::parse(PORT, "test").unwrap()).unwrap()
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
}
