//! Line plots as SVG.

use std::fmt::Write as _;

use millrace_bench::escaped;
use serde::{Deserialize, Serialize};

/// Plot of several series over the same points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Label of the horizontal axis.
    pub horizontal: String,
    /// Label of the vertical axis.
    pub vertical: String,
    /// Labels of the points. Of many, the plot shows some.
    pub points: Vec<String>,
    /// Series.
    pub series: Vec<Series>,
}

/// Series of a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name.
    pub name: String,
    /// Value at each point.
    pub values: Vec<f64>,
}

/// Size of the drawing area, and its distances from the picture's edges.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 16.0;
const BELOW: f64 = 56.0;
const RIGHT: f64 = 150.0;
/// Most labels below the horizontal axis.
const LABELS: usize = 12;
const COLOURS: [&str; 10] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22",
    "#17becf",
];

/// Scales of a plot's axes.
struct Scales {
    bottom: f64,
    top: f64,
    points: usize,
}

impl Scales {
    fn across(&self, point: usize) -> f64 {
        LEFT + WIDTH * point as f64 / (self.points.max(2) - 1) as f64
    }

    fn down(&self, value: f64) -> f64 {
        TOP + HEIGHT * (self.top - value) / (self.top - self.bottom).max(1e-9)
    }
}

impl Plot {
    /// Returns the plot as an SVG picture.
    #[must_use]
    pub fn picture(&self) -> String {
        let values = || self.series.iter().flat_map(|series| series.values.iter().copied());
        let top = values().fold(0.0, f64::max).max(1.0);
        let bottom = values().fold(top, f64::min).min(0.9 * top);
        let scales = Scales { bottom: (bottom * 10.0).floor() / 10.0, top, points: self.points.len() };
        let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW);
        let axes = self.axes(&scales);
        let lines = self.lines(&scales);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             font-family=\"sans-serif\" font-size=\"12\">\n{axes}{lines}</svg>\n"
        )
    }

    // Writing to a string can't fail.
    fn axes(&self, scales: &Scales) -> String {
        let mut svg = String::new();
        let right = LEFT + WIDTH;
        for step in 0..=5 {
            let value = scales.bottom + (scales.top - scales.bottom) * f64::from(step) / 5.0;
            let y = scales.down(value);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            );
            let (x, y) = (LEFT - 6.0, y + 4.0);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{value:.2}</text>");
        }
        let mut text = |x: f64, y: f64, turn: &str, text: &str| {
            let text = escaped(text);
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\"{turn}>{text}</text>");
        };
        for (index, point) in
            self.points.iter().enumerate().step_by(self.points.len().div_ceil(LABELS).max(1))
        {
            text(scales.across(index), TOP + HEIGHT + 18.0, "", point);
        }
        text(LEFT + WIDTH / 2.0, TOP + HEIGHT + 42.0, "", &self.horizontal);
        let y = TOP + HEIGHT / 2.0;
        text(14.0, y, &format!(" transform=\"rotate(-90 14 {y})\""), &self.vertical);
        svg
    }

    fn lines(&self, scales: &Scales) -> String {
        let mut svg = String::new();
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS.get(index % COLOURS.len()).copied().unwrap_or("black");
            let points = series.values.iter().enumerate();
            let points = points
                .map(|(index, value)| format!("{:.1},{:.1}", scales.across(index), scales.down(*value)));
            let points = points.collect::<Vec<_>>().join(" ");
            let _ = writeln!(
                svg,
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
            );
            let (x, y) = (LEFT + WIDTH + 12.0, TOP + 12.0 + 18.0 * index as f64);
            let _ =
                writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{}</text>", escaped(&series.name));
        }
        svg
    }
}
