//! Metrics of principals.

use millrace_controller::view::{
    CoreFunctionView, CoreInputView, LinkPromiseView, LinkWindowView, PrincipalDropsView, PrincipalUsageView,
    PrincipalView, ProcessPromiseView, PromiseView, PromiseWindowView, ThreadGroupView,
};

use super::{Family, Labels, Sample, count, counter, gauge};

/// Usage of a principal: name, description, and value.
type OfPrincipal = (&'static str, &'static str, fn(&PrincipalUsageView) -> Option<f64>);

pub(super) fn of_principals(principals: &[PrincipalView]) -> Vec<Family> {
    const COUNTED: [OfPrincipal; 4] = [
        ("principal_cpu_seconds", "Processor time of a principal, in seconds", |usage| usage.cpu_seconds),
        (
            "principal_throttled_seconds",
            "Time during which the processor limit kept processes of a principal from running, in seconds",
            |usage| usage.throttled_seconds,
        ),
        (
            "principal_memory_refusals",
            "Requests for flow state or memory of an instance refused because of a principal's memory limit",
            |usage| Some(count(usage.memory_refusals)),
        ),
        ("principal_oom_kills", "Processes killed because of a principal's memory limit", |usage| {
            usage.oom_kills.map(count)
        }),
    ];
    const MEASURED: [OfPrincipal; 6] = [
        ("principal_memory_bytes", "Memory of the processes of a principal, in bytes", |usage| {
            usage.memory.map(count)
        }),
        ("principal_flow_state_bytes", "Flow state of a principal at the workers, in bytes", |usage| {
            Some(count(usage.flow_state))
        }),
        (
            "principal_waiting_bytes",
            "Packets of a principal that wait for the processor, in bytes",
            |usage| Some(count(usage.waiting)),
        ),
        (
            "principal_plugin_memory_bytes",
            "Memory of sandboxed instances that a principal pays for, in bytes",
            |usage| Some(count(usage.plugin_memory)),
        ),
        ("principal_memory_peak_bytes", "Largest memory of a principal so far, in bytes", |usage| {
            usage.memory_peak.map(count)
        }),
        ("principal_processes", "Processes and threads of a principal", |usage| usage.processes.map(count)),
    ];
    let label = |one: &PrincipalView| ("principal", one.name.clone());
    let samples = |value: fn(&PrincipalUsageView) -> Option<f64>| {
        principals.iter().filter_map(|one| Some((vec![label(one)], value(&one.usage)?))).collect()
    };
    let disk = principals.iter().flat_map(|one| {
        let bytes = [("read", one.usage.disk_read), ("written", one.usage.disk_written)];
        bytes.into_iter().filter_map(move |(direction, bytes)| {
            Some((vec![label(one), ("direction", direction.to_owned())], count(bytes?)))
        })
    });
    let disk = counter("principal_disk_bytes", "Disk transfer of a principal, in bytes", disk.collect());
    let counted = COUNTED.into_iter().map(|(name, help, value)| counter(name, help, samples(value)));
    let measured = MEASURED.into_iter().map(|(name, help, value)| gauge(name, help, samples(value)));
    counted.chain(measured).chain([disk]).collect()
}

pub(super) fn of_core_inputs(inputs: &[CoreInputView]) -> Family {
    let sample = |one: &CoreInputView| (vec![("port", one.port.clone())], one.used_seconds);
    counter(
        "core_input_seconds",
        "Processor time of core for the packets of a port, in seconds",
        inputs.iter().map(sample).collect(),
    )
}

pub(super) fn of_core_functions(functions: &[CoreFunctionView]) -> Family {
    let sample = |one: &CoreFunctionView| {
        let port = one.port.as_ref().map(|port| ("port", port.clone()));
        let labels = [("function", one.function.to_owned())].into_iter().chain(port);
        (labels.collect(), one.used_seconds)
    };
    counter(
        "core_function_seconds",
        "Processor time of a function of core, in seconds",
        functions.iter().map(sample).collect(),
    )
}

pub(super) fn of_links(links: &[LinkPromiseView]) -> Vec<Family> {
    let labels =
        |one: &LinkPromiseView| vec![("principal", one.principal.clone()), ("port", one.port.clone())];
    let samples = |value: fn(&LinkPromiseView) -> u64| {
        links.iter().map(|one| (labels(one), count(value(one)))).collect()
    };
    let windowed = |value: fn(&LinkWindowView) -> f64| {
        let of = |one: &LinkPromiseView| in_windows(&labels(one), &one.windows, value);
        links.iter().flat_map(of).collect()
    };
    vec![
        gauge(
            "principal_link_delivered_bits",
            "Rate at a port over a window, in bit/s on the wire",
            windowed(|window| count(window.delivered)),
        ),
        gauge(
            "principal_link_entitled_bits",
            "Rate due at a port over a window, in bit/s on the wire",
            windowed(|window| count(window.entitled)),
        ),
        gauge(
            "principal_link_kept",
            "1 if a principal got the rate that was due at a port over a window",
            windowed(|window| f64::from(u8::from(window.is_kept))),
        ),
        gauge(
            "principal_link_promised_bits",
            "Rate reserved at a port, in bit/s on the wire",
            samples(|one| one.promised),
        ),
        counter(
            "principal_link_wire_bytes",
            "Bytes sent for a principal with a reserved rate, on the wire",
            samples(|one| one.sent_wire_bytes),
        ),
        counter(
            "principal_link_dropped_packets",
            "Packets dropped by the queue of a principal with a reserved rate",
            samples(|one| one.dropped),
        ),
        gauge(
            "principal_link_longest_wait_seconds",
            "Longest time that a packet has waited in the queue of a principal with a reserved rate",
            links.iter().map(|one| (labels(one), seconds(one.longest_wait))).collect(),
        ),
    ]
}

