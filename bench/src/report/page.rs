//! Self-contained HTML page: the machine, and plots and a table for each benchmark.

use std::fmt::Write;

use super::escaped::escaped;
use super::plot::{PLOT_STYLE, bars, cumulative, over_time};
use super::{Machine, Report};
use crate::{Measurement, list, shown};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1000px;padding:0 1rem;color:#1c2330;background:#fff}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.5rem;border-top:1px solid #d5dae3;padding-top:1rem}\
table{border-collapse:collapse;width:100%;font-size:13px;margin:.8rem 0}\
th,td{text-align:left;padding:.25rem .5rem;border-bottom:1px solid #e6e9ef;vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
.kept{color:#1a7f37}.missed{color:#b42318;font-weight:600}svg{max-width:100%;height:auto;display:block;margin:.5rem 0}\
figure{margin:1rem 0}figcaption{font-size:13px}.key{margin-right:1.2rem;white-space:nowrap}.key svg{display:inline;margin:0;vertical-align:middle}";

/// Returns the HTML page of a report.
pub(super) fn page(report: &Report) -> String {
    let mut body = String::new();
    machine(&mut body, &report.machine);
    summary(&mut body, report);
    for (name, measurements) in sections(report) {
        section(&mut body, name, &measurements);
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Millrace: benchmarks</title>\n<style>{STYLE}{PLOT_STYLE}</style>\n</head>\n<body>\n\
         <h1>Millrace: benchmarks</h1>\n{body}</body>\n</html>\n"
    )
}

fn machine(body: &mut String, machine: &Machine) {
    let rows = [
        ("Processor", format!("{}, {} of them, {}", machine.processor, machine.processors, machine.vectors)),
        ("Memory", format!("{} MiB", machine.memory)),
        ("Kernel", machine.kernel.clone()),
        ("Millrace", machine.millrace.clone()),
        ("Peers and tools", machine.tools.join("; ")),
        ("Date", machine.date.clone()),
    ];
    if machine.processor.is_empty() {
        body.push_str("<p>The results don't name the machine.</p>\n");
        return;
    }
    // Writing to a string can't fail.
    let _ = writeln!(body, "<p>{}</p>\n<table>", escaped(&machine.sentence()));
    for (name, value) in rows {
        let _ = writeln!(body, "<tr><th>{name}</th><td>{}</td></tr>", escaped(&value));
    }
    body.push_str("</table>\n");
}

fn summary(body: &mut String, report: &Report) {
    let judged = report.results.iter().filter_map(|entry| entry.measurement.holds);
    let (kept, all) = judged.fold((0, 0), |(kept, all), holds| (kept + u32::from(holds), all + 1));
    let _ = writeln!(body, "<p>{kept} of {all} promises were kept in this run.</p>");
    list_of(body, "Not kept:", &report.broken_promises());
    let keys = [
        ("ours", "Millrace"),
        ("ours missed", "Millrace, target missed"),
        ("peer", "peer or reference"),
        ("generator", "traffic generator alone"),
    ];
    body.push_str("<p>");
    for (class, name) in keys {
        let _ = write!(body, "<span class=\"key\"><span class=\"{class}\">■</span> {name}</span> ");
    }
    body.push_str(
        "</p>\n<p>A dashed line is the promised limit, a thin line the spread of the repetitions.</p>\n",
    );
    let failures = report.failures.iter().map(|failure| format!("{}: {}", failure.bench, failure.error));
    list_of(body, "Without results:", &failures.collect::<Vec<_>>());
}

/// Writes a heading and a list of lines; writes nothing for an empty list.
fn list_of(body: &mut String, heading: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(body, "<p>{heading}</p>\n<ul>");
    for line in lines {
        let _ = writeln!(body, "<li>{}</li>", escaped(line));
    }
    body.push_str("</ul>\n");
}

/// Groups the measurements by benchmark, in the order of their execution.
pub(super) fn sections(report: &Report) -> Vec<(&str, Vec<&Measurement>)> {
    let mut sections: Vec<(&str, Vec<&Measurement>)> = Vec::new();
    for entry in &report.results {
        match sections.iter_mut().find(|(name, _)| *name == entry.bench) {
            Some((_, measurements)) => measurements.push(&entry.measurement),
            None => sections.push((&entry.bench, vec![&entry.measurement])),
        }
    }
    sections
}

/// Returns the units of the measurements without duplicates, in order of appearance.
pub(super) fn units<'a>(measurements: &[&'a Measurement]) -> Vec<&'a str> {
    let mut units: Vec<&str> = Vec::new();
    for measurement in measurements {
        if !units.contains(&&*measurement.unit) {
            units.push(&measurement.unit);
        }
    }
    units
}

