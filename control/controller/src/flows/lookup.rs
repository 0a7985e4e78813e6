//! Lookup of a described packet: the texts of its steps and of its verdict.

use millrace_packet::DropReason;
use millrace_pipeline::{ErrorSender, Lookup, LookupStep, Verdict};
use millrace_plugin::{BindingTreatment, Health, OnFault, Standing};
use millrace_units::{PortId, QueueId};

use crate::flows::placement;
use crate::observe::words::{Names, TO_KERNEL, TO_OWN_STACK, TO_ROUTER, dropped, icmp, parsed, refused};
use crate::view::{LookupView, StepView};

/// Returns the view of a worker's answer. `leaf` is the scheduler leaf in which the packet would wait.
pub(crate) fn view(lookup: &Lookup, leaf: Option<QueueId>, names: &Names<'_>) -> LookupView {
    let words = Words { names, lookup, leaf };
    let mut steps: Vec<StepView> = lookup.steps.iter().map(|step| words.step(step)).collect();
    steps.extend(words.end());
    LookupView { steps, verdict: words.verdict() }
}

/// Answer of a worker to a lookup, and the names that appear in the texts of the answer.
struct Words<'a> {
    names: &'a Names<'a>,
    lookup: &'a Lookup,
    leaf: Option<QueueId>,
}

