//! The form for the driver (`driver/form.c`), in whose words this speaks.

use millrace_plugin_abi::DriverForm;

use crate::MOST_RANGES;
use crate::settings::{Protocols, Settings};

/// The form: a word for the protocols and one for each range; packets, dropped ones, and those by range.
pub(crate) const FORM: DriverForm = DriverForm {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/form.o")),
    settings: 1 + MOST_RANGES,
    counters: RANGES + MOST_RANGES,
};

/// Where packets are counted.
pub(crate) const PACKETS: usize = 0;
/// Where those are that it drops.
pub(crate) const DROPPED: usize = 1;
/// Where those are that the first range drops; the others follow.
pub(crate) const RANGES: usize = 2;

const TCP: u64 = 1;
const UDP: u64 = 2;
const IS_THERE: u64 = 1 << 32;

/// What the form is to drop. Packets that are cut never stay in the driver.
pub(crate) fn settings(settings: &Settings) -> [u64; FORM.settings] {
    let mut words = [0; FORM.settings];
    let [protocols, places @ ..] = &mut words;
    *protocols = match settings.protocols {
        Protocols::Tcp => TCP,
        Protocols::Udp => UDP,
        Protocols::Any => TCP | UDP,
    };
    for (word, range) in places.iter_mut().zip(settings.ranges.iter()) {
        let (first, last) = range.bounds();
        *word = IS_THERE | u64::from(last) << 16 | u64::from(first);
    }
    words
}
