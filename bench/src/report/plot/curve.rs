//! Curves: cumulative distributions of samples, and values over time.

use std::fmt::Write;

use super::scale::Scale;
use super::text::width;
use super::{WIDTH, class};
use crate::report::escaped::escaped;
use crate::{Quantiles, Subject, Timeline};

/// Left edge of the plotted area, in pixels. The following constants are the other edges, and the height of
/// the plot.
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 40.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 200.0;
const HEIGHT: f64 = 236.0;

/// Subject, name and points of a curve.
struct Curve<'a> {
    subject: Subject,
    name: &'a str,
    points: Vec<[f64; 2]>,
}

/// Plots the cumulative distributions of samples: the percentage of samples up to each value.
pub(in crate::report) fn cumulative(case: &str, distribution: &Quantiles) -> String {
    let curves: Vec<Curve<'_>> = distribution
        .curves
        .iter()
        .map(|samples| Curve {
            subject: samples.subject,
            name: &samples.name,
            points: steps(&samples.values),
        })
        .collect();
    let values: Vec<f64> = curves.iter().flat_map(|curve| &curve.points).map(|point| point[0]).collect();
    let scales = [Scale::of(&values), Scale::linear(&[100.0])];
    let title = format!("{case}: cumulative distribution");
    figure(&title, (&distribution.quantity, "samples up to there, %"), &scales, &curves)
}

/// Plots values over time.
pub(in crate::report) fn over_time(case: &str, timeline: &Timeline) -> String {
    let curves: Vec<Curve<'_>> = timeline
        .curves
        .iter()
        .map(|series| Curve { subject: series.subject, name: &series.name, points: series.points.clone() })
        .collect();
    let scales = [0, 1].map(|axis| {
        let values = curves.iter().flat_map(|curve| &curve.points).map(|point| point[axis]);
        Scale::linear(&values.collect::<Vec<f64>>())
    });
    figure(&format!("{case}: over time"), ("time, s", &timeline.quantity), &scales, &curves)
}

/// Returns the corner points of a step curve, which rises from 0 to 100 % at the sorted values.
fn steps(sorted: &[f64]) -> Vec<[f64; 2]> {
    let part = |count: usize| 100.0 * count as f64 / sorted.len() as f64;
    let step = |(index, value): (usize, &f64)| [[*value, part(index)], [*value, part(index + 1)]];
    sorted.iter().enumerate().flat_map(step).collect()
}

/// Draws a plot with its title and legend. Returns an empty string if there are no points.
fn figure(title: &str, (across, up): (&str, &str), scales: &[Scale; 2], curves: &[Curve<'_>]) -> String {
    if curves.iter().all(|curve| curve.points.is_empty()) {
        return String::new();
    }
    let (mut keys, mut svg) = (String::new(), String::new());
    axes(&mut svg, (across, up), scales);
    for (index, curve) in curves.iter().enumerate() {
        // Give curves of the same colour different dashes.
        let before = curves[..index].iter().filter(|other| other.subject == curve.subject).count();
        let class = format!("{} dash{}", class(curve.subject), before % 3);
        let points: Vec<String> = curve
            .points
            .iter()
            .map(|[x, y]| format!("{:.1},{:.1}", x_of(&scales[0], *x), y_of(&scales[1], *y)))
            .collect();
        // Writing to a string can't fail.
        let _ = writeln!(svg, "<polyline points=\"{}\" class=\"{class}\"/>", points.join(" "));
        let _ = write!(
            keys,
            "<span class=\"key\"><svg viewBox=\"0 0 24 8\" width=\"24\" height=\"8\"><polyline points=\"0,4 24,4\" \
             class=\"{class}\"/></svg> {}</span>",
            escaped(curve.name)
        );
    }
    format!(
        "<figure>\n<figcaption>{}<br>{keys}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" role=\"img\" aria-label=\"{}\">\n{svg}</svg>\n</figure>\n",
        escaped(title),
        escaped(title),
    )
}

/// Draws both axes, with numbers at their ticks.
fn axes(svg: &mut String, (across, up): (&str, &str), [horizontal, vertical]: &[Scale; 2]) {
    let mut free = f64::NEG_INFINITY;
    for tick in &horizontal.ticks {
        let (x, text) = (x_of(horizontal, *tick), horizontal.text(*tick));
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\" class=\"grid\"/>",
            BOTTOM + 4.0
        );
        let half = width(&text) / 2.0;
        // Omit a number that would touch the previous one.
        if x - half > free {
            let _ =
                writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" class=\"tick\">{text}</text>", BOTTOM + 16.0);
            free = x + half + 6.0;
        }
    }
    for tick in &vertical.ticks {
        let (y, text) = (y_of(vertical, *tick), vertical.text(*tick));
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"grid\"/>",
            LEFT - 4.0
        );
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" class=\"label tick\">{text}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    let across = if horizontal.logarithmic { format!("{across}, logarithmic") } else { across.to_owned() };
    let _ = writeln!(
        svg,
        "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\" class=\"base\"/>\n\
         <line x1=\"{LEFT}\" x2=\"{LEFT}\" y1=\"{TOP}\" y2=\"{BOTTOM}\" class=\"base\"/>\n\
         <text x=\"{LEFT}\" y=\"{:.1}\" class=\"axis\">{}</text>\n<text x=\"4\" y=\"10\" class=\"axis\">{}</text>",
        BOTTOM + 31.0,
        escaped(&across),
        escaped(up),
    );
}

