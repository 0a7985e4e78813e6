//! Statistics of filter set styles, taken from ClassBench's seeds acl1, fw1 and ipc1.

use std::fmt;

/// Style of a filter set, after a ClassBench seed. It determines prefix lengths, frequencies of ports and
/// protocols, and clustering of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Style {
    /// Access lists of a router: mostly hosts and small networks on both sides, with destination ports.
    Acl,
    /// Firewall: one side is mostly open, with ports on either side.
    Fw,
    /// Linux packet filter: all prefix lengths on both sides.
    Ipc,
}

impl Style {
    /// All styles.
    pub const ALL: [Self; 3] = [Self::Acl, Self::Fw, Self::Ipc];

    pub(super) fn figures(self) -> &'static Figures {
        match self {
            Self::Acl => &ACL,
            Self::Fw => &FW,
            Self::Ipc => &IPC,
        }
    }
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Acl => "acl",
            Self::Fw => "fw",
            Self::Ipc => "ipc",
        })
    }
}

/// Kind of condition on a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ports {
    Any,
    /// All ports from 1024 on.
    High,
    /// One well-known port.
    Exact,
    /// One of the usual port ranges.
    Range,
}

use Ports::{Any, Exact, High, Range};

/// Number of different addresses on one side of a set, relative to the number of filters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// Number of different 16-bit networks, per filter.
    pub networks: f64,
    /// Number of different 24-bit subnets, per filter.
    pub subnets: f64,
    /// Number of different hosts, per filter.
    pub hosts: f64,
    /// Skew of the random choice of addresses: 1 makes all equally likely, larger values favour the first
    /// ones.
    pub skew: f64,
}

pub(super) struct Figures {
    /// Pairs of source and destination prefix lengths, with their frequency.
    pub lengths: &'static [((u8, u8), u32)],
    /// Pairs of source and destination port conditions, with their frequency.
    pub ports: &'static [((Ports, Ports), u32)],
    /// Protocols with their frequency; `None` for any protocol.
    pub protocols: &'static [(Option<u8>, u32)],
    /// Single ports with their frequency.
    pub exact: &'static [(u16, u32)],
    /// Port ranges with their frequency.
    pub ranges: &'static [((u16, u16), u32)],
    pub source: Spread,
    pub destination: Spread,
}

const ACL: Figures = Figures {
    lengths: &[
        ((32, 32), 287),
        ((31, 32), 138),
        ((32, 31), 126),
        ((31, 31), 44),
        ((32, 30), 38),
        ((23, 32), 34),
        ((32, 22), 32),
        ((31, 22), 21),
        ((30, 32), 20),
        ((31, 23), 19),
        ((24, 31), 17),
        ((32, 24), 16),
        ((32, 21), 12),
        ((30, 22), 11),
        ((24, 32), 9),
        ((31, 25), 8),
        ((29, 23), 5),
        ((23, 16), 5),
        ((23, 28), 4),
        ((22, 17), 4),
        ((23, 15), 3),
        ((24, 27), 3),
        ((24, 14), 2),
        ((23, 3), 2),
    ],
    ports: &[((Any, Exact), 60), ((Any, Any), 28), ((Any, Range), 12)],
    protocols: &[(Some(6), 873), (None, 83), (Some(1), 30), (Some(17), 14)],
    exact: &[
        (1521, 107),
        (1526, 33),
        (1221, 24),
        (1433, 21),
        (135, 19),
        (1525, 19),
        (14753, 17),
        (1711, 15),
        (1724, 14),
        (80, 10),
        (443, 10),
        (6000, 8),
        (27400, 5),
        (31000, 5),
        (25, 5),
        (22, 5),
        (389, 4),
        (8080, 4),
        (5631, 3),
        (3389, 3),
    ],
    ranges: &[
        ((1600, 1649), 10),
        ((1300, 1349), 8),
        ((1300, 1350), 7),
        ((7500, 7599), 7),
        ((32200, 32207), 5),
        ((2200, 2210), 5),
        ((1700, 1750), 4),
        ((1025, 65535), 4),
        ((5001, 65535), 4),
        ((8000, 8100), 4),
    ],
    source: Spread { networks: 0.012, subnets: 0.024, hosts: 0.4, skew: 1.6 },
    destination: Spread { networks: 0.034, subnets: 0.035, hosts: 0.08, skew: 5.0 },
};

