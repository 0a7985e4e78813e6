//! Dry runs of the programs in the kernel, one frame at a time.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;

use super::twin::{Knowledge, Verdict};
use crate::bpf::object::{self, write_config};
use crate::bpf::syscall;
use crate::counters::read_words;
use crate::{ProgramCounters, VlanStack, VlanTag};

/// MAC address of the port.
pub(crate) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// VLAN tags of the port's sub-interface with two tags.
pub(crate) const QINQ: VlanStack =
    VlanStack { outer: VlanTag { tpid: 0x88a8, vid: 7 }, inner: Some(VlanTag { tpid: 0x8100, vid: 10 }) };
/// IP addresses of the port.
pub(crate) const LOCAL: [&str; 4] = ["10.0.0.1", "10.0.0.255", "2001:db8::1", "fd00::1"];

/// Loaded programs, with the maps of one port.
pub(crate) struct Programs {
    pub(crate) object: Ebpf,
    pub(crate) xdp: Vec<OwnedFd>,
    pub(crate) tcx: OwnedFd,
    pub(crate) filter: OwnedFd,
    pub(crate) knowledge: Knowledge,
}

impl Programs {
    /// Loads the programs.
    pub(crate) fn load() -> Self {
        let mut object = object::level0().unwrap();
        let mut load = |name| object::load(&mut object, name).unwrap();
        let xdp = vec![load("millrace_xdp"), load("millrace_xdp_sg")];
        let (tcx, filter) = (load("millrace_tcx"), load("millrace_filter"));
        let mut knowledge = Knowledge { mac: OWN, ..Knowledge::default() };
        knowledge.vlans.extend([VlanStack::single(10), VlanStack::single(4094), QINQ]);
        write_config(&mut object, |config| *config = [2, 0, 0, 0, 0, 1, 1, 0]).unwrap();
        for address in LOCAL.map(|text| text.parse::<IpAddr>().unwrap()) {
            match address {
                IpAddr::V4(v4) => {
                    knowledge.local4.insert(v4);
                    insert(&mut object, "local4", u32::from_ne_bytes(v4.octets()));
                }
                IpAddr::V6(v6) => {
                    knowledge.local6.insert(v6);
                    insert(&mut object, "local6", v6.octets());
                }
            }
        }
        knowledge.vlans.iter().for_each(|vlan| insert(&mut object, "vlans", vlan.key()));
        Self { object, xdp, tcx, filter, knowledge }
    }

    /// Runs all programs on a frame. Returns their common verdict. Panics if two programs disagree, or if the
    /// counters don't show the verdict.
    pub(crate) fn verdict(&self, frame: &[u8]) -> Verdict {
        let mut verdicts = Vec::new();
        for (program, to_user) in [(&self.xdp[0], 1), (&self.xdp[1], 1), (&self.tcx, 2)] {
            let before = read_words(&self.object).unwrap();
            let answer = match syscall::run_dry(program.as_fd(), frame) {
                // A dry run needs whole network headers for a tcx program; a real device does not.
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) && frame.len() < 74 && to_user == 2 =>
                {
                    continue;
                }
                answer => answer.unwrap(),
            };
            let after = read_words(&self.object).unwrap();
            let counted = ProgramCounters::of_words(&std::array::from_fn(|word| after[word] - before[word]));
            assert_eq!(counted.seen_bytes, frame.len() as u64);
            let verdict = counted_verdict(&counted);
            assert_eq!(
                answer == to_user,
                verdict == Verdict::UserSpace,
                "answer {answer}, counted {verdict:?}"
            );
            verdicts.push(verdict);
        }
        // A dry run removes the link header before a socket filter; a real packet socket does not.
        let with_header = [&[0; 14], frame].concat();
        let taken = syscall::run_dry(self.filter.as_fd(), &with_header).unwrap() != 0;
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
        assert_eq!(taken, verdicts[0] == Verdict::UserSpace, "the socket filter disagrees");
        verdicts[0]
    }
}

/// Inserts a key into a map.
pub(crate) fn insert<K: aya::Pod>(object: &mut Ebpf, map: &str, key: K) {
    let mut map = aya::maps::HashMap::<_, K, u8>::try_from(object.map_mut(map).unwrap()).unwrap();
    map.insert(key, 1, 0).unwrap();
}

/// Returns the verdict that the counters show for a single frame.
pub(crate) fn counted_verdict(counted: &ProgramCounters) -> Verdict {
    let classes = [
        (counted.redirected + counted.fallback.dropped, Verdict::UserSpace),
        (counted.kept.other_ethertype, Verdict::OtherEthertype),
        (counted.kept.not_ours, Verdict::NotOurs),
        (counted.kept.local, Verdict::Local),
        (counted.kept.multicast, Verdict::Multicast),
        (counted.kept.vlan, Verdict::Vlan),
    ];
    assert_eq!(counted.seen, 1);
    let found: Vec<_> = classes.into_iter().filter(|(count, _)| *count > 0).collect();
    assert!(matches!(found[..], [(1, _)]), "{counted:?}");
    found[0].1
}

/// Returns the checksum of RFC 1071.
pub(crate) fn ones_complement(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
