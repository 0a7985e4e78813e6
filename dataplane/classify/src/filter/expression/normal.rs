//! Conversion of an expression into the terms of its disjunctive normal form, and of the terms into filters.

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::Hash;

use ipnet::IpNet;
use millrace_wire::Protocol;

use super::super::error::{FilterError, Refusal, Token};
use super::super::{Dscp, ExceptionsMatch, Filter, PortRange, TcpFlagsMatch};
use super::MOST_ALTERNATIVES;
use super::parse::Expression;
use super::term::{MOST_WEIGHT, Term};
use crate::candidate::PORTS_UNKNOWN;

/// Maximum number of terms of an expression.
const MOST_TERMS: usize = MOST_ALTERNATIVES;

/// Remedy in the error for an expression with too many conditions.
const SEVERAL: &str =
    "split the expression into several filters, or add a filter of lower priority for the rest";

/// Remedy in the error for a complement of addresses that needs too many filters.
const ADDRESSES: &str = "replace `not`: add a filter of higher priority with the action accept for these \
                         addresses, and a filter for the rest";

/// Maximum number of terms during a step of the conversion. At its end, each step removes terms that are
/// covered by other terms.
const MOST_BETWEEN: usize = 1 << 17;

/// Maximum number of steps for one expression. This number takes some tenths of a second. A step combines or
/// compares two filters.
const MOST_STEPS: u64 = 1 << 24;

/// Number of steps that remain for an expression.
struct Budget(Cell<u64>);

impl Budget {
    /// Subtracts one step for each pair of one of `conditions` filters and one of `others` filters.
    fn take(&self, conditions: usize, others: usize) -> Result<(), Refusal> {
        let steps = (conditions as u64).saturating_mul(others as u64);
        let left = self.0.get().checked_sub(steps).ok_or_else(too_many)?;
        self.0.set(left);
        Ok(())
    }
}

/// Returns the terms of an expression. A packet matches the expression if it matches any of them.
pub(super) fn terms(expression: &Expression<'_>, whole: Token<'_>) -> Result<Vec<Term>, FilterError> {
    let budget = Budget(Cell::new(MOST_STEPS));
    let made = of(expression, false, &budget).map_err(|(refusal, at)| refusal.at(at.unwrap_or(whole)))?;
    let made = uncovered(made, &budget).map_err(|refusal| refusal.at(whole))?;
    if made.is_empty() {
        return Err(Refusal::new(
            "the conditions contradict each other, so that no packet matches",
            "remove one of the conditions",
        )
        .at(whole));
    }
    if made.len() > MOST_TERMS {
        let problem = format!(
            "the expression expands to {} combinations of conditions; the limit is {MOST_TERMS}",
            made.len()
        );
        return Err(Refusal::new(problem, SEVERAL).at(whole));
    }
    Ok(made)
}

/// Returns filters for the terms. A packet matches any of the terms if and only if it matches any of the
/// filters.
///
/// # Errors
/// More than [`MOST_ALTERNATIVES`] filters.
pub(super) fn filters(terms: &[Term], whole: Token<'_>) -> Result<Vec<Filter>, FilterError> {
    let count = terms.iter().map(Term::count).fold(0, u64::saturating_add);
    let refused = |count: u64| {
        let problem = format!(
            "the expression expands to {count} filters; the limit for an expression is {MOST_ALTERNATIVES}"
        );
        let is_outside = terms.iter().any(|term| term.weight() > 1);
        Refusal::new(problem, if is_outside { ADDRESSES } else { SEVERAL }).at(whole)
    };
    // With several terms, allow twice the maximum at first: filters of one term may be covered by filters of
    // another term, and these are removed next.
    let most = MOST_ALTERNATIVES as u64 * if terms.len() > 1 { 2 } else { 1 };
    if count > most {
        return Err(refused(count));
    }
    let made = terms.iter().flat_map(Term::filters).collect();
    let budget = Budget(Cell::new(MOST_STEPS));
    let made = without_covered(made, |_| 1, covers, &budget).map_err(|refusal| refusal.at(whole))?;
    if made.len() > MOST_ALTERNATIVES {
        return Err(refused(made.len() as u64));
    }
    Ok(made)
}

