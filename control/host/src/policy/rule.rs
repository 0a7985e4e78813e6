//! Routing policy rules.

use super::{EVERYWHERE, PolicyFinding, PolicyKind};
use crate::netlink::attribute::{attributes_after, ip, number, text, word};
use crate::netlink::request::{DUMP, Request};
use crate::netlink::rtm;
use crate::netlink::socket::Socket;
use crate::{Family, HostError};

/// Priority and table of the default rules of every namespace.
const DEFAULT: [(u32, u32); 3] = [(0, 255), (32766, 254), (32767, 253)];

pub(super) fn inspect(socket: &mut Socket) -> Result<Vec<PolicyFinding>, HostError> {
    let mut findings = Vec::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        let request = Request::new(rtm::GETRULE, DUMP, &[family.number(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut rules = Vec::new();
        let listed = socket.dump(request, "policy rules", |kind, payload| {
            if kind == rtm::NEWRULE {
                rules.extend(rule(payload));
            }
        });
        super::unless_lacking(listed)?;
        findings.extend(judge(family, &rules));
    }
    Ok(findings)
}

/// Rule with its selectors in the syntax of `ip rule`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    priority: u32,
    table: u32,
    plain: bool,
    words: String,
}

fn rule(payload: &[u8]) -> Option<Rule> {
    const LOOKUP: u8 = 1;
    const INVERT: u32 = 2;
    let (to_length, from_length, service) = (*payload.get(1)?, *payload.get(2)?, *payload.get(3)?);
    let (mut table, action) = (u32::from(*payload.get(4)?), *payload.get(7)?);
    let mut priority = 0;
    let mut selectors = Vec::new();
    if word(payload, 8)? & INVERT != 0 {
        selectors.push("not".to_owned());
    }
    if service != 0 {
        selectors.push(format!("tos {service:#x}"));
    }
    for (kind, value) in attributes_after(payload, 12) {
        match kind {
            1 => selectors.push(format!("to {}/{to_length}", ip(value)?)),
            2 => selectors.push(format!("from {}/{from_length}", ip(value)?)),
            3 => selectors.push(format!("iif {}", text(value))),
            6 => priority = number(value)?,
            10 => selectors.push(format!("fwmark {:#x}", number(value)?)),
            15 => table = number(value)?,
            17 => selectors.push(format!("oif {}", text(value))),
            19 => selectors.push("l3mdev".to_owned()),
            20 => selectors.push("uidrange".to_owned()),
            22 => selectors.push(format!("ipproto {}", number(value)?)),
            23 => selectors.push("sport".to_owned()),
            24 => selectors.push("dport".to_owned()),
            _ => {}
        }
    }
    let action_words = match action {
        LOOKUP => format!("lookup {table}"),
        2 => "goto".to_owned(),
        6 => "blackhole".to_owned(),
        7 => "unreachable".to_owned(),
        8 => "prohibit".to_owned(),
        _ => format!("action {action}"),
    };
    let plain = selectors.is_empty() && action == LOOKUP;
    selectors.push(action_words);
    Some(Rule { priority, table, plain, words: selectors.join(" ") })
}

fn judge(family: Family, rules: &[Rule]) -> Vec<PolicyFinding> {
    let name = match family {
        Family::Ipv4 => "IPv4",
        Family::Ipv6 => "IPv6",
    };
    let finding = |what: String, consequence: &str| PolicyFinding {
        kind: PolicyKind::Rule,
        what,
        place: EVERYWHERE.into(),
        consequence: consequence.into(),
    };
    let default = |rule: &&Rule| rule.plain && DEFAULT.contains(&(rule.priority, rule.table));
    let mut findings: Vec<PolicyFinding> = rules
        .iter()
        .filter(|rule| !default(rule))
        .map(|rule| {
            let what = format!("{name} policy rule {}: {}", rule.priority, rule.words);
            finding(
                what,
                "Millrace routes by the tables local, main and default alone, so the rule would not apply",
            )
        })
        .collect();
    let missing = |table: u32| !rules.iter().filter(default).any(|rule| rule.table == table);
    for (table, table_name) in [(255, "local"), (254, "main")] {
        if !rules.is_empty() && missing(table) {
            let what = format!("the {name} policy rule for the table {table_name} is missing");
            findings.push(finding(what, "Millrace would use the table anyway"));
        }
    }
    findings
}
