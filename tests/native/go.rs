//! The Go on the PATH, which may be older than the binding takes: Debian 12 has 1.19.
use std::path::Path;
use std::process::Command;

/// Why nothing is checked of a module in Go; `None` where it is there and new enough.
pub fn missing(module: &Path) -> Option<String> {
    let Ok(module) = std::fs::read_to_string(module.join("go.mod")) else {
        return Some(format!("{} is not part of this package", module.display()));
    };
    let line = module.lines().find(|line| line.starts_with("go ")).unwrap();
    let wanted = minor(line).unwrap();
    let mut command = Command::new("go");
    let Ok(output) = command.arg("version").env("GOTOOLCHAIN", "local").output() else {
        return Some("`go` is not installed".to_owned());
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let is_new = minor(said.trim_start_matches("go version ")).is_some_and(|it| it >= wanted);
    (!is_new).then(|| format!("Go 1.{wanted} or later is needed, here is `{}`", said.trim()))
}

/// Of `go 1.21` and `go1.21.3 linux/amd64`, and of `devel go1.27-0123abc`.
fn minor(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("1.")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
