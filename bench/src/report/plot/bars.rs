//! Bar chart: figures of Millrace and of the peer, with the spread of repetitions. A line marks the promised
//! limit.

use std::fmt::Write;

use super::scale::Scale;
use super::text::{LINE, clear_of, width, wrapped};
use super::{WIDTH, class};
use crate::report::escaped::escaped;
use crate::{Measurement, Subject, shown};

/// Width of the label column, in pixels. The following constants are further widths and heights.
const LABEL: f64 = 400.0;
const FIGURE: f64 = 90.0;
const BAR: f64 = 12.0;
/// Gap between the two bars of a measurement, in pixels.
const BETWEEN: f64 = 1.0;
const GAP: f64 = 10.0;
const TOP: f64 = 6.0;
/// Height of the axis in pixels: ticks, their numbers, and the unit.
const AXIS: f64 = 34.0;
/// Distance from the top of a text line to its base line, in pixels.
const BASE: f64 = 10.0;

/// Draws the bars of measurements with the same unit, for the HTML page.
pub(in crate::report) fn bars(unit: &str, measurements: &[&Measurement]) -> String {
    chart(unit, measurements, "", "")
}

/// Draws the bars of measurements with the same unit. `attributes` are further attributes of the SVG element.
/// `background` holds SVG elements below the bars.
pub(in crate::report) fn chart(
    unit: &str,
    measurements: &[&Measurement],
    attributes: &str,
    background: &str,
) -> String {
    let scale = scale(measurements);
    let (mut rows, mut y) = (String::new(), TOP);
    for measurement in measurements {
        y = row(&mut rows, measurement, &scale, y) + GAP;
    }
    let mut axes = String::new();
    axis(&mut axes, unit, &scale, y);
    let height = y + AXIS;
    format!(
        "<svg{attributes} viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{}\">\n{background}{axes}{rows}</svg>\n",
        escaped(unit),
    )
}

/// Returns the limit of Millrace's figure: the promised limit, or the promised ratio times the peer's figure.
/// `None` without a promise.
fn limit(measurement: &Measurement) -> Option<f64> {
    let limit = measurement.limit?;
    match (measurement.limits_ratio(), measurement.peer) {
        (true, peer) => peer.map(|peer| peer * limit),
        (false, _) => Some(limit),
    }
}

fn scale(measurements: &[&Measurement]) -> Scale {
    let figures = measurements.iter().flat_map(|one| {
        let ends = one.spread.into_iter().chain(one.peer_spread).flatten();
        [Some(one.ours), one.peer, limit(one)].into_iter().flatten().chain(ends)
    });
    Scale::of(&figures.collect::<Vec<f64>>())
}

/// Returns the x coordinate of a figure in pixels.
fn x_of(scale: &Scale, figure: f64) -> f64 {
    LABEL + (WIDTH - LABEL - FIGURE) * scale.place(figure)
}

/// Draws the axis below `y`, with grid lines upwards from its ticks.
fn axis(svg: &mut String, unit: &str, scale: &Scale, y: f64) {
    let (left, right) = (LABEL, WIDTH - FIGURE);
    // Writing to a string can't fail.
    let _ = writeln!(svg, "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"base\"/>");
    let mut free = f64::NEG_INFINITY;
    for tick in &scale.ticks {
        let (x, text) = (x_of(scale, *tick), scale.text(*tick));
        let half = width(&text) / 2.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{:.1}\" class=\"grid\"/>",
            y + 4.0
        );
        // Omit a number that would touch the previous one.
        if x - half > free {
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" class=\"tick\">{text}</text>", y + 15.0);
            free = x + half + 6.0;
        }
    }
    let axis = if scale.logarithmic { format!("{unit}, logarithmic") } else { unit.to_owned() };
    let _ =
        writeln!(svg, "<text x=\"{LABEL}\" y=\"{:.1}\" class=\"axis\">{}</text>", y + 29.0, escaped(&axis));
}