fn section(body: &mut String, name: &str, measurements: &[&Measurement]) {
    let title = if name.is_empty() { "results" } else { name };
    let _ = writeln!(body, "<h2>{}</h2>", escaped(title));
    if let Some(bench) = list().iter().find(|bench| bench.name == name) {
        let _ = writeln!(body, "<p>{}.</p>", escaped(bench.summary));
    }
    for unit in units(measurements) {
        let of_unit: Vec<&Measurement> =
            measurements.iter().copied().filter(|measurement| measurement.unit == unit).collect();
        body.push_str(&bars(unit, &of_unit));
    }
    for one in measurements {
        body.extend(one.timeline.iter().map(|timeline| over_time(&one.case, timeline)));
        body.extend(one.distribution.iter().map(|distribution| cumulative(&one.case, distribution)));
    }
    table(body, measurements);
}

fn table(body: &mut String, measurements: &[&Measurement]) {
    body.push_str("<table>\n<tr><th>case</th><th class=\"n\">ours</th><th class=\"n\">spread</th><th>unit</th><th class=\"n\">peer</th><th>peer's name</th><th class=\"n\">ratio</th><th class=\"n\">promised</th><th>kept</th></tr>\n");
    for one in measurements {
        let number = |value: Option<f64>| value.map(shown).unwrap_or_default();
        let spread = one.spread.map(|[least, most]| format!("{} to {}", shown(least), shown(most)));
        let promised = one.limit.map(|limit| {
            let of = if one.limits_ratio() { " (ratio)" } else { "" };
            format!("{}{of}", shown(limit))
        });
        let kept = match one.holds {
            Some(true) => "<td class=\"kept\">yes</td>",
            Some(false) => "<td class=\"missed\">no</td>",
            None => "<td></td>",
        };
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>{kept}</tr>",
            escaped(&one.case),
            shown(one.ours),
            spread.unwrap_or_default(),
            escaped(&one.unit),
            number(one.peer),
            escaped(one.peer_name.as_deref().unwrap_or_default()),
            number(one.ratio),
            promised.unwrap_or_default(),
        );
    }
    body.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::FailedBench;
    use crate::{Bound, Quantiles, Subject, Timeline};

    fn report() -> Report {
        let fast = Measurement::median_of("IPv4 & <IPv6>", &[8.0, 9.0, 11.0], "ns/packet")
            .beside("peer \"x\"", 12.0)
            .promising(Bound::AtMost, 8.5)
            .with_distribution(Quantiles::of("delay, <ms>").with(Subject::Millrace, "a & b", &[1.0, 2.0]))
            .with_timeline(Timeline::of("rate").with(Subject::Peer, "<kernel>", &[[0.0, 1.0], [1.0, 2.0]]));
        let rate =
            Measurement::of("rate", 3.0, "Mpps").beside("kernel", 2.0).promising_ratio(Bound::AtLeast, 1.5);
        let mut report = Report::of("memory", vec![fast, rate]);
        let failure = ("veth".to_owned(), "run it as <root>".to_owned());
        report.failures.push(FailedBench { bench: failure.0, error: failure.1, left_out: true });
        report
    }

    #[test]
    fn a_page_has_all_figures_and_loads_nothing() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let page = report().page();
        for part in [
            "IPv4 &amp; &lt;IPv6&gt;",
            "8.00 to 11.0",
            "1.50 (ratio)",
            "1 of 2 promises",
            "run it as &lt;root&gt;",
            "memory: IPv4 &amp; &lt;IPv6&gt;: 9.00 ns/packet, promised at most 8.50",
            "cumulative distribution",
            "over time",
            "These figures were measured ",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for loaded in ["http:", "https:", "src=", "href=", "<script", "url("] {
            assert!(!page.contains(loaded), "{loaded}");
        }
        // The page has bars of two units, two plots of curves, and a key for each curve.
        assert_eq!(page.matches("<svg").count(), 6);
    }

    #[test]
    fn every_element_of_a_page_is_closed() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let page = report().page();
        let mut open = Vec::new();
        for tag in page.split('<').skip(1).map(|part| part.split_once('>').unwrap().0) {
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            match tag {
                _ if tag.starts_with('!') || tag.ends_with('/') || ["meta", "br"].contains(&name) => {}
                _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name)),
                _ => open.push(name),
            }
        }
        assert_eq!(open, [""; 0]);
    }
}
