//! Bars as SVG: ours and the peer's, with the spread of repetitions, and the promised limit as a line.

use std::fmt::Write;

use super::page::{escaped, figure};
use crate::Measurement;

/// Widths and heights, in pixels.
const WIDTH: f64 = 960.0;
const LABEL: f64 = 400.0;
const FIGURE: f64 = 90.0;
const BAR: f64 = 11.0;
const GAP: f64 = 9.0;
const TOP: f64 = 6.0;
/// Figures that lie further apart than this are shown by their logarithm.
const LINEAR: f64 = 60.0;
/// Letters of a label before it is cut; the whole stands in the table and in a tooltip.
const LETTERS: usize = 62;

/// Measurements of one unit.
pub(super) fn plot(unit: &str, measurements: &[&Measurement]) -> String {
    let scale = Scale::of(measurements);
    let (mut body, mut y) = (String::new(), TOP);
    for measurement in measurements {
        y = row(&mut body, measurement, &scale, y) + GAP;
    }
    let axis = if scale.logarithmic { format!("{unit}, logarithmic") } else { unit.to_owned() };
    let height = y + 14.0;
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{unit}\">\n{body}<text x=\"{LABEL}\" y=\"{:.1}\" class=\"axis\">{}</text>\n</svg>\n",
        height - 3.0,
        escaped(&axis),
        unit = escaped(unit),
    )
}

/// What bounds our own figure: what is promised of it, or of its ratio to the peer's.
fn limit(measurement: &Measurement) -> Option<f64> {
    let limit = measurement.limit?;
    match (measurement.limits_ratio(), measurement.peer) {
        (true, peer) => peer.map(|peer| peer * limit),
        (false, _) => Some(limit),
    }
}

/// From figures to pixels.
struct Scale {
    logarithmic: bool,
    least: f64,
    most: f64,
}

impl Scale {
    fn of(measurements: &[&Measurement]) -> Self {
        let figures: Vec<f64> = measurements
            .iter()
            .flat_map(|one| {
                let ends = one.spread.into_iter().chain(one.peer_spread).flatten();
                [Some(one.ours), one.peer, limit(one)].into_iter().flatten().chain(ends)
            })
            .filter(|figure| figure.is_finite() && *figure > 0.0)
            .collect();
        let most = figures.iter().copied().fold(0.0, f64::max);
        let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let logarithmic = most > LINEAR * least;
        // The least has a bar, too.
        Self { logarithmic, least: if logarithmic { least / 2.0 } else { 0.0 }, most }
    }

    fn length(&self, figure: f64) -> f64 {
        let room = WIDTH - LABEL - FIGURE;
        let part = if self.most <= 0.0 || figure <= 0.0 {
            0.0
        } else if self.logarithmic {
            (figure / self.least).ln() / (self.most / self.least).ln()
        } else {
            figure / self.most
        };
        room * part.clamp(0.0, 1.0)
    }
}

/// Draws a measurement below `y`; where it ends.
fn row(svg: &mut String, measurement: &Measurement, scale: &Scale, y: f64) -> f64 {
    let mut label: String = measurement.case.chars().take(LETTERS).collect();
    if label.len() < measurement.case.len() {
        label.push('…');
    }
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<g><title>{}</title><text x=\"{}\" y=\"{:.1}\" class=\"label\">{}</text></g>",
        escaped(&measurement.case),
        LABEL - 8.0,
        y + BAR - 1.5,
        escaped(&label)
    );
    let class = match measurement.holds {
        Some(false) => "ours missed",
        _ => "ours",
    };
    bar(svg, scale, y, class, measurement.ours, measurement.spread);
    let mut end = y + BAR;
    if let Some(peer) = measurement.peer {
        bar(svg, scale, end + 1.0, "peer", peer, measurement.peer_spread);
        end += BAR + 1.0;
    }
    if let Some(limit) = limit(measurement) {
        let x = LABEL + scale.length(limit);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" class=\"limit\"><title>promised: {}</title></line>",
            y - 3.0,
            end + 3.0,
            figure(limit)
        );
    }
    end
}

fn bar(svg: &mut String, scale: &Scale, y: f64, class: &str, value: f64, spread: Option<[f64; 2]>) {
    let width = scale.length(value);
    let _ = writeln!(
        svg,
        "<rect x=\"{LABEL}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" class=\"{class}\"/>",
        width.max(1.0)
    );
    let mut end = width;
    if let Some(ends) = spread {
        let [least, most] = ends.map(|end| LABEL + scale.length(end));
        let middle = y + BAR / 2.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{least:.1}\" x2=\"{most:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" class=\"spread\"/>"
        );
        end = end.max(most - LABEL);
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" class=\"figure\">{}</text>",
        LABEL + end + 5.0,
        y + BAR - 1.5,
        figure(value)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bound;

    fn width_of(svg: &str, class: &str) -> f64 {
        let line = svg.lines().find(|line| line.contains(&format!("class=\"{class}\""))).unwrap();
        let width = line.split_once("width=\"").unwrap().1;
        width.split_once('"').unwrap().0.parse().unwrap()
    }

    #[test]
    fn bars_are_as_long_as_figures_are_large_and_the_limit_is_a_line() {
        let measured =
            Measurement::of("a <b>", 10.0, "ns").beside("peer", 20.0).promising(Bound::AtMost, 15.0);
        let svg = plot("ns", &[&measured]);
        assert!((width_of(&svg, "ours") * 2.0 - width_of(&svg, "peer")).abs() < 0.2);
        let limit = LABEL + (WIDTH - LABEL - FIGURE) * 0.75;
        assert!(svg.contains(&format!("x1=\"{limit:.1}\"")), "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("<b>"));
    }

    #[test]
    fn a_limit_of_a_ratio_lies_at_so_many_times_the_peers_figure() {
        let measured = Measurement::of("a", 19.0, "Mpps").beside("peer", 10.0);
        let measured = measured.promising_ratio(Bound::AtLeast, 1.9);
        assert_eq!(limit(&measured), Some(19.0));
        assert_eq!(limit(&Measurement::of("a", 1.0, "ns").promising(Bound::AtMost, 9.0)), Some(9.0));
    }

    #[test]
    fn figures_far_apart_are_shown_by_their_logarithm() {
        let (small, large) = (Measurement::of("a", 1.0, "ns"), Measurement::of("b", 1000.0, "ns"));
        let svg = plot("ns", &[&small, &large]);
        assert!(svg.contains("ns, logarithmic") && width_of(&svg, "ours") > 20.0);
        assert!(!plot("ns", &[&small]).contains("logarithmic"));
        // Nothing but zeros has no scale, and is no error.
        assert!(width_of(&plot("packets", &[&Measurement::of("lost", 0.0, "packets")]), "ours") <= 1.0);
    }
}
