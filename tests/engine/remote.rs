//! T13: two engines, two processes, that share pages over a server: one computes a prompt, the
//! other one fetches it. The server is Redis, the way there the second library.
use super::redis::{Redis, net_library, until};
use super::{built, post, serve_with, skip, target, terminate};
use std::io::{Read, Write};
use std::net::TcpStream;

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
    let Some(library) = net_library(target()) else {
        return skip("with Redis: libradixkv_net.so is not built (make net)");
    };
    let Some(redis) = Redis::start() else {
        return skip("with Redis: it is not installed (apt-get install redis-server)");
    };
    let engine = || {
        serve_with(folder, |command| {
            command.args(["--host-cache-mib", "64", "--remote-cache", &redis.url()]);
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
