//! What the engine's page says that it calls of the library.
use super::*;
use std::collections::BTreeSet;

/// The table of its page has every call of the library that the server makes, and no other; what
/// makes and destroys objects, statistics and errors are left out.
#[test]
fn the_engines_page_names_what_the_engine_calls() {
    let Some(folder) = built() else { return };
    let server = folder.join("engine_server");
    let listed = Command::new("nm").args(["-D", "--undefined-only"]).arg(&server).output().unwrap();
    native::check(&listed, &server);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let left_out = |call: &str| {
        let ends = ["_create", "_destroy", "_config_init", "_stats", "_status_name"];
        let is_told = call.ends_with("_pool_stats");
        (ends.iter().any(|end| call.ends_with(end)) && !is_told) || call.starts_with("rkv_last_")
    };
    let called: BTreeSet<&str> = listed
        .split_whitespace()
        .filter(|name| name.starts_with("rkv_") && !left_out(name))
        .collect();
    let page = fs::read_to_string(native::root().join("examples/engine/README.md")).unwrap();
    let table = page.split("Where the library is called").nth(1).unwrap();
    let table = table.split("The engine's threads are").next().unwrap();
    let named: BTreeSet<&str> = table.split('`').filter(|name| name.starts_with("rkv_")).collect();
    assert_eq!(named, called);
}
