//! Long chats, and short ones that they begin with.
use super::directory::preloaded;
use super::server::{Server, random_model, scratch};
use super::{joined, tokens};
use std::path::Path;
use std::time::Duration;

const SLOW: &str = include_str!("slow_writes.c");
const FAILING: &str = include_str!("failing_write.c");

/// A library that a server is started with, which writes for it as one of these says.
fn poor_disk(folder: &Path, writes: &str) -> String {
    preloaded(folder, &[include_str!("without_io_uring.c"), writes].concat())
}

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

/// What a long chat begins with is kept for itself where nobody would read all of that for it
/// (T15).
#[test]
fn t15_a_short_beginning_of_a_long_chat_is_kept() {
    let (model, folder) = (random_model("llama", 1), scratch("beginning_kept"));
    let head = tokens(212, 200);
    let chat = joined(&[&head, &tokens(213, 3600)]);
    let server = Server::start(&folder, &model, &["--parallel", "1"]);
    server.complete(&chat, 1, "");
    server.complete(&tokens(214, 50), 1, "");
    server.complete(&head, 1, "");
    server.complete(&tokens(215, 50), 1, "");
    assert_eq!(server.complete(&head, 1, "").cached, 199, "{}", server.said());
    server.stop();
}

/// Of chats that begin alike the short one is read, not the one that was kept last (T15).
#[test]
fn t15_a_long_chat_hides_no_short_one_that_begins_like_it() {
    let (model, folder) = (random_model("llama", 1), scratch("alike"));
    let head = tokens(217, 200);
    let (short, long) = (joined(&[&head, &tokens(218, 50)]), joined(&[&head, &tokens(219, 3600)]));
    let server = Server::start(&folder, &model, &["--parallel", "1"]);
    server.complete(&short, 1, "");
    server.complete(&long, 1, "");
    server.complete(&tokens(220, 50), 1, "");
    let other = joined(&[&head, &tokens(221, 30)]);
    assert_eq!(server.complete(&other, 1, "").cached, 200, "{}", server.said());
    server.stop();
}

