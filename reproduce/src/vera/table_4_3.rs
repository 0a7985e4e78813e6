//! Table 4.3: parameters of all routers.

use super::appendix::compare;
use super::router;
use crate::Run;
use crate::experiment::Experiment;

pub fn run(_: &mut Run) -> Experiment {
    let parameters = [
        ("pt_cps", 733.0, 733.0, 0.0),
        // A Pentium II forwards 290,000 packets/s with 450 MHz, rounded to 1550 cycles; less 10 for IP and 198 for transfers.
        ("pt_env_cpp", 1342.0, (450e6_f64 / 290e3 / 50.0).floor() * 50.0 - 10.0 - 198.0, 0.0),
        ("irh_oh", 4.0, 4.0, 0.0),
        ("irh_ph", 64.0, 64.0, 0.0),
        ("min_bpp", 64.0, 6.0 + 6.0 + 2.0 + 46.0 + 4.0, 0.0),
        ("max_bpp", 1518.0, 6.0 + 6.0 + 2.0 + 1500.0 + 4.0, 0.0),
        ("port_spp", 1600.0, 960.0 + 8.0 * 8.0 * 10.0, 0.0),
        ("port_spb", 80.0, 8.0 * 10.0, 0.0),
    ];
    compare("vera-table-4.3", "Parameters of all routers", &parameters, router("pentium"), "")
}