/// Draws a measurement with its upper edge at `y`; returns its lower edge.
fn row(svg: &mut String, measurement: &Measurement, scale: &Scale, y: f64) -> f64 {
    let lines = wrapped(&measurement.case, LABEL - 16.0);
    for (number, line) in lines.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" class=\"label\">{}</text>",
            LABEL - 8.0,
            y + BASE + LINE * number as f64,
            escaped(line)
        );
    }
    let limit = limit(measurement).map(|limit| (limit, x_of(scale, limit)));
    let at = limit.map(|(_, x)| x);
    let is_missed = measurement.subject == Subject::Millrace && measurement.holds == Some(false);
    let ours = if is_missed { "ours missed" } else { class(measurement.subject) };
    bar(svg, scale, y, ours, (measurement.ours, measurement.spread), at);
    let mut end = y + BAR;
    if let Some(peer) = measurement.peer {
        let class = class(measurement.peer_subject);
        bar(svg, scale, end + BETWEEN, class, (peer, measurement.peer_spread), at);
        end += BETWEEN + BAR;
    }
    if let Some((limit, x)) = limit {
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" class=\"limit\"><title>promised: {}</title></line>",
            y - 3.0,
            end + 3.0,
            shown(limit)
        );
    }
    end.max(y + LINE * lines.len() as f64)
}

