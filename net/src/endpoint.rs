//! Endpoints as callers write them.
use crate::failure::Failure;

/// An endpoint for sockets to bind to or to connect to: `*` is every interface, and the port is
/// that of the rank.
pub fn resolve(given: &str, rank: u32, name: &str) -> Result<String, Failure> {
    let refused = |why: &str| Failure::argument(format!("{name} \"{given}\" {why}"));
    if let Some(path) = given.strip_prefix("ipc://") {
        return match (path, rank) {
            ("" | "*", _) => Err(refused("has no path")),
            (path, _) if path.starts_with('@') => Err(refused("is no path of a file")),
            (_, 0) => Ok(given.to_owned()),
            _ => Ok(format!("{given}_dp{rank}")),
        };
    }
    let address = given.strip_prefix("tcp://");
    let address = address.ok_or_else(|| refused("begins with neither tcp:// nor ipc://"))?;
    let parts = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let (host, port) = parts.ok_or_else(|| refused("is not tcp://HOST:PORT"))?;
    let base: u16 = port.parse().map_err(|_| refused("has no port of 0 to 65535"))?;
    // Port 0 is any that is free.
    let offset = if base == 0 { 0 } else { rank };
    let port = u32::from(base).checked_add(offset).filter(|&port| port <= u32::from(u16::MAX));
    let port = port.ok_or_else(|| refused("has no port for config.data_parallel_rank"))?;
    let host = if host == "*" { "0.0.0.0" } else { host };
    Ok(format!("tcp://{host}:{port}"))
}

/// Whether a resolved endpoint is any interface or any port: one can bind to it, not connect.
pub fn is_any(endpoint: &str) -> bool {
    let address = endpoint.strip_prefix("tcp://");
    let is_any = |address: &str| {
        let is_interface = ["0.0.0.0:", "[::]:"].iter().any(|any| address.starts_with(any));
        is_interface || address.ends_with(":0")
    };
    address.is_some_and(is_any)
}

#[cfg(test)]
mod tests {
    use super::{is_any, resolve};

    #[test]
    fn e03_ports_of_ranks() {
        let made = |given, rank| resolve(given, rank, "config.endpoint").unwrap();
        assert_eq!(made("tcp://*:5557", 0), "tcp://0.0.0.0:5557");
        assert_eq!(made("tcp://10.0.0.1:5557", 3), "tcp://10.0.0.1:5560");
        assert_eq!(made("tcp://[::1]:5557", 1), "tcp://[::1]:5558");
        assert_eq!(made("tcp://*:0", 7), "tcp://0.0.0.0:0");
        assert_eq!(made("ipc:///tmp/kv", 0), "ipc:///tmp/kv");
        assert_eq!(made("ipc:///tmp/kv", 2), "ipc:///tmp/kv_dp2");
    }

    #[test]
    fn endpoints_that_are_none_are_named() {
        let wrong = [
            "",
            "5557",
            "udp://*:1",
            "tcp://",
            "tcp://*",
            "tcp://:1",
            "tcp://*:x",
            "tcp://*:65536",
        ];
        for given in wrong.into_iter().chain(["ipc://", "ipc://*", "ipc://@name"]) {
            let refused = resolve(given, 0, "config.endpoint").unwrap_err();
            assert!(refused.message.starts_with("config.endpoint"), "{}", refused.message);
        }
        let refused = resolve("tcp://*:65535", 1, "config.endpoint").unwrap_err();
        assert!(refused.message.contains("rank"), "{}", refused.message);
    }

    #[test]
    fn any_interface_is_nobody_to_connect_to() {
        let any = ["tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://10.0.0.1:0"];
        for given in any {
            assert!(is_any(&resolve(given, 0, "config.endpoint").unwrap()), "{given}");
        }
        for given in ["tcp://10.0.0.1:10", "tcp://[::1]:10", "ipc:///tmp/kv:0"] {
            assert!(!is_any(&resolve(given, 0, "config.endpoint").unwrap()), "{given}");
        }
    }
}