impl Words<'_> {
    fn step(&self, step: &LookupStep) -> StepView {
        let (stage, text) = match *step {
            LookupStep::Parsed => ("parse", self.parsed()),
            LookupStep::Owner { worker, workers } => {
                ("worker", format!("worker {worker} of {workers} forwards the flow"))
            }
            LookupStep::Offload(None) => ("offload", "the flow is offloaded".to_owned()),
            LookupStep::Offload(Some(why)) => {
                let why = placement::words(why, self.names.model);
                ("offload", format!("the worker forwards the flow: {why}"))
            }
            LookupStep::NoMatch { gate, bindings } => {
                let name = self.names.model.plugins.gate_name(gate);
                ("gate", format!("gate {name}: no filter of {bindings} matches"))
            }
            LookupStep::NoEffect { gate, binding, standing } => {
                ("gate", format!("{}: {}", self.names.binding(gate, binding), self.no_effect(standing)))
            }
            LookupStep::Redirected { gate, binding, drops } => {
                let end = if drops { "; the drop takes effect after the gates at position late" } else { "" };
                ("gate", format!("{}: pass, and choose the route{end}", self.names.binding(gate, binding)))
            }
            LookupStep::Bound { gate, binding, treatment, copies } => (
                "gate",
                format!("{}: {}", self.names.binding(gate, binding), self.treated(treatment, copies)),
            ),
            LookupStep::Routed(taken) => {
                let destination = self.lookup.candidate.key.destination();
                ("route", self.names.route(taken, Some(destination)).text)
            }
            LookupStep::Fragmented { port, length, mtu } => {
                let name = self.names.port(port);
                ("fragment", format!("{length} bytes exceed the MTU of port {name}, {mtu} bytes"))
            }
            LookupStep::Link { source, destination, neighbour } => {
                ("forward", format!("link header {source} to {destination} ({neighbour})"))
            }
            LookupStep::Refused { error, sender } => {
                ("error", error_text(refused(error), icmp(error), sender))
            }
            LookupStep::Queued { port, .. } => ("queue", self.names.queue(port, self.leaf)),
        };
        StepView { stage, text }
    }

    fn parsed(&self) -> String {
        let candidate = &self.lookup.candidate;
        let from = match candidate.key.port {
            PortId::NONE => "made by the router".to_owned(),
            port => format!("from port {}", self.names.port(port)),
        };
        format!("{}, {from}", parsed(candidate))
    }

    /// Returns the text of a binding that wins but has no effect on the packet. The text gives the reason.
    fn no_effect(&self, standing: Standing) -> String {
        match standing {
            Standing::RouteChosen => "pass; an earlier gate has chosen the route".to_owned(),
            Standing::BelowRoute => {
                let priority = self.names.model.options.route_priority;
                format!("pass; the route has a higher priority, {priority}")
            }
            Standing::Inert => "pass; its instance does not exist".to_owned(),
            Standing::Stage | Standing::Route => "pass".to_owned(),
        }
    }

    /// Returns the text of a binding's treatment. If `copies` is true, the instance gets only copies of the
    /// packets.
    fn treated(&self, treatment: BindingTreatment, copies: bool) -> String {
        match treatment {
            BindingTreatment::Refuse(_) => dropped(DropReason::Filter),
            BindingTreatment::Queue(queue) => {
                format!("pass, to queue {}", self.names.model.schedulers.name(queue))
            }
            BindingTreatment::Principal(principal, _) => {
                format!("pass, for principal {}", self.names.model.principal_ids.name(principal))
            }
            BindingTreatment::Police { rate, burst } => {
                format!("police to {rate} bit/s, burst {burst} bytes; drop the excess (policer)")
            }
            BindingTreatment::Instance { health, on_fault, .. } if health != Health::Well => {
                unwell(health, on_fault, copies)
            }
            BindingTreatment::Instance { .. } if copies => "pass, and the instance gets a copy".to_owned(),
            BindingTreatment::Instance { wait, charged, .. } => {
                let passes = "pass, unless the instance decides otherwise";
                let wait = wait.map(|wait| format!("wait {}", self.names.processor(wait)));
                let how = wait.or(charged.map(|payer| self.names.in_line(payer)));
                how.map_or(passes.to_owned(), |how| format!("{how}; {passes}"))
            }
            BindingTreatment::Count if copies => "pass, with a copy".to_owned(),
            BindingTreatment::Count => "pass".to_owned(),
        }
    }

    /// Returns the last step of a packet's journey; `None` for a packet that is sent.
    fn end(&self) -> Option<StepView> {
        let (stage, text) = match self.lookup.verdict {
            Verdict::Sent(_) => return None,
            Verdict::Held(port, address) => ("wait", self.names.wait(port, address)),
            Verdict::Dropped(reason) => ("drop", self.names.drop(reason, Some(&self.lookup.candidate))),
            Verdict::Host => ("host", TO_KERNEL.to_owned()),
            Verdict::Own => ("own", TO_OWN_STACK.to_owned()),
        };
        Some(StepView { stage, text })
    }

    fn verdict(&self) -> String {
        match self.lookup.verdict {
            Verdict::Sent(port) => self.names.sent(port),
            Verdict::Held(port, address) => {
                format!("held until {address} is resolved, then {}", self.names.sent(port))
            }
            Verdict::Dropped(reason) => dropped(reason),
            Verdict::Host => TO_KERNEL.to_owned(),
            Verdict::Own => TO_ROUTER.to_owned(),
        }
    }
}

/// Returns the text for an instance that is pausing or in quarantine. If `copies` is true, the instance gets
/// only copies of the packets.
fn unwell(health: Health, on_fault: OnFault, copies: bool) -> String {
    let health = health.name();
    match on_fault {
        OnFault::Bypass => format!("pass without the instance, which is {health}"),
        OnFault::Drop if copies => format!("pass; the instance is {health}, and its copy is dropped"),
        OnFault::Drop => {
            format!("{}; the instance is {health}", dropped(DropReason::PluginFailed))
        }
    }
}

/// Returns the text about an ICMP error, depending on its sender: the router (text `by_router`), the kernel,
/// or nobody.
fn error_text(by_router: String, error: String, sender: ErrorSender) -> String {
    match sender {
        ErrorSender::Router(_) => by_router,
        ErrorSender::Kernel => format!("the kernel sends the source an ICMP error: {error}"),
        ErrorSender::Nobody => format!("the source gets no ICMP error: {error}"),
    }
}
