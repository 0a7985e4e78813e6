//! Neighbours: the neighbour table, neighbour resolution, held packets, and adjacencies with their link
//! headers.

mod adjacency;
#[expect(
    clippy::indexing_slicing,
    reason = "slots of held packets, by links between them; packets are not read"
)]
mod hold;
mod link_header;
mod neighbour;
mod resolver;

pub use self::adjacency::{Adjacency, AdjacencyTable, Exit, NO_ADJACENCY, START};
pub use self::hold::{Held, HoldLimits, HoldQueue};
pub use self::link_header::LinkHeader;
pub use self::neighbour::{NeighbourKey, NeighbourState, NeighbourTable, Resolution, TableFull};
pub use self::resolver::{Action, Heard, Origin, Resolver, ResolverSettings, Solicited};