fn x_of(scale: &Scale, figure: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * scale.place(figure)
}

fn y_of(scale: &Scale, figure: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * scale.place(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the points of each curve in pixels.
    fn curves(svg: &str) -> Vec<Vec<[f64; 2]>> {
        let plotted = svg.lines().filter(|line| line.starts_with("<polyline"));
        let points = |line: &str| {
            let points = line.split_once("points=\"").unwrap().1.split_once('"').unwrap().0;
            let point = |text: &str| {
                let (x, y) = text.split_once(',').unwrap();
                [x.parse().unwrap(), y.parse().unwrap()]
            };
            points.split(' ').map(point).collect()
        };
        plotted.map(points).collect()
    }

    #[test]
    fn distribution_rises_from_bottom_to_top_through_its_median() {
        let distribution = Quantiles::of("delay, ms")
            .with(Subject::Millrace, "Millrace", &[4.0, 1.0, 2.0, 3.0])
            .with(Subject::Peer, "HTB & <TBF>", &[8.0]);
        let svg = cumulative("voice", &distribution);
        let all = curves(&svg);
        let [ours, peer] = &all[..] else { panic!("{svg}") };
        assert_eq!((ours[0][1], ours[ours.len() - 1][1]), (BOTTOM, TOP));
        // Half of the samples are at most 2; the axis ends at 8.
        assert!(ours.contains(&[LEFT + (RIGHT - LEFT) / 4.0, f64::midpoint(TOP, BOTTOM)]), "{svg}");
        assert_eq!(peer[..], [[RIGHT, BOTTOM], [RIGHT, TOP]]);
        assert!(svg.contains("class=\"ours dash0\"") && svg.contains("class=\"peer dash0\""));
        assert!(svg.contains("HTB &amp; &lt;TBF&gt;") && svg.contains("delay, ms</text>"), "{svg}");
    }

    #[test]
    fn values_over_time_have_numbers_at_both_axes() {
        let timeline = Timeline::of("rate, Mb/s")
            .with(Subject::Millrace, "Millrace", &[[0.0, 10.0], [1.0, 5.0]])
            .with(Subject::Peer, "HTB", &[[0.5, 1.0]])
            .with(Subject::Peer, "TBF", &[[0.5, 2.0]]);
        let svg = over_time("TCP", &timeline);
        let all = curves(&svg);
        assert_eq!(all[0], [[LEFT, TOP], [RIGHT, f64::midpoint(TOP, BOTTOM)]]);
        for number in ["0.2", "1.0", "10"] {
            assert!(svg.contains(&format!(">{number}</text>")), "{number}: {svg}");
        }
        // Two peers have the same colour but different dashes.
        assert!(svg.contains("class=\"peer dash0\"") && svg.contains("class=\"peer dash1\""));
    }

    #[test]
    fn nothing_is_plotted_without_samples() {
        assert_eq!(cumulative("a", &Quantiles::of("delay, ms")), "");
        assert_eq!(over_time("a", &Timeline::of("rate, Mb/s")), "");
    }
}