/// A chat that is longer now is on disk before what it begins with is removed there: a crash in
/// between loses only what is new (T15, T05).
#[test]
fn t15_a_beginning_is_on_disk_until_the_longer_chat_is() {
    let (model, folder) = (random_model("llama", 1), scratch("longer"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let head = tokens(240, 600);
    let chat = joined(&[&head, &tokens(241, 300)]);
    let server = Server::start(&folder, &model, &options);
    server.complete(&head, 1, "");
    server.stop();

    let preload = [("LD_PRELOAD", poor_disk(&folder, SLOW))];
    let server = Server::start_with(&folder, &model, &options, &preload);
    assert_eq!(server.complete(&chat, 1, "").cached, 600, "{}", server.said());
    assert!(server.says("kept a prompt of 900 tokens"), "{}", server.said());
    // Longer than a commit waits, and the chat is not written yet.
    std::thread::sleep(Duration::from_millis(1500));
    server.kill();

    let server = Server::start(&folder, &model, &options);
    let other = joined(&[&head, &tokens(242, 40)]);
    assert_eq!(server.complete(&other, 1, "").cached, 600, "{}", server.said());
    server.stop();
}

/// Nor does one go for a chat that the directory is too small for (T15, T10).
#[test]
fn t15_a_chat_too_long_for_the_directory_takes_no_beginning_along() {
    let (model, folder) = (random_model("llama", 1), scratch("too_long"));
    let disk = folder.join("disk");
    let options =
        ["--parallel", "1", "--cache-disk", disk.to_str().unwrap(), "--cache-disk-mib", "4"];
    let head = tokens(243, 700);
    let chat = joined(&[&head, &tokens(244, 600)]);
    let server = Server::start(&folder, &model, &options);
    server.complete(&head, 1, "");
    server.rest();
    assert_eq!(server.complete(&chat, 1, "").cached, 700, "{}", server.said());
    server.rest();
    server.stop();

    let server = Server::start(&folder, &model, &options);
    let other = joined(&[&head, &tokens(245, 40)]);
    assert_eq!(server.complete(&other, 1, "").cached, 700, "{}", server.said());
    server.stop();
}

/// On disk a chat takes the place of what it begins with, once it is there (T15, T10).
#[test]
fn t15_a_longer_chat_takes_the_place_of_its_beginning() {
    let (model, folder) = (random_model("llama", 1), scratch("in_place"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let mut chat = tokens(246, 600);
    let server = Server::start(&folder, &model, &options);
    for turn in 0..3 {
        server.complete(&chat, 1, "");
        server.rest();
        chat.extend(tokens(247 + turn, 100));
    }
    server.stop();
    let server = Server::start(&folder, &model, &options);
    assert!(server.says(": 1 from before"), "{}", server.said());
    server.stop();
}

/// A prompt that could not be written is told of at the end, whatever was written since (T15, T06).
#[test]
fn t15_a_write_that_failed_is_told_of_at_the_end() {
    let (model, folder) = (random_model("llama", 1), scratch("failed_write"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let preload = [("LD_PRELOAD", poor_disk(&folder, FAILING))];
    let run = |is_told_before: bool| {
        let server = Server::start_with(&folder, &model, &options, &preload);
        server.complete(&tokens(250, 300), 1, "");
        server.rest();
        let mut chat = tokens(251 + u64::from(is_told_before), 600);
        server.complete(&chat, 1, "");
        server.rest();
        chat.extend(tokens(253, 100));
        server.complete(&chat, 1, "");
        if is_told_before {
            // Its beginning goes while the server has nothing to do.
            server.rest();
        }
        let said = server.stop();
        assert!(said.contains("1 writes of prompts failed"), "{is_told_before}\n{said}");
    };
    run(true);
    run(false);
    // Once the longer ones are there, what they begin with is not.
    let server = Server::start(&folder, &model, &options);
    assert!(server.says(": 2 from before"), "{}", server.said());
    server.stop();
}

/// Also where others have to leave a directory that is full before it is written (T15, T10).
#[test]
fn t15_a_longer_chat_takes_the_place_of_its_beginning_in_a_full_directory() {
    let (model, folder) = (random_model("llama", 1), scratch("in_full_place"));
    let disk = folder.join("disk");
    let options =
        ["--parallel", "1", "--cache-disk", disk.to_str().unwrap(), "--cache-disk-mib", "4"];
    let server = Server::start(&folder, &model, &options);
    let mut chat = tokens(272, 300);
    for prompt in [tokens(270, 400), tokens(271, 400), chat.clone()] {
        server.complete(&prompt, 1, "");
        server.rest();
    }
    chat.extend(tokens(273, 100));
    assert_eq!(server.complete(&chat, 1, "").cached, 300, "{}", server.said());
    server.rest();
    server.rest();
    server.stop();
    let server = Server::start(&folder, &model, &options);
    assert!(server.says(": 1 from before"), "{}", server.said());
    server.stop();
}

/// A chat that had to leave the directory again takes no beginning along, though it is in memory
/// (T15, T05, T10).
#[test]
fn t15_a_chat_in_memory_alone_takes_no_beginning_along() {
    let (model, folder) = (random_model("llama", 1), scratch("memory_alone"));
    let disk = folder.join("disk");
    let options =
        ["--parallel", "1", "--cache-disk", disk.to_str().unwrap(), "--cache-disk-mib", "4"];
    let head = tokens(260, 400);
    let chat = joined(&[&head, &tokens(261, 100)]);
    let server = Server::start(&folder, &model, &options);
    server.complete(&head, 1, "");
    server.stop();

    let preload = [("LD_PRELOAD", poor_disk(&folder, SLOW))];
    let server = Server::start_with(&folder, &model, &options, &preload);
    assert_eq!(server.complete(&chat, 1, "").cached, 400, "{}", server.said());
    assert!(server.says("kept a prompt of 500 tokens"), "{}", server.said());
    // While the chat is written its beginning is used, and something takes the room of the chat.
    server.complete(&tokens(262, 8), 1, "");
    server.complete(&head, 1, "");
    server.complete(&tokens(263, 300), 1, "");
    server.complete(&tokens(264, 8), 1, "");
    assert!(server.says("kept a prompt of 300 tokens"), "{}", server.said());
    std::thread::sleep(Duration::from_secs(20));
    server.kill();

    let server = Server::start(&folder, &model, &options);
    let other = joined(&[&head, &tokens(265, 40)]);
    assert_eq!(server.complete(&other, 1, "").cached, 400, "{}", server.said());
    server.stop();
}
