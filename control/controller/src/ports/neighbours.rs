//! Neighbours of the ports, both from the workers and from the kernel.

use millrace_pipeline::Snapshot;

use crate::kernel::Kernel;
use crate::model::Model;
use crate::ports::devices::Devices;
use crate::view::NeighbourView;

/// Returns the views of all neighbours, ordered by port and address.
pub(crate) fn neighbour_views(
    snapshot: &Snapshot,
    model: &Model,
    devices: &Devices,
    kernel: &Kernel,
) -> Vec<NeighbourView> {
    let mut views: Vec<NeighbourView> = snapshot
        .neighbours
        .iter()
        .map(|(port, address, mac)| NeighbourView {
            port: model.port_name(*port).to_owned(),
            address: address.to_string(),
            mac: mac.map(|mac| mac.to_string()),
            state: if mac.is_some() { "known".into() } else { "incomplete".into() },
        })
        .collect();
    let ports = devices.by_index();
    if let Some(mirror) = &kernel.mirror {
        let state = mirror.state();
        views.extend(state.neighbours().filter_map(|neighbour| {
            let port = ports.get(&neighbour.ifindex)?;
            Some(NeighbourView {
                port: model.port_name(*port).to_owned(),
                address: neighbour.ip.to_string(),
                mac: neighbour.mac.map(|mac| millrace_wire::MacAddr(mac).to_string()),
                state: format!("{:?}", neighbour.state).to_lowercase(),
            })
        }));
    }
    views.sort_by(|a, b| (&a.port, &a.address).cmp(&(&b.port, &b.address)));
    views
}
