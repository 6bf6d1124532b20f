//! Long chats, and short ones that they begin with.
use super::server::{Server, random_model, scratch};
use super::{joined, tokens};

/// What is too long to be read for a few tokens hides no shorter one, which is whole (T15).
#[test]
fn t15_a_long_chat_hides_no_short_beginning() {
    let (model, folder) = (random_model("llama", 1), scratch("hidden"));
    let head = tokens(190, 200);
    let chat = joined(&[&head, &tokens(191, 3800)]);
    let server = Server::start(&folder, &model, &["--parallel", "1"]);
    server.complete(&head, 1, "");
    server.complete(&tokens(192, 50), 1, "");
    assert_eq!(server.complete(&chat, 1, "").cached, 200, "{}", server.said());
    server.complete(&tokens(193, 50), 1, "");
    let other = joined(&[&chat[..201], &tokens(194, 30)]);
    assert_eq!(server.complete(&other, 1, "").cached, 200, "{}", server.said());
    server.stop();
}

/// Nor does one that a smaller context has no room for (T15).
#[test]
fn t15_a_chat_too_long_for_the_context_hides_no_short_beginning() {
    let (model, folder) = (random_model("llama", 1), scratch("smaller"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let head = tokens(195, 600);
    let chat = joined(&[&head, &tokens(196, 700)]);
    let server = Server::start(&folder, &model, &options);
    server.complete(&head, 1, "");
    server.complete(&tokens(197, 50), 1, "");
    server.complete(&chat, 1, "");
    server.stop();
    let server = Server::start(&folder, &model, &[&options[..], &["--ctx-size", "1024"]].concat());
    let other = joined(&[&chat[..650], &tokens(198, 30)]);
    assert_eq!(server.complete(&other, 1, "").cached, 600, "{}", server.said());
    server.stop();
}
