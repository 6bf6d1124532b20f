//! T13: two servers, two processes, one store: what one has computed the other one fetches. The
//! store is Redis, the way there the second library.
use super::redis::{Redis, net_library};
use super::server::{Server, random_model, scratch};
use super::{joined, tokens};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

fn library() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    net_library(target).expect("libradixkv_net.so: make net")
}

#[test]
fn t13_two_servers_share_prompts_over_redis() {
    let library = library();
    let redis = Redis::start().expect("redis-server is to be installed");
    let (model, folder) = (random_model("llama", 1), scratch("remote"));
    let url = redis.url();
    let start = || {
        let variables = [("RADIXKV_NET_LIBRARY", library.display().to_string())];
        let options = ["--parallel", "1", "--cache-remote", &url];
        Server::start_with(&folder, &model, &options, &variables)
    };
    let head = tokens(70, 600);
    let first = start();
    let answer = first.complete(&head, 24, "");
    let other = first.complete(&head, 24, r#", "cache_salt": "anna""#);
    assert_eq!((answer.cached, other.cached, &answer.tokens), (0, 0, &other.tokens));
    first.rest();
    first.stop(); // what it has not handed over yet is waited for

    let second = start();
    let whole = joined(&[&head, &answer.tokens, &tokens(71, 40)]);
    let fetched = second.complete(&whole, 24, "");
    assert!(second.says("the remote store was asked for a prompt: 623 tokens"), "{fetched:?}");
    // The last token of an answer is in no state.
    assert_eq!((fetched.cached, fetched.computed), (623, 41), "{}", second.said());
    let stranger = second.complete(&whole, 24, r#", "cache_salt": "bert""#);
    assert_eq!((stranger.cached, &stranger.tokens), (0, &fetched.tokens), "{}", second.said());

    // Without the store: what others have is computed, with the same answer.
    drop(redis);
    let alone = second.complete(&whole, 24, r#", "cache_salt": "carl""#);
    assert_eq!((alone.cached, &alone.tokens), (0, &fetched.tokens), "{}", second.said());
    assert_eq!(second.complete(&whole, 24, "").cached, 663, "{}", second.said());
    second.stop();
}

/// What many chats begin with stays in the store when one of them goes on, for nothing can be cut
/// off there (T13).
#[test]
fn t13_a_longer_chat_leaves_its_beginning_in_the_store() {
    let redis = Redis::start().expect("redis-server is to be installed");
    let (model, folder) = (random_model("llama", 1), scratch("remote_beginning"));
    let variables = [("RADIXKV_NET_LIBRARY", library().display().to_string())];
    let url = redis.url();
    let options = ["--parallel", "1", "--cache-remote", &url];
    let start = || Server::start_with(&folder, &model, &options, &variables);
    let head = tokens(72, 600);
    let first = start();
    first.complete(&head, 1, "");
    first.rest();
    first.complete(&joined(&[&head, &tokens(73, 300)]), 1, "");
    first.rest();
    first.stop();

    let second = start();
    let other = second.complete(&joined(&[&head, &tokens(74, 300)]), 1, "");
    assert_eq!((other.cached, other.computed), (600, 300), "{}", second.said());
    second.stop();
}

/// Where states can't be cut a prompt that is there as a whole is found, however much more others
/// have in common with what is asked (T13).
#[test]
fn t13_a_whole_beginning_is_found_behind_a_longer_one_in_common() {
    let redis = Redis::start().expect("redis-server is to be installed");
    let (model, folder) = (random_model("mamba", 1), scratch("remote_whole"));
    let variables = [("RADIXKV_NET_LIBRARY", library().display().to_string())];
    let url = redis.url();
    let options = ["--parallel", "1", "--ctx-checkpoints", "0", "--cache-remote", &url];
    let start = || Server::start_with(&folder, &model, &options, &variables);
    let head = tokens(76, 600);
    let second = start();
    assert_eq!(second.complete(&joined(&[&head, &tokens(77, 300)]), 1, "").cached, 0);
    second.rest();

    let first = start();
    first.complete(&head, 1, "");
    first.rest();
    first.stop();

    let other = second.complete(&joined(&[&head, &tokens(78, 300)]), 1, "");
    assert_eq!((other.cached, other.computed), (600, 300), "{}", second.said());
    second.stop();
}

/// A store that stands still is waited for once, also where states can't be cut, of which whole
/// ones are looked for too (T13, T11).
#[test]
fn t13_a_store_that_stands_still_is_asked_once() {
    // Nobody answers here, nor refuses.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let (model, folder) = (random_model("mamba", 1), scratch("remote_silent"));
    let variables = [("RADIXKV_NET_LIBRARY", library().display().to_string())];
    let options = ["--parallel", "1", "--cache-remote", &url];
    let server = Server::start_with(&folder, &model, &options, &variables);
    server.complete(&tokens(75, 200), 1, "");
    let said = server.said();
    assert_eq!(said.matches("the remote store ").count(), 1, "{said}");
    // Each prompt of a request waits for itself.
    let prompts = [79, 80].map(|seed| tokens(seed, 200));
    let body = format!(r#"{{"prompt": {prompts:?}, "n_predict": 1}}"#);
    assert_eq!(server.post("/completion", &body).0, 200);
    let said = server.said();
    assert_eq!(said.matches("the remote store ").count(), 3, "{said}");
}
