//! Filters: any text is read or refused; what is read prints as it reads back, what is refused says where.
#![no_main]

use millrace_classify::Filter;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match text.parse::<Filter>() {
        Ok(filter) => {
            assert_eq!(filter.to_string().parse::<Filter>().as_ref(), Ok(&filter));
            let _ = filter.compile(|_| None);
        }
        Err(error) => assert!(text.get(error.offset..error.offset + error.length).is_some(), "{error}"),
    }
});
