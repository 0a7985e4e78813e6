//! Rows of tables 4.6 and 4.9: algorithms with their variants.
//!
//! The printed rows of L2-Norm and Hybrid agree with the sum of components, not with the norms that section 4.4.2
//! states. Both are run: as reproduced under the printed name, and as written.

use millrace_admission::hardware::Hardware;
use millrace_admission::norm::Norm;
use millrace_admission::placement::Algorithm;

/// Factors by which the use of a line card's general processor is multiplied (section 4.5.3).
pub const FACTORS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];

/// Algorithm with the name of its row.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: String,
    pub algorithm: Algorithm,
}

fn named(name: String, algorithm: Algorithm) -> Named {
    Named { name, algorithm }
}

/// Returns the Ordered algorithms of names such as `UE-PT-SA`.
fn ordered(hardware: &Hardware, names: &[&str]) -> Vec<Named> {
    let order = |name: &str| name.split('-').filter_map(|part| hardware.processor(part)).collect();
    names.iter().map(|name| named((*name).to_owned(), Algorithm::Ordered(order(name)))).collect()
}

/// Returns a family of algorithms, one for each factor of the component `scaled`.
fn family(
    hardware: &Hardware,
    scaled: &str,
    name: &str,
    algorithm: impl Fn(Vec<f64>) -> Algorithm,
) -> Vec<Named> {
    let one = |factor: f64| named(format!("{name}{factor}"), algorithm(hardware.weights(scaled, factor)));
    FACTORS.into_iter().map(one).collect()
}

/// Returns L2-Norm, Balanced and Scan as reproduced.
fn by_norm(hardware: &Hardware, scaled: &str) -> [Vec<Named>; 3] {
    [
        family(hardware, scaled, "L2-Norm", |weights| Algorithm::LeastNorm(Norm::L1, weights)),
        family(hardware, scaled, "Balance", |weights| Algorithm::LeastNorm(Norm::Largest, weights)),
        family(hardware, scaled, "Scan", |weights| Algorithm::Scan(Norm::Largest, weights)),
    ]
}

fn as_written(mut family: Vec<Named>) -> Vec<Named> {
    for row in &mut family {
        row.name.push_str(" as written");
    }
    family
}

/// Returns the rows of table 4.6, and those that run as written.
pub fn ixp1200(hardware: &Hardware) -> Vec<Named> {
    let orders = ["UE-PT-SA", "UE-SA-PT", "PT-UE-SA", "PT-SA-UE", "SA-UE-PT", "SA-PT-UE"];
    let [norm, balanced, scan] = by_norm(hardware, "SA");
    let hybrid =
        |norm: Norm| family(hardware, "SA", "UE;S-P-", move |weights| Algorithm::Hybrid(0, norm, weights));
    let written = family(hardware, "SA", "L2-Norm", |weights| Algorithm::LeastNorm(Norm::L2, weights));
    [
        ordered(hardware, &orders),
        norm,
        balanced,
        hybrid(Norm::L1),
        scan,
        as_written(written),
        as_written(hybrid(Norm::Largest)),
    ]
    .concat()
}

/// Returns the rows of table 4.9, and those that run as written.
pub fn pmc694(hardware: &Hardware) -> Vec<Named> {
    let [norm, balanced, scan] = by_norm(hardware, "PP");
    let written = family(hardware, "PP", "L2-Norm", |weights| Algorithm::LeastNorm(Norm::L2, weights));
    [ordered(hardware, &["PP-PT", "PT-PP"]), norm, balanced, scan, as_written(written)].concat()
}

/// Returns the algorithms of figures 4.1 to 4.3: of each kind the best, and the reversed Scan.
pub fn figure(hardware: &Hardware) -> Vec<Named> {
    let names = [
        "UE-PT-SA", "UE-SA-PT", "PT-UE-SA", "PT-SA-UE", "SA-UE-PT", "L2-Norm8", "Balance2", "UE;S-P-4",
        "Scan4",
    ];
    let mut rows: Vec<Named> =
        ixp1200(hardware).into_iter().filter(|row| names.contains(&row.name.as_str())).collect();
    for factor in [2.0, 4.0] {
        let weights = hardware.weights("SA", factor);
        rows.push(named(format!("reversed Scan{factor}"), Algorithm::ReversedScan(Norm::Largest, weights)));
    }
    rows
}
