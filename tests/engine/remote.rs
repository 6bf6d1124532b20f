//! T13: two engines, two processes, that share pages over a server: one computes a prompt, the
//! other one fetches it. The server is Redis, the way there the second library.
use super::{built, post, serve_with, skip, target, terminate};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Redis, for as long as this lives.
struct Redis(Child, u16);

impl Redis {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string())
            .stdout(Stdio::null())
            .spawn();
        let redis = Self(child.unwrap(), port);
        until("Redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A linker pauses for less while it writes a library.
const LINKED: Duration = Duration::from_secs(5);

/// The second library, as `make net` or its tests made it last.
fn library() -> Option<PathBuf> {
    let folder = target().parent()?.join("target/net");
    let built = ["release", "debug/deps"].map(|kind| folder.join(kind).join("libradixkv_net.so"));
    let made =
        built.into_iter().filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    // One that is being linked at this moment is not whole yet.
    let whole = made.filter(|(when, _)| when.elapsed().is_ok_and(|age| age > LINKED));
    whole.max().map(|(_, path)| path)
}

fn whole(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer
}

/// A number of GET /metrics.
fn metric(address: &str, name: &str) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let answer = whole(stream);
    let line = answer.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {answer}"))
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn t13_two_engines_share_a_prefix_over_redis() {
    let Some(folder) = built() else { return };
    if Command::new("redis-server").arg("--version").output().is_err() {
        return skip("with Redis: it is not installed (apt-get install redis-server)");
    }
    let Some(library) = library() else {
        return skip("with Redis: libradixkv_net.so is not built (make net)");
    };
    let redis = Redis::start();
    let engine = || {
        serve_with(folder, |command| {
            command.args(["--host-cache-mib", "64", "--remote-cache"]);
            command.arg(format!("redis://127.0.0.1:{}", redis.1));
            command.env("RADIXKV_NET_LIBRARY", &library);
        })
    };
    let prompt: String = (0..120).map(|at| format!("line {at} of it, ")).collect();
    let body = format!(r#"{{"prompt": "{prompt}", "max_tokens": 24, "temperature": 0}}"#);
    let text = |address: &str| {
        let answer = whole(post(address, &body));
        let from = answer.find("\"text\"").unwrap_or_else(|| panic!("{answer}"));
        answer[from..].split("\"usage\"").next().unwrap().to_owned()
    };
    let (mut first, address) = engine();
    let said = text(&address);
    let computed = metric(&address, "engine_computed_tokens_total");
    let pages = computed / 16 - 2;
    until("the pages are on the server", || {
        metric(&address, "engine_remote_written_pages_total") >= pages
    });
    terminate(&first);
    assert!(first.wait().unwrap().success());
    let (mut second, address) = engine();
    assert_eq!(text(&address), said);
    let [fetched, left] = ["engine_remote_fetched_pages_total", "engine_computed_tokens_total"]
        .map(|name| metric(&address, name));
    println!("first: {computed} tokens computed; second: {fetched} pages fetched, {left} computed");
    assert!(fetched > 0 && left < computed / 4, "{fetched} pages, {left} of {computed} tokens");
    terminate(&second);
    assert!(second.wait().unwrap().success());
}
