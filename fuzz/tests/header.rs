//! No function of the headers is left out of the `arguments` target.
use std::collections::BTreeSet;

const HEADERS: &str = concat!(
    include_str!("../../include/radixkv.h"),
    include_str!("../../include/radixkv_spatial.h"),
);

/// Names of the functions that are declared for every build.
fn declared() -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    let mut optional = false;
    for line in HEADERS.lines() {
        match line.trim() {
            "#if defined(RKV_FAULT_INJECTION)" => optional = true,
            "#endif" => optional = false,
            line if line.starts_with('*') || line.starts_with("/*") || optional => {}
            line => {
                let name = line.split_once('(').map_or("", |(before, _)| before);
                let name = name.rsplit([' ', '*']).next().unwrap_or_default();
                if name.starts_with("rkv_") {
                    names.insert(name);
                }
            }
        }
    }
    names
}

/// M01: every function of the headers.
#[test]
fn every_function_is_called() {
    let called: BTreeSet<_> = radixkv_fuzz::FUNCTIONS.iter().map(|(name, _)| *name).collect();
    assert_eq!(called, declared());
    assert_eq!(called.len(), radixkv_fuzz::FUNCTIONS.len(), "a name stands twice");
    assert!(called.len() > 40, "the header was not read");
}
