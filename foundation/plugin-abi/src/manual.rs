//! Manual pages of built-in plugins, which are the module comments of their sources.

/// Returns the module comment at the head of a source, without the comment marks.
pub fn manual_of(source: &str) -> String {
    let head = source.lines().map_while(|line| line.strip_prefix("//!"));
    let mut text = String::new();
    for line in head {
        text.push_str(line.strip_prefix(' ').unwrap_or(line).trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_the_manual() {
        let source =
            "//! `null`: nothing.\n//!\n//! # Gates\n//! -  all\n#![forbid(unsafe_code)]\n//! no more\n";
        assert_eq!(manual_of(source), "`null`: nothing.\n\n# Gates\n-  all\n");
        assert_eq!(manual_of("fn main() {}"), "");
    }
}
