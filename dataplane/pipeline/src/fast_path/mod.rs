//! Fast path: packets of known flows, and packets without bindings, forwarded by the batch.

#[expect(
    clippy::indexing_slicing,
    reason = "packets and fates of a batch by places that were asked for in it"
)]
pub(crate) mod bare;
#[expect(clippy::indexing_slicing, reason = "runs of a batch, by places in it")]
pub(crate) mod express;
#[expect(clippy::indexing_slicing, reason = "notes on a batch side by side, by places in it")]
pub(crate) mod plain;