const FW: Figures = Figures {
    lengths: &[
        ((0, 31), 177),
        ((0, 32), 137),
        ((1, 32), 104),
        ((1, 31), 66),
        ((0, 30), 52),
        ((31, 0), 44),
        ((32, 0), 36),
        ((32, 1), 28),
        ((2, 32), 25),
        ((30, 0), 21),
        ((31, 1), 18),
        ((32, 32), 18),
        ((31, 32), 9),
        ((32, 31), 9),
        ((0, 0), 8),
        ((1, 0), 7),
        ((0, 1), 7),
        ((32, 2), 7),
        ((27, 0), 6),
        ((28, 0), 6),
        ((21, 0), 6),
        ((22, 0), 5),
        ((31, 31), 4),
        ((30, 32), 4),
        ((32, 22), 4),
        ((28, 32), 4),
        ((32, 21), 4),
        ((27, 1), 4),
        ((29, 32), 3),
        ((1, 1), 3),
    ],
    ports: &[
        ((Any, Exact), 547),
        ((Any, Any), 170),
        ((Exact, Any), 100),
        ((High, High), 57),
        ((Exact, Exact), 25),
        ((Exact, High), 19),
        ((High, Exact), 19),
        ((Range, High), 1),
    ],
    protocols: &[(Some(6), 571), (Some(17), 334), (Some(47), 48), (Some(1), 36), (None, 11)],
    exact: &[
        (22, 94),
        (80, 63),
        (25, 56),
        (53, 56),
        (123, 44),
        (544, 20),
        (2105, 19),
        (21, 18),
        (750, 17),
        (161, 16),
        (88, 10),
        (69, 10),
        (443, 10),
        (37, 5),
        (754, 5),
        (24032, 2),
    ],
    ranges: &[((33434, 33600), 1), ((6000, 6063), 1)],
    source: Spread { networks: 0.9, subnets: 0.9, hosts: 1.0, skew: 1.0 },
    destination: Spread { networks: 0.9, subnets: 0.9, hosts: 1.0, skew: 1.0 },
};

const IPC: Figures = Figures {
    lengths: &[
        ((32, 32), 66),
        ((31, 32), 36),
        ((23, 32), 32),
        ((24, 32), 26),
        ((23, 24), 24),
        ((32, 31), 24),
        ((25, 32), 19),
        ((24, 31), 18),
        ((0, 31), 18),
        ((24, 24), 17),
        ((0, 32), 15),
        ((24, 23), 15),
        ((32, 24), 14),
        ((1, 32), 14),
        ((24, 25), 13),
        ((32, 25), 13),
        ((23, 0), 13),
        ((24, 0), 11),
        ((25, 23), 11),
        ((23, 26), 11),
        ((22, 25), 10),
        ((0, 25), 10),
        ((0, 24), 8),
        ((23, 16), 8),
        ((32, 0), 8),
        ((24, 16), 8),
        ((30, 32), 8),
        ((17, 24), 6),
        ((1, 23), 7),
        ((16, 31), 5),
        ((8, 24), 5),
        ((31, 16), 5),
        ((0, 0), 2),
        ((20, 12), 2),
    ],
    ports: &[
        ((Any, Any), 369),
        ((Any, Exact), 357),
        ((Exact, Any), 165),
        ((Any, High), 60),
        ((Any, Range), 24),
        ((Range, Any), 18),
        ((Exact, Exact), 3),
        ((High, Any), 3),
    ],
    protocols: &[(Some(17), 381), (None, 328), (Some(6), 275), (Some(1), 11), (Some(47), 3), (Some(50), 1)],
    exact: &[
        (69, 66),
        (514, 61),
        (161, 48),
        (80, 55),
        (53, 45),
        (25, 30),
        (9003, 28),
        (1433, 21),
        (137, 10),
        (162, 8),
        (143, 7),
        (22, 6),
        (119, 5),
        (5540, 3),
    ],
    ranges: &[
        ((109, 110), 12),
        ((20, 23), 10),
        ((20, 21), 9),
        ((1645, 1646), 6),
        ((1812, 1813), 2),
        ((5000, 5001), 1),
    ],
    source: Spread { networks: 0.02, subnets: 0.03, hosts: 0.05, skew: 1.6 },
    destination: Spread { networks: 0.034, subnets: 0.06, hosts: 0.12, skew: 1.6 },
};