/// Refusal of an expression. If a single condition is the reason, also the position of this condition.
type Refused<'a> = (Refusal, Option<Token<'a>>);

fn too_many() -> Refusal {
    Refusal::new("the expression combines too many conditions", SEVERAL)
}

/// Returns the terms of an expression, or of its complement if `complement` is set.
fn of<'a>(expression: &Expression<'a>, complement: bool, budget: &Budget) -> Result<Vec<Term>, Refused<'a>> {
    match expression {
        Expression::Is(filter, _) if !complement => Ok(vec![with_protocol(filter.clone()).into()]),
        Expression::Is(filter, at) => outside(filter).map_err(|refusal| (refusal, Some(*at))),
        Expression::Not(inner) => of(inner, !complement, budget),
        Expression::All(parts) if !complement => all(parts, complement, budget),
        Expression::Either(parts) if complement => all(parts, complement, budget),
        Expression::All(parts) | Expression::Either(parts) => {
            let made: Result<Vec<_>, _> = parts.iter().map(|part| of(part, complement, budget)).collect();
            let made: Vec<Term> = made?.into_iter().flatten().collect();
            if made.len() > MOST_BETWEEN { Err((too_many(), None)) } else { Ok(made) }
        }
    }
}

/// Returns the terms for packets that match all parts. With `complement` set, returns the terms for packets
/// that match none of the parts.
fn all<'a>(parts: &[Expression<'a>], complement: bool, budget: &Budget) -> Result<Vec<Term>, Refused<'a>> {
    let mut made = vec![Term::from(Filter::any())];
    for part in parts {
        let further = of(part, complement, budget)?;
        if made.len().saturating_mul(further.len()) > MOST_BETWEEN {
            return Err((too_many(), None));
        }
        budget.take(cost(&made), weight(&further)).map_err(|refusal| (refusal, None))?;
        let meet = |one: &Term, other: &Term| one.meet(other, meet(&one.filter, &other.filter)?);
        let both = made.iter().flat_map(|one| further.iter().filter_map(move |other| meet(one, other)));
        made = uncovered(both.collect(), budget).map_err(|refusal| (refusal, None))?;
        if made.iter().any(|term| term.weight() > MOST_WEIGHT) {
            return Err((too_many(), None));
        }
    }
    Ok(made)
}

fn weight(terms: &[Term]) -> usize {
    terms.iter().map(Term::weight).sum()
}

/// Returns the number of steps for combining these terms with one more term. Merging excluded prefixes takes
/// about as long as comparing sixteen pairs of filters.
fn cost(terms: &[Term]) -> usize {
    let cost = |term: &Term| if term.weight() > 1 { 16 * term.weight() } else { 1 };
    terms.iter().map(cost).sum()
}

/// Adds the condition "protocol is TCP" to a filter on TCP flags.
fn with_protocol(mut filter: Filter) -> Filter {
    if filter.tcp_flags.is_some() {
        filter.protocol = Some(Protocol::TCP);
    }
    filter
}

/// Removes terms that another term covers. The others keep their order.
fn uncovered(terms: Vec<Term>, budget: &Budget) -> Result<Vec<Term>, Refusal> {
    let covers =
        |wide: &Term, narrow: &Term| covers(&wide.filter, &narrow.filter) && wide.outside_covers(narrow);
    without_covered(terms, Term::weight, covers, budget)
}

/// Removes elements that another element covers. The others keep their order.
fn without_covered<T: Clone + Eq + Hash>(
    all: Vec<T>,
    weight: impl Fn(&T) -> usize,
    covers: impl Fn(&T, &T) -> bool,
    budget: &Budget,
) -> Result<Vec<T>, Refusal> {
    let mut seen = HashSet::new();
    let all: Vec<T> = all.into_iter().filter(|one| seen.insert(one.clone())).collect();
    // The number is limited, because the code below compares all pairs.
    if all.len() > 4 * MOST_ALTERNATIVES {
        return Err(too_many());
    }
    let weight: usize = all.iter().map(weight).sum();
    budget.take(weight, weight)?;
    let is_covered = |narrow: &T| all.iter().any(|wide| wide != narrow && covers(wide, narrow));
    Ok(all.iter().filter(|narrow| !is_covered(narrow)).cloned().collect())
}

