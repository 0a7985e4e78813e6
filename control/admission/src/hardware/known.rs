//! Hardware that the room describes itself: the routers of VERA (chapter 4 and appendix A).

/// Names of known hardware with the texts of their files.
pub const KNOWN: &[(&str, &str)] = &[
    ("ixp1200", include_str!("../../hardware/ixp1200.toml")),
    ("pmc694", include_str!("../../hardware/pmc694.toml")),
    ("pentium", include_str!("../../hardware/pentium.toml")),
];

/// Returns the file of a known hardware.
#[must_use]
pub fn known(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
