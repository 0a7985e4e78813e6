//! Plots as SVG: bars of figures, and curves of samples.

mod bars;
mod curve;
mod scale;
mod text;

pub(super) use self::bars::bars;
pub(super) use self::curve::{cumulative, over_time};

use crate::Subject;

/// Width of a plot, in pixels.
const WIDTH: f64 = 960.0;

/// Returns the CSS class of a subject's bars, curves and keys; each class has a colour in the page's style.
pub(super) const fn class(subject: Subject) -> &'static str {
    match subject {
        Subject::Millrace => "ours",
        Subject::Peer => "peer",
        Subject::Generator => "generator",
    }
}
