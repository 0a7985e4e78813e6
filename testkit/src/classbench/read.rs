//! Parser of ClassBench files. Their lines have the form `@SOURCE DESTINATION FIRST : LAST FIRST : LAST
//! PROTOCOL/MASK FLAGS/MASK`.

use std::path::PathBuf;
use std::{env, fs};

use millrace_classify::Filter;

use super::FilterSet;
use crate::repository::repository;

/// Returns the directory of the ClassBench files: below `MILLRACE_SHARED_DATA`, or by default beside the
/// repository.
fn folder() -> PathBuf {
    let data = env::var_os("MILLRACE_SHARED_DATA").map(PathBuf::from);
    data.unwrap_or_else(|| repository().join("../shared/data")).join("classbench")
}

/// Reads the set of a ClassBench seed and a size, such as `acl1` and `10k`. Returns `None` if the file can't
/// be read. Ignores the flags, whose meaning ClassBench doesn't define.
pub fn read(family: &str, size: &str) -> Option<FilterSet> {
    let path = folder().join(format!("{family}_{size}"));
    let text = fs::read_to_string(&path).ok()?;
    let filters = text.lines().filter(|line| !line.trim().is_empty());
    let filters = filters.map(|line| parse(line).unwrap_or_else(|| panic!("{}: {line}", path.display())));
    Some(FilterSet { name: format!("{family} {size}"), filters: filters.collect() })
}

/// Parses one line as a filter; returns `None` if the line is malformed.
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
