//! Steps of the modelled kernel: random changes of its objects.

use std::collections::BTreeSet;

use proptest::prelude::*;

/// Last byte of the address that several devices may have.
pub const SHARED: u8 = 2;

/// Change of the modelled kernel's objects.
#[derive(Clone, Debug)]
pub enum Step {
    /// Creates a device, or changes its MTU.
    Link(u32, u8),
    LinkGone(u32),
    /// Adds an address to a device, tentative or not.
    Address(u32, u8, bool),
    AddressGone(u32, u8),
    Neighbour(u32, u8, u8),
    NeighbourGone(u32, u8),
    /// Creates or changes a next-hop object on a device, with a gateway. An object keeps its device.
    NextHop(u32, u32, u8),
    NextHopGone(u32),
    /// Creates a group of the next-hop objects that exist. A group keeps its members.
    Group(u32),
    Forwarding(u32, bool),
    /// Sets the only IPv4 route of a prefix: over one or two devices, from an address, or by a next-hop
    /// object.
    Route(u8, RouteForm),
    RouteGone(u8),
    /// Adds one of several IPv4 or IPv6 routes with the same prefix and metric; their order counts.
    Stacked {
        v6: bool,
        number: u8,
        prepend: bool,
    },
    /// Repeats the notification of a stacked route.
    StackedAgain {
        v6: bool,
        number: u8,
    },
    StackedGone {
        v6: bool,
        number: u8,
    },
    /// Adds a next hop of an IPv6 multipath route, announced alone or together with the others.
    Sibling {
        metric: u32,
        device: u32,
        gateway: u8,
        alone: bool,
    },
    SiblingGone {
        metric: u32,
        device: u32,
        gateway: u8,
    },
    Siblings {
        metric: u32,
        devices: BTreeSet<u32>,
    },
    SiblingsGone {
        metric: u32,
    },
    /// Sets the only route of an IPv6 prefix: without a gateway, or with one or two gateways.
    Sole(u8),
    SoleGone,
}

impl Step {
    /// Whether the state can follow this step only if it knew the objects before. Notifications name neither
    /// a replaced route nor the lost members of a group.
    pub fn needs_knowledge(&self) -> bool {
        matches!(self, Step::Group(_) | Step::Sole(_) | Step::SoleGone)
    }

    /// Whether the state can follow this step only if no list is newer than the step's notifications.
    pub fn needs_order(&self) -> bool {
        matches!(self, Step::Address(_, SHARED, _) | Step::Sole(_) | Step::SoleGone)
    }
}

/// Next hops of an IPv4 route.
#[derive(Clone, Debug)]
pub enum RouteForm {
    Over(BTreeSet<u32>),
    From(u32, u8),
    Object(u32),
}

pub fn step() -> impl Strategy<Value = Step> {
    let (device, small, metric) = (|| 1..4u32, || 0..3u8, || 1..3u32);
    let id = || prop::sample::select(vec![1, 2, 3, 4, 9u32]);
    let devices = || prop::collection::btree_set(1..4u32, 1..3);
    let form = prop_oneof![
        devices().prop_map(RouteForm::Over),
        (device(), small()).prop_map(|(device, last)| RouteForm::From(device, last)),
        id().prop_map(RouteForm::Object),
    ];
    prop_oneof![
        (device(), small()).prop_map(|(d, n)| Step::Link(d, n)),
        device().prop_map(Step::LinkGone),
        (device(), small(), any::<bool>()).prop_map(|(d, n, t)| Step::Address(d, n, t)),
        (device(), small()).prop_map(|(d, n)| Step::AddressGone(d, n)),
        (device(), small(), small()).prop_map(|(d, n, m)| Step::Neighbour(d, n, m)),
        (device(), small()).prop_map(|(d, n)| Step::NeighbourGone(d, n)),
        (2..5u32, device(), small()).prop_map(|(id, d, n)| Step::NextHop(id, d, n)),
        id().prop_map(Step::NextHopGone),
        prop::sample::select(vec![1, 9u32]).prop_map(Step::Group),
        (device(), any::<bool>()).prop_map(|(d, on)| Step::Forwarding(d, on)),
        (small(), form).prop_map(|(n, form)| Step::Route(n, form)),
        small().prop_map(Step::RouteGone),
        stacked_step(),
        (metric(), device(), small(), any::<bool>())
            .prop_map(|(metric, device, gateway, alone)| Step::Sibling { metric, device, gateway, alone }),
        (metric(), device(), small()).prop_map(|(metric, device, gateway)| Step::SiblingGone {
            metric,
            device,
            gateway
        }),
        (metric(), devices()).prop_map(|(metric, devices)| Step::Siblings { metric, devices }),
        metric().prop_map(|metric| Step::SiblingsGone { metric }),
        small().prop_map(Step::Sole),
        Just(Step::SoleGone),
    ]
}

fn stacked_step() -> impl Strategy<Value = Step> {
    (any::<bool>(), 0..4u8, 0..4u8).prop_map(|(v6, number, kind)| match kind {
        0 => Step::StackedGone { v6, number },
        1 => Step::StackedAgain { v6, number },
        kind => Step::Stacked { v6, number, prepend: kind == 2 },
    })
}