/// Returns a sample for each window: the labels, the length asked for in seconds, and the value.
fn in_windows<W>(labels: &Labels, windows: &[W], value: impl Fn(&W) -> f64) -> Vec<Sample> {
    let sample = |(seconds, window): (&str, &W)| {
        let labels = labels.iter().cloned().chain([("window", seconds.to_owned())]);
        (labels.collect(), value(window))
    };
    ["1", "10", "60"].into_iter().zip(windows).map(sample).collect()
}

/// Returns the metrics of the processes in control groups.
pub(super) fn of_processes(processes: &[ProcessPromiseView]) -> Vec<Family> {
    let labels = |one: &ProcessPromiseView| vec![("group", one.group.clone())];
    let used = processes.iter().map(|one| (labels(one), one.used_seconds)).collect();
    let promised = processes.iter().filter_map(|one| Some((labels(one), one.promised?))).collect();
    let of = |one: &ProcessPromiseView| in_windows(&labels(one), &one.windows, |window| window.delivered);
    vec![
        counter("process_seconds", "Processor time of the processes in a control group, in seconds", used),
        gauge(
            "process_promised_percent",
            "Promised share of the processes in a control group, in percent of a processor",
            promised,
        ),
        gauge(
            "process_delivered_percent",
            "Processor time of the processes in a control group over a window, in percent of a processor",
            processes.iter().flat_map(of).collect(),
        ),
    ]
}

/// Returns the metrics of the control groups of the router's threads.
pub(super) fn of_thread_groups(groups: &[ThreadGroupView]) -> Family {
    let sample = |one: &ThreadGroupView| Some((vec![("group", one.group.clone())], one.cpu_seconds?));
    counter(
        "thread_group_seconds",
        "Processor time of the router's threads in a control group, in seconds",
        groups.iter().filter_map(sample).collect(),
    )
}

/// Returns microseconds as seconds.
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Processor time of a principal over a window: name, description, and value.
type OfWindow = (&'static str, &'static str, fn(&PromiseWindowView) -> f64);

/// Account of a principal at the workers: name, description, and value.
type OfPromise = (&'static str, &'static str, fn(&PromiseView) -> f64);

pub(super) fn of_promises(promises: &[PromiseView]) -> Vec<Family> {
    const COUNTED: [OfPromise; 5] = [
        ("principal_worker_seconds", "Processor time of a principal at the workers, in seconds", |one| {
            one.used_seconds
        }),
        ("principal_packets", "Packets of a principal that got the processor at the workers", |one| {
            count(one.packets)
        }),
        ("principal_worker_throttled", "Times that the limit stopped a principal at a worker", |one| {
            count(one.throttled)
        }),
        ("principal_deadlines_met", "Slices that began within the deadline of a principal", |one| {
            count(one.deadlines.met)
        }),
        ("principal_deadlines_missed", "Slices that began after the deadline of a principal", |one| {
            count(one.deadlines.missed)
        }),
    ];
    const MEASURED: [OfPromise; 3] = [
        ("principal_promised_percent", "Promised share at the workers, in percent of a processor", |one| {
            one.promised
        }),
        ("principal_waiting_packets", "Packets of a principal that wait for the processor", |one| {
            count(one.waiting)
        }),
        (
            "principal_longest_wait_seconds",
            "Longest time from a packet's arrival to the end of its call",
            |one| seconds(one.deadlines.longest_wait),
        ),
    ];
    let samples = |value: fn(&PromiseView) -> f64| {
        let sample = |one: &PromiseView| (vec![("principal", one.principal.clone())], value(one));
        promises.iter().map(sample).collect()
    };
    let counted = COUNTED.into_iter().map(|(name, help, value)| counter(name, help, samples(value)));
    let measured = MEASURED.into_iter().map(|(name, help, value)| gauge(name, help, samples(value)));
    let dropped = promises.iter().flat_map(|one| {
        let PrincipalDropsView { cpu_queue, memory, core_ceiling, handover, link_queue } = one.drops;
        let causes = [
            ("cpu_queue", cpu_queue),
            ("memory", memory),
            ("core_ceiling", core_ceiling),
            ("handover", handover),
            ("link_queue", link_queue),
        ];
        causes.map(|(cause, packets)| {
            (vec![("principal", one.principal.clone()), ("cause", cause.to_owned())], count(packets))
        })
    });
    let help = "Packets that a principal lost, by cause; `core` includes those shed for all principals";
    let dropped = counter("principal_dropped_packets", help, dropped.collect());
    counted.chain([dropped]).chain(measured).chain(of_windows(promises)).collect()
}

/// Returns the metrics of the windows of promises.
fn of_windows(promises: &[PromiseView]) -> impl Iterator<Item = Family> {
    const WINDOWED: [OfWindow; 4] = [
        (
            "principal_delivered_percent",
            "Processor time over a window, in percent of a processor",
            |window| window.delivered,
        ),
        (
            "principal_entitled_percent",
            "Processor time due over a window, in percent of a processor",
            |window| window.entitled,
        ),
        ("principal_idle_percent", "Part of the promised share left over a window, in percent", |window| {
            window.idle
        }),
        ("principal_kept", "1 if a principal got the processor time that was due over a window", |window| {
            f64::from(u8::from(window.is_kept))
        }),
    ];
    WINDOWED.into_iter().map(|(name, help, value)| {
        let label = |one: &PromiseView| vec![("principal", one.principal.clone())];
        let samples = promises.iter().flat_map(|one| in_windows(&label(one), &one.windows, value));
        gauge(name, help, samples.collect())
    })
}
