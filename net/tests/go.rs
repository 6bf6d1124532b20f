//! E03: bindings/go/net, against the library that this build made. Without a Go toolchain, or with
//! one that is too old, it is skipped, and says so.
use std::env;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::Command;

#[path = "../../tests/native/go.rs"]
mod toolchain;

#[test]
fn e03_a_go_program_publishes() {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/go/net");
    if let Some(reason) = toolchain::missing(&module) {
        // Written past the harness, which shows the output of failures alone.
        let reason = format!("SKIPPED: bindings/go/net was not checked: {reason}\n");
        stderr().write_all(reason.as_bytes()).unwrap();
        return;
    }
    // target/<profile>/deps, where cargo leaves the shared library of the tests.
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let go = |arguments: &[&str]| {
        let output = Command::new("go")
            .args(arguments)
            .current_dir(&module)
            // go.mod names the oldest Go that will do: never download another.
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "1")
            .env("CGO_LDFLAGS", format!("-L{}", folder.display()))
            .env("LD_LIBRARY_PATH", &folder)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
    };
    go(&["vet", "-tags=radixkv_nopkgconfig", "./..."]);
    // Counted once, because Go's cache of results does not see the library change.
    go(&["test", "-race", "-count=1", "-tags=radixkv_nopkgconfig", "./..."]);
}
