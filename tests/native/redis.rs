//! A server of Redis, and the second library that talks with it.
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Redis, for as long as this lives.
pub struct Redis(Child, u16);

impl Redis {
    /// `None` where it is not installed.
    pub fn start() -> Option<Self> {
        Command::new("redis-server").arg("--version").output().ok()?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string())
            .stdout(Stdio::null())
            .spawn();
        let redis = Self(child.unwrap(), port);
        until("Redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(redis)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.1)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A linker pauses for less while it writes a library.
const LINKED: Duration = Duration::from_secs(5);

/// The second library, as `make net` or its tests made it last, in the folder of all builds.
pub fn net_library(target: &Path) -> Option<PathBuf> {
    let folder = target.join("net");
    let built = ["release", "debug/deps"].map(|kind| folder.join(kind).join("libradixkv_net.so"));
    let made =
        built.into_iter().filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    // One that is being linked at this moment is not whole yet.
    let whole = made.filter(|(when, _)| when.elapsed().is_ok_and(|age| age > LINKED));
    whole.max().map(|(_, path)| path)
}
