//! Plots as SVG: bars of figures, and curves of samples.

mod bars;
mod curve;
mod scale;
mod text;

pub(super) use self::bars::{bars, chart};
pub(super) use self::curve::{cumulative, over_time};

use crate::Subject;

/// Width of a plot, in pixels.
const WIDTH: f64 = 960.0;

/// Style of plots: text, and a colour for each class.
pub(super) const PLOT_STYLE: &str = "text{font:11px system-ui,sans-serif;fill:#1c2330}.label{text-anchor:end}.axis,.tick{fill:#667085}\
.tick{text-anchor:middle}.label.tick{text-anchor:end}.figure{paint-order:stroke;stroke:#fff;stroke-width:3px}\
.ours{fill:#2f6fde;color:#2f6fde}.ours.missed{fill:#d9541e;color:#d9541e}.peer{fill:#a9b4c6;color:#a9b4c6}.generator{fill:#8a5cc9;color:#8a5cc9}\
line.limit{stroke:#1c2330;stroke-width:1.5;stroke-dasharray:3 2}line.spread{stroke:#0b1f4b;stroke-width:1.2}\
line.grid{stroke:#e6e9ef}line.base{stroke:#98a2b3}\
polyline{fill:none!important;stroke:currentColor;stroke-width:1.6}polyline.peer{color:#7b879c}\
polyline.dash1{stroke-dasharray:6 3}polyline.dash2{stroke-dasharray:2 2}";

/// Returns the CSS class of a subject's bars, curves and keys; each class has a colour in [`PLOT_STYLE`].
pub(super) const fn class(subject: Subject) -> &'static str {
    match subject {
        Subject::Millrace => "ours",
        Subject::Peer => "peer",
        Subject::Generator => "generator",
    }
}