/// Draws a bar with its spread. Writes the figure after the end of the bar. If the figure would cross a
/// spread or limit mark there, writes it after the mark.
fn bar(
    svg: &mut String,
    scale: &Scale,
    y: f64,
    class: &str,
    (value, spread): (f64, Option<[f64; 2]>),
    limit: Option<f64>,
) {
    let (zero, end) = (x_of(scale, 0.0), x_of(scale, value));
    let (left, wide) = (zero.min(end), (end - zero).abs().max(1.0));
    let _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{BAR}\" class=\"{class}\"/>"
    );
    let spread = spread.map(|ends| ends.map(|end| x_of(scale, end)));
    if let Some([least, most]) = spread {
        let middle = y + BAR / 2.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{least:.1}\" x2=\"{most:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" class=\"spread\"/>"
        );
    }
    let text = shown(value);
    let obstacles: Vec<[f64; 2]> = spread.into_iter().chain(limit.map(|x| [x, x])).collect();
    let x = clear_of(left + wide + 5.0, width(&text), &obstacles);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" class=\"figure\">{text}</text>", y + BASE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bound;

    /// Returns the values of an attribute in those SVG lines that have the class `class`.
    fn values(svg: &str, class: &str, attribute: &str) -> Vec<f64> {
        let of_class = svg.lines().filter(|line| line.contains(&format!("class=\"{class}\"")));
        let value = |line: &str| {
            let value = line.split_once(&format!(" {attribute}=\"")).unwrap().1;
            value.split_once('"').unwrap().0.parse().unwrap()
        };
        of_class.map(value).collect()
    }

    fn texts(svg: &str, class: &str) -> Vec<String> {
        let of_class = svg.lines().filter(|line| line.contains(&format!("class=\"{class}\"")));
        of_class.map(|line| line.split_once('>').unwrap().1.trim_end_matches("</text>").to_owned()).collect()
    }

    #[test]
    fn bars_are_as_long_as_figures_are_large_and_the_limit_is_a_line() {
        let measured =
            Measurement::of("a <b>", 10.0, "ns").beside("peer", 20.0).promising(Bound::AtMost, 15.0);
        let svg = bars("ns", &[&measured]);
        let [ours, peer] = ["ours", "peer"].map(|class| values(&svg, class, "width")[0]);
        assert!((ours * 2.0 - peer).abs() < 0.2);
        assert!((values(&svg, "limit", "x1")[0] - (LABEL + ours * 1.5)).abs() < 0.2, "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("<b>"));
    }

    #[test]
    fn axis_has_round_numbers_below_their_positions() {
        let svg = bars("ns", &[&Measurement::of("a", 14.2, "ns")]);
        assert_eq!(texts(&svg, "tick"), ["0", "5", "10", "15"]);
        assert_eq!(values(&svg, "tick", "x"), values(&svg, "grid", "x1"));
        assert_eq!(texts(&svg, "axis"), ["ns"]);
        let (ten, bar) = (values(&svg, "tick", "x")[2] - LABEL, values(&svg, "ours", "width")[0]);
        assert!((bar / ten - 1.42).abs() < 0.01, "{svg}");
    }

    #[test]
    fn long_label_is_whole_and_the_next_row_is_below() {
        let case = "IPv4, 128 K flows and 500 K routes, beside filters of which none matches, and beside flows \
                    that are bound to an instance, forwarding time per packet beyond that of generator and receiver";
        let (long, next) = (Measurement::of(case, 1.0, "ns"), Measurement::of("next", 1.0, "ns"));
        let svg = bars("ns", &[&long, &next]);
        let (lines, at) = (texts(&svg, "label"), values(&svg, "label", "y"));
        assert!(lines.len() > 2 && !svg.contains('…'), "{lines:?}");
        assert_eq!(lines[..lines.len() - 1].join(" "), case);
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= LINE), "{at:?}");
    }

    #[test]
    fn no_limit_and_no_spread_crosses_a_figure() {
        for limit in 90..=150 {
            let measured = Measurement::of("a", 100.0, "ns")
                .within(&[98.0, 103.0])
                .beside("peer", 101.0)
                .promising(Bound::AtMost, f64::from(limit));
            let svg = bars("ns", &[&measured]);
            let at = values(&svg, "limit", "x1")[0];
            let spread = [values(&svg, "spread", "x1")[0], values(&svg, "spread", "x2")[0]];
            for (index, (x, text)) in
                values(&svg, "figure", "x").into_iter().zip(texts(&svg, "figure")).enumerate()
            {
                let end = x + width(&text);
                assert!(at < x || at > end, "limit {limit}: {svg}");
                assert!(index > 0 || spread[1] < x || spread[0] > end, "limit {limit}: {svg}");
                assert!(end <= WIDTH, "limit {limit}: {svg}");
            }
        }
    }

    #[test]
    fn figure_without_crossings_is_at_the_end_of_its_bar() {
        let svg = bars("ns", &[&Measurement::of("a", 10.0, "ns").promising(Bound::AtMost, 20.0)]);
        let end = LABEL + values(&svg, "ours", "width")[0];
        assert!((values(&svg, "figure", "x")[0] - end - 5.0).abs() < 0.2, "{svg}");
    }

    #[test]
    fn the_generators_bars_have_a_class_of_their_own() {
        let alone = Measurement::of("generator only", 10.0, "ns").about(Subject::Generator);
        let svg = bars("ns", &[&alone]);
        assert_eq!((values(&svg, "generator", "width").len(), values(&svg, "ours", "width").len()), (1, 0));
        let beside = Measurement::of("a", 10.0, "ns").beside("sender and receiver", 9.0);
        let svg = bars("ns", &[&beside.peer_about(Subject::Generator)]);
        assert_eq!((values(&svg, "generator", "width").len(), values(&svg, "peer", "width").len()), (1, 0));
    }

    #[test]
    fn limit_of_a_ratio_is_a_multiple_of_the_peers_figure() {
        let measured = Measurement::of("a", 19.0, "Mpps").beside("peer", 10.0);
        let measured = measured.promising_ratio(Bound::AtLeast, 1.9);
        assert_eq!(limit(&measured), Some(19.0));
        assert_eq!(limit(&Measurement::of("a", 1.0, "ns").promising(Bound::AtMost, 9.0)), Some(9.0));
    }

    #[test]
    fn figures_far_apart_are_shown_by_their_logarithm() {
        let (small, large) = (Measurement::of("a", 1.0, "ns"), Measurement::of("b", 1000.0, "ns"));
        let svg = bars("ns", &[&small, &large]);
        assert!(svg.contains("ns, logarithmic") && values(&svg, "ours", "width")[0] > 20.0);
        assert!(!bars("ns", &[&small]).contains("logarithmic"));
        // Zeros alone have no scale, and cause no error.
        let zero = bars("packets", &[&Measurement::of("lost", 0.0, "packets")]);
        assert!(values(&zero, "ours", "width")[0] <= 1.0);
    }
}