/// Whether every packet that matches `narrow` also matches `wide`.
fn covers(wide: &Filter, narrow: &Filter) -> bool {
    let ports = |wide: PortRange, narrow: PortRange| wide.is_any() || ports(wide, narrow) == Some(narrow);
    let bits =
        |wide: (u8, u8), narrow: (u8, u8)| wide.1 & !narrow.1 == 0 && (wide.0 ^ narrow.0) & wide.1 == 0;
    let flags = |one: TcpFlagsMatch| (one.value, one.mask);
    let exceptions = |one: ExceptionsMatch| (one.value, one.mask);
    covers_value(wide.protocol, narrow.protocol, |wide, narrow| wide == narrow)
        && covers_value(wide.source, narrow.source, |wide, narrow| wide.contains(&narrow))
        && covers_value(wide.destination, narrow.destination, |wide, narrow| wide.contains(&narrow))
        && ports(wide.source_port, narrow.source_port)
        && ports(wide.destination_port, narrow.destination_port)
        && covers_value(wide.incoming(), narrow.incoming(), |wide, narrow| wide == narrow)
        && covers_value(wide.tcp_flags, narrow.tcp_flags, |wide, narrow| bits(flags(wide), flags(narrow)))
        && covers_value(wide.tag, narrow.tag, |wide, narrow| wide == narrow)
        && covers_value(wide.exceptions, narrow.exceptions, |wide, narrow| {
            bits(exceptions(wide), exceptions(narrow))
        })
        && covers_value(wide.dscp, narrow.dscp, |wide, narrow| wide == narrow)
}

/// Whether every value that meets the condition `narrow` also meets the condition `wide`. `None` stands for
/// no condition, which every value meets.
fn covers_value<T>(wide: Option<T>, narrow: Option<T>, covers: impl FnOnce(T, T) -> bool) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => covers(wide, narrow),
    }
}

/// Returns the filter for packets that match both filters; `None` if there are no such packets.
fn meet(one: &Filter, other: &Filter) -> Option<Filter> {
    let met = Filter {
        source: both(one.source, other.source, prefix)?,
        destination: both(one.destination, other.destination, prefix)?,
        protocol: both(one.protocol, other.protocol, same)?,
        source_port: ports(one.source_port, other.source_port)?,
        destination_port: ports(one.destination_port, other.destination_port)?,
        incoming: both(one.incoming.clone(), other.incoming.clone(), same)?,
        tcp_flags: both(one.tcp_flags, other.tcp_flags, |one, other| {
            let (value, mask) = bits((one.value, one.mask), (other.value, other.mask))?;
            Some(TcpFlagsMatch { value, mask })
        })?,
        tag: both(one.tag, other.tag, same)?,
        exceptions: both(one.exceptions, other.exceptions, |one, other| {
            let (value, mask) = bits((one.value, one.mask), (other.value, other.mask))?;
            Some(ExceptionsMatch { value, mask })
        })?,
        dscp: both(one.dscp, other.dscp, same)?,
    };
    is_possible(&met).then_some(met)
}

/// Whether the fields of a filter don't contradict each other.
fn is_possible(filter: &Filter) -> bool {
    let v4 = |net: &IpNet| net.addr().is_ipv4();
    let families = filter.source.as_ref().zip(filter.destination.as_ref());
    let unknown = filter.exceptions.is_some_and(|one| one.value & PORTS_UNKNOWN.bits() != 0);
    let has_ports = filter.protocol.is_none_or(Protocol::has_ports);
    families.is_none_or(|(source, destination)| v4(source) == v4(destination))
        && (!filter.asks_for_ports() || has_ports && !unknown)
}

/// Returns the intersection of two conditions on a field, each `None` if there is no condition. The result is
/// `None` if no value meets both conditions, and `Some(None)` if there are no conditions.
fn both<T>(one: Option<T>, other: Option<T>, meet: impl FnOnce(T, T) -> Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) => meet(one, other).map(Some),
        (one, other) => Some(one.or(other)),
    }
}

fn same<T: PartialEq>(one: T, other: T) -> Option<T> {
    (one == other).then_some(one)
}

