//! Filter expressions: `or`, `and`, `not`, lists, and words of `tcpdump`.
//!
//! An expression is compiled into filters, its alternatives. A packet matches the expression if it matches
//! one alternative. The filter tables search the alternatives; the user sees one filter.
//!
//! ```text
//! expression := chain "or" chain …  |  chain "and" chain …          never both without parentheses
//! chain      := part part …                                         every part has to hold
//! part       := ["not"] ( KEYWORD LIST | WORD | "(" expression ")" )
//! ```
//!
//! | written | meaning |
//! |---|---|
//! | `dport 80,443,8000-8010` | one of the values; likewise for `src`, `dst`, `proto`, `sport`, `in`, `tag`, `dscp` |
//! | `host A`, `net A/LENGTH` | `src A or dst A` |
//! | `port LIST`, `portrange N-M` | `sport LIST or dport LIST` |
//! | `src host A`, `src net A`, `src port N`, and `dst …` | `src A`, `sport N`, and `dst …` |
//! | `tcp`, `udp`, `icmp`, `icmp6`, `sctp` | `proto tcp`, … |
//! | `ip`, `ip6` | IPv4, IPv6 |
//!
//! `not` is the complement: a packet whose ports are unknown does not match `dport 80`, so it matches `not dport 80`.
//!
//! Gate tables take the [compiled filters](CompiledExpression) of an expression. Captures, traces, scans of
//! the flow table and placements only select packets. They take a [`Selection`], which needs no filter for
//! each part of a complement.

mod compiled;
mod normal;
mod parse;
mod selection;
mod term;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use millrace_units::PortId;

pub use compiled::CompiledExpression;
pub use selection::{CompiledSelection, Selection};

use super::error::Refusal;
use term::Term;

use super::{Filter, FilterError, UnknownPort, keywords, tuple};

/// Maximum number of alternatives of an expression. It suffices for `not host ADDRESS`: for an IPv4 address,
/// this expression needs 1,025 filters, and no smaller number of filters matches the same packets.
pub const MOST_ALTERNATIVES: usize = 1280;

/// Filter expression as the user writes it, with its alternatives.
///
/// An expression of one alternative prints in the keyword form of [`Filter`]. Other expressions print as they
/// were written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FilterExpression {
    text: String,
    alternatives: Arc<[Filter]>,
}

impl FilterExpression {
    /// Returns the alternatives, at least one. A packet matches the expression if it matches any of them.
    pub fn alternatives(&self) -> &[Filter] {
        &self.alternatives
    }

    /// Returns the filter if the expression has only one alternative.
    pub fn single(&self) -> Option<&Filter> {
        match &*self.alternatives {
            [filter] => Some(filter),
            _ => None,
        }
    }

    /// Compiles each alternative. `resolve` returns the id of a port name.
    pub fn compile(
        &self,
        resolve: impl Fn(&str) -> Option<PortId>,
    ) -> Result<CompiledExpression, UnknownPort> {
        let compiled: Result<Vec<_>, _> =
            self.alternatives.iter().map(|filter| filter.compile(&resolve)).collect();
        compiled.map(CompiledExpression::new)
    }
}

impl From<Filter> for FilterExpression {
    fn from(filter: Filter) -> Self {
        Self { text: filter.to_string(), alternatives: Arc::new([filter]) }
    }
}

impl FromStr for FilterExpression {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let terms = match read(text)? {
            Read::Plain(filter) => return Ok(filter.into()),
            Read::Terms(terms) => terms,
        };
        let mut alternatives = normal::filters(&terms, parse::whole(text))?;
        if alternatives.len() == 1
            && let Some(filter) = alternatives.pop()
        {
            return Ok(filter.into());
        }
        Ok(Self { text: written(text), alternatives: alternatives.into() })
    }
}

/// Result of reading a text.
enum Read {
    /// Single filter in keyword or six-tuple syntax.
    Plain(Filter),
    /// Terms of an expression in disjunctive normal form.
    Terms(Vec<Term>),
}

/// Reads a filter or an expression.
fn read(text: &str) -> Result<Read, FilterError> {
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed == "*" {
        return Ok(Read::Plain(Filter::any()));
    }
    if trimmed.starts_with('<') {
        return tuple::parse(text).map(Read::Plain);
    }
    // Try the keyword parser first. If the text has no words that only expressions have, this parser's errors
    // name the wrong field.
    let plain = keywords::parse(text);
    if plain.is_ok() || !parse::is_expression(text) {
        return plain.map(Read::Plain);
    }
    let parsed = parse::parse(text)?;
    normal::terms(&parsed, parse::whole(text)).map(Read::Terms)
}

/// Returns the text of an expression with single spaces.
fn written(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads a single filter. Refuses an expression of several alternatives.
pub(super) fn parse_single(text: &str) -> Result<Filter, FilterError> {
    let expression: FilterExpression = text.parse()?;
    let count = expression.alternatives.len();
    expression.single().cloned().ok_or_else(|| {
        let problem = format!("the expression expands to {count} filters, and only one is allowed here");
        Refusal::new(problem, "write a single match without `or`, `not` and lists").at(parse::whole(text))
    })
}

impl fmt::Display for FilterExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl serde::Serialize for FilterExpression {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for FilterExpression {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
