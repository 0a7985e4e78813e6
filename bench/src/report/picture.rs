//! Picture of results: a bar chart as an SVG file.

use super::Report;
use super::page::{sections, units};
use super::plot::{PLOT_STYLE, chart};
use crate::Measurement;

/// XML namespace attribute, which a separate SVG file needs and an HTML page does not.
const NAMESPACE: &str = " xmlns=\"http://www.w3.org/2000/svg\"";

/// Returns a bar chart of the first benchmark: the measurements with the same unit as its first measurement.
/// `None` without results.
pub(super) fn picture(report: &Report) -> Option<String> {
    let (_, measurements) = sections(report).into_iter().next()?;
    let unit = *units(&measurements).first()?;
    let of_unit: Vec<&Measurement> = measurements.into_iter().filter(|one| one.unit == unit).collect();
    let background =
        format!("<style>{PLOT_STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    Some(chart(unit, &of_unit, NAMESPACE, &background))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_shows_the_first_unit_of_the_first_benchmark() {
        let of =
            |case: &str, unit: &str| Measurement::median_of(case, &[1.0, 2.0, 3.0], unit).beside("peer", 4.0);
        let mut report =
            Report::of("memory", vec![of("first", "ns"), of("second", "MiB"), of("third", "ns")]);
        report.add("veth", vec![of("fourth", "ns")]);
        let picture = picture(&report).unwrap();
        assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox"), "{picture}");
        assert!(["first", "third", ".ours{"].iter().all(|text| picture.contains(text)), "{picture}");
        assert!(["second", "fourth"].iter().all(|text| !picture.contains(text)), "{picture}");
        assert_eq!(super::picture(&Report::default()), None);
    }
}
