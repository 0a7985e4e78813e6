//! Table 4.7: parameters of the PMC694 router.

use super::appendix::{compare, line};
use super::router;
use crate::Run;
use crate::experiment::Experiment;

pub fn run(_: &mut Run) -> Experiment {
    // The appendix rounds the times of measurements before it draws the lines.
    let up = line((64.0, 1872.0), (1500.0, 56_930.0));
    let down = line((64.0, 931.6), (1500.0, 22_580.0));
    let transfer = (199.1e6_f64 / 534e3 / 2.0).floor();
    let parameters = [
        ("pp_cpp", 893.0, (266e6_f64 / 297.6e3).floor(), 0.0),
        ("pp2pt_spp", -581.1, up.0, 1.0),
        ("pp2pt_spb", 38.34, up.1, 0.005),
        ("pt2pp_spp", -33.23, down.0, 0.05),
        ("pt2pp_spb", 15.08, down.1, 0.005),
        ("mc2pp_spp", -33.23, down.0, 0.05),
        ("mc2pp_spb", 15.08, down.1, 0.005),
        ("pp2mc_spp", -581.1, up.0, 1.0),
        ("pp2mc_spb", 38.34, up.1, 0.005),
        ("mp_ofact", 0.7, 0.7, 0.0),
        ("pp_pt2_cpp", 186.0, transfer, 0.5),
        ("pp_2pt_cpp", 186.0, transfer, 0.5),
        ("pt_pp2_cpp", 99.0, 99.0, 0.0),
        ("pt_2pp_cpp", 99.0, 99.0, 0.0),
        ("pt_2pp_cpb", 11.0, 11.0, 0.0),
        ("pp_env_cpp", 236.0, 236.0, 0.0),
        ("NUMPORTS", 2.0, 2.0, 0.0),
    ];
    let note = "The appendix says that the environment cost equals the StrongARM's, which is 513; the table and section \
                4.6.1 use 236.";
    compare("vera-table-4.7", "Parameters of the PMC694 router", &parameters, router("pmc694"), note)
}
