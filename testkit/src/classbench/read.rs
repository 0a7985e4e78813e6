//! Reading ClassBench's files: `@SOURCE DESTINATION FIRST : LAST FIRST : LAST PROTOCOL/MASK FLAGS/MASK`.

use std::fs;
use std::path::PathBuf;

use millrace_classify::Filter;

use super::FilterSet;

/// Names the folder of data that are no part of the repository, in which ClassBench's files have one of their own.
const VARIABLE: &str = "MILLRACE_SHARED_DATA";
/// Where that folder is when nobody says, beside the repository.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data");

/// Where the file of a set is, or would be.
fn path(family: &str, size: &str) -> PathBuf {
    let data = std::env::var_os(VARIABLE).map_or_else(|| FOLDER.into(), PathBuf::from);
    data.join("classbench").join(format!("{family}_{size}"))
}

/// The set in the file `family` with `size`, as `acl1` and `10k`; `None` when there is no such file, and a message says
/// so. The flags, of which ClassBench doesn't say which they are, are left out.
pub fn read(family: &str, size: &str) -> Option<FilterSet> {
    let path = path(family, size);
    let text = fs::read_to_string(&path).ok()?;
    let filters = text.lines().filter(|line| !line.trim().is_empty());
    let filters = filters.map(|line| parse(line).unwrap_or_else(|| panic!("{}: {line}", path.display())));
    Some(FilterSet { name: format!("{family} {size}"), filters: filters.collect() })
}

/// One line as a filter; `None` when it can't be read.
pub fn parse(line: &str) -> Option<Filter> {
    let mut words = line.trim_start_matches('@').split_whitespace();
    let mut text = format!("src {} dst {}", words.next()?, words.next()?);
    for keyword in ["sport", "dport"] {
        let (first, _, last) = (words.next()?, words.next()?, words.next()?);
        if (first, last) != ("0", "65535") {
            text += &format!(" {keyword} {first}-{last}");
        }
    }
    let (protocol, mask) = words.next()?.split_once('/')?;
    if mask.eq_ignore_ascii_case("0xff") {
        let number = u8::from_str_radix(protocol.trim_start_matches("0x"), 16).ok()?;
        text += &format!(" proto {number}");
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_a_filter() {
        let filter =
            parse("@1.2.3.4/32\t5.6.0.0/16\t0 : 65535\t80 : 81\t0x06/0xFF\t0x1000/0x1000\t").unwrap();
        assert_eq!(filter.to_string(), "src 1.2.3.4 dst 5.6.0.0/16 proto tcp dport 80-81");
        let filter = parse("@0.0.0.0/0\t5.6.0.0/16\t0 : 65535\t0 : 65535\t0x00/0x00").unwrap();
        assert_eq!(filter.to_string(), "src 0.0.0.0/0 dst 5.6.0.0/16");
        assert_eq!(parse("@1.2.3.4/32"), None);
    }
}