fn prefix(one: IpNet, other: IpNet) -> Option<IpNet> {
    if one.contains(&other) {
        Some(other)
    } else if other.contains(&one) {
        Some(one)
    } else {
        None
    }
}

fn ports(one: PortRange, other: PortRange) -> Option<PortRange> {
    match (one, other) {
        (PortRange::Any, range) | (range, PortRange::Any) => Some(range),
        (PortRange::Ports { first, last }, PortRange::Ports { first: other_first, last: other_last }) => {
            let (first, last) = (first.max(other_first), last.min(other_last));
            (first <= last).then_some(PortRange::Ports { first, last })
        }
    }
}

fn bits((value, mask): (u8, u8), (other_value, other_mask): (u8, u8)) -> Option<(u8, u8)> {
    ((value ^ other_value) & mask & other_mask == 0).then_some((value | other_value, mask | other_mask))
}

/// Returns the terms for packets that fail the condition of `filter`, which has exactly one condition.
fn outside(filter: &Filter) -> Result<Vec<Term>, Refusal> {
    let nets = filter.source.map(Term::outside_source);
    let nets = nets.into_iter().chain(filter.destination.map(Term::outside_destination));
    Ok(nets.chain(outside_others(filter)?.into_iter().map(Term::from)).collect())
}

/// Returns the filters for packets that fail the condition of `filter`. Returns an empty list if this
/// condition is on an address.
fn outside_others(filter: &Filter) -> Result<Vec<Filter>, Refusal> {
    let any = Filter::any;
    let mut made = Vec::new();
    if filter.incoming.is_some() {
        let help = "list the ports to match, as in `in wan,dmz`";
        return Err(Refusal::new(
            "`not in` is not supported, because its result would change with the list of ports",
            help,
        ));
    }
    if filter.tcp_flags.is_some() {
        let help = "match the flags that are clear, as in `flags none/syn+ack`";
        return Err(Refusal::new(
            "`not flags` is not supported, because it would match packets without readable TCP flags",
            help,
        ));
    }
    if let Some(protocol) = filter.protocol {
        made.extend(protocols(|other| other != protocol));
    }
    if let PortRange::Ports { first, last } = filter.source_port {
        made.extend(outside_ports(first, last).map(|source_port| Filter { source_port, ..any() }));
    }
    if let PortRange::Ports { first, last } = filter.destination_port {
        made.extend(outside_ports(first, last).map(|destination_port| Filter { destination_port, ..any() }));
    }
    if filter.asks_for_ports() {
        made.extend(protocols(|protocol| !protocol.has_ports()));
        made.extend(single_bits(PORTS_UNKNOWN.bits()).map(|bit| exception(bit, bit)));
    }
    if let Some(tag) = filter.tag {
        made.extend((0..32).filter(|other| *other != tag).map(|other| Filter { tag: Some(other), ..any() }));
    }
    if let Some(ExceptionsMatch { value, mask }) = filter.exceptions {
        made.extend(single_bits(mask).map(|bit| exception(!value & bit, bit)));
    }
    if let Some(dscp) = filter.dscp {
        let others = (0..64).map(Dscp).filter(|other| *other != dscp);
        made.extend(others.map(|other| Filter { dscp: Some(other), ..any() }));
    }
    Ok(made)
}

fn protocols(is_meant: impl Fn(Protocol) -> bool) -> impl Iterator<Item = Filter> {
    let meant = (0..=u8::MAX).map(Protocol).filter(move |protocol| is_meant(*protocol));
    meant.map(|protocol| Filter { protocol: Some(protocol), ..Filter::any() })
}

fn exception(value: u8, mask: u8) -> Filter {
    Filter { exceptions: Some(ExceptionsMatch { value, mask }), ..Filter::any() }
}

fn single_bits(mask: u8) -> impl Iterator<Item = u8> {
    (0..8).map(|bit| 1 << bit).filter(move |bit| mask & bit != 0)
}

fn outside_ports(first: u16, last: u16) -> impl Iterator<Item = PortRange> {
    let below = first.checked_sub(1).map(|last| PortRange::Ports { first: 0, last });
    let above = last.checked_add(1).map(|first| PortRange::Ports { first, last: u16::MAX });
    below.into_iter().chain(above)
}
