//! Table 4.4: parameters of the IXP1200 router.

use super::appendix::{compare, line, nanoseconds};
use super::router;
use crate::Run;
use crate::experiment::Experiment;

pub fn run(_: &mut Run) -> Experiment {
    let strongarm = 199.1e6;
    let dma = line((64.0, nanoseconds(64.0, 13.10)), (1500.0, nanoseconds(1500.0, 49.01)));
    let pio = line((64.0, nanoseconds(64.0, 24.78)), (1500.0, nanoseconds(1500.0, 24.81)));
    let back = line((64.0, nanoseconds(64.0, 68.73)), (1500.0, nanoseconds(1500.0, 66.35)));
    let pentium = line((64.0, 733e6 / 534e3 - 500.0), (1500.0, 733e6 / 43.6e3 - 800.0));
    let leg = pentium.0 / 2.0;
    let parameters = [
        ("sa_cps", 199.1, 199.1, 0.0),
        ("ue_cpp", 768.0, 240.0 + 24.0 * 22.0, 0.0),
        ("sa2pt_dma_spp", 3739.0, dma.0, 0.5),
        ("sa2pt_dma_spb", 17.91, dma.1, 0.005),
        ("sa2pt_pio_spp", 3.27, pio.0, 0.5),
        ("sa2pt_pio_spb", 40.30, pio.1, 0.005),
        ("sa2pt_pio_max", 166.0, ((dma.0 - pio.0) / (pio.1 - dma.1)).floor(), 0.0),
        ("pt2sa_spp", -34.94, back.0, 0.2),
        ("pt2sa_spb", 15.09, back.1, 0.01),
        ("sa_ue2_cpp", 189.0, strongarm / 526e3 / 2.0, 0.5),
        ("sa_2ue_cpp", 189.0, strongarm / 526e3 / 2.0, 0.5),
        ("sa_pt2_cpp", 186.0, strongarm / 534e3 / 2.0, 0.5),
        ("sa_2pt_dma_cpp", 186.0, strongarm / 534e3 / 2.0, 0.5),
        ("sa_2pt_pio_cpp", 27.0, 99.0 * 199.1 / 733.0, 0.5),
        ("sa_2pt_pio_cpb", 8.0, pio.1 * 1e-9 * strongarm, 0.5),
        ("pt_sa2_cpp", 99.0, leg, 0.5),
        ("pt_2sa_cpp", 99.0, leg, 0.5),
        ("pt_2sa_cpb", 11.0, pentium.1, 0.5),
        ("sa_env_cpp", 513.0, 0.25 * (1342.0 - 236.0) + 236.0, 0.5),
        ("NUMPORTS", 8.0, 8.0, 0.0),
    ];
    let note = "The table prints pt2sa_spp as -34.94, the appendix as -34.84; the measurements give neither exactly. \
                The transfer rate of path C is 310,000 packets/s in section 4.1.1 and 534,000 in table 3.3; the \
                appendix uses the latter.";
    compare("vera-table-4.4", "Parameters of the IXP1200 router", &parameters, router("ixp1200"), note)
}
