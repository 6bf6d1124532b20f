//! What a slot has is kept before another prompt takes it.
use super::server::{Server, random_model, scratch};
use super::{OWN, tokens};
use std::time::{Duration, Instant};

/// Who asks for several answers takes several slots: what those have is kept before, and makes room
/// (T15).
#[test]
fn t15_slots_of_several_answers_are_kept_before() {
    let (model, folder) = (random_model("llama", 1), scratch("answers"));
    let shared = ["--parallel", "2", "--kv-unified", "--ctx-size", "1024"];
    for options in [&["--parallel", "2"][..], &shared] {
        let server = Server::start(&folder, &model, options);
        let (chat, other) = (tokens(210, 600), tokens(211, 600));
        server.complete(&chat, 1, "");
        let body = format!(r#"{{"prompt": {other:?}, "n_predict": 4, "n_cmpl": 2}}"#);
        let (status, said) = server.post("/completion", &body);
        assert_eq!(status, 200, "{said}\n{}", server.said());
        assert_eq!(server.complete(&chat, 1, "").cached, 599, "{}", server.said());
        server.stop();
    }
}

/// Once nothing has been asked for a second, all slots are kept, not one for each second (T15).
#[test]
fn t15_all_slots_are_kept_when_there_is_nothing_to_do() {
    let (model, folder) = (random_model("llama", 1), scratch("all_slots"));
    let server = Server::start(&folder, &model, &["--parallel", "6"]);
    for slot in 0..6 {
        let prompt = tokens(240 + slot, 50);
        server.complete(&prompt, 1, &format!(r#", "id_slot": {slot}"#));
    }
    let kept = || server.said().matches("kept a prompt").count();
    let (deadline, nap) = (Instant::now() + Duration::from_secs(60), Duration::from_millis(10));
    while kept() == 0 {
        assert!(Instant::now() < deadline, "{}", server.said());
        std::thread::sleep(nap);
    }
    // At one for each second it would be five seconds.
    let first = Instant::now();
    while kept() < 6 {
        assert!(first.elapsed() < Duration::from_secs(4), "{}", server.said());
        std::thread::sleep(nap);
    }
    server.stop();
}

/// A slot that a file is restored into is kept before (T15).
#[test]
fn t15_a_slot_is_kept_before_a_file_is_restored() {
    let (model, folder) = (random_model("llama", 1), scratch("restored_over"));
    let options = ["--parallel", "1", "--slot-save-path", folder.to_str().unwrap()];
    let file = r#"{"filename": "slot.bin"}"#;
    let server = Server::start(&folder, &model, &options);
    server.complete(&tokens(222, 50), 1, "");
    let (status, said) = server.post("/slots/0?action=save", file);
    assert_eq!(status, 200, "{said}");
    let prompt = tokens(223, 200);
    server.complete(&prompt, 1, "");
    let (status, said) = server.post("/slots/0?action=restore", file);
    assert_eq!(status, 200, "{said}");
    assert_eq!(server.complete(&prompt, 1, "").cached, 199, "{}", server.said());
    server.stop();
}

/// Before its windows a state may have more than a slot has room for: it is computed then, and kept
/// as it is now (T15).
#[test]
fn t15_a_state_of_larger_batches_is_passed_over() {
    let (model, folder) = (random_model("cohere2", 1), scratch("batches"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap(), "--ubatch-size"];
    let prompt = tokens(230, 300);
    let mut expected = None;
    for (batch, is_found) in [("512", false), ("64", false), ("64", true), ("512", true)] {
        let server = Server::start(&folder, &model, &[&options[..], &[batch]].concat());
        let reply = server.complete(&prompt, 4, "");
        assert_eq!(reply.cached > 0, is_found, "{batch}\n{}", server.said());
        assert_eq!(expected.get_or_insert(reply.tokens.clone()), &reply.tokens, "{batch}");
        server.stop();
    }
}

/// A checkpoint that ends with a token which another prompt replaced is not trusted to its end
/// (T15).
#[test]
fn t15_a_checkpoint_is_of_the_tokens_that_are_there() {
    let (model, folder) = (random_model("cohere2", 1), scratch("replaced"));
    let options = ["--parallel", "1", "--ubatch-size", "64"];
    // Its last checkpoint but one is at 232 tokens, its last at 296.
    let first = tokens(240, 300);
    let other = (first[295] - 3 + 1) % 256 + 3;
    let second = [&first[..295], &[other], &tokens(241, 599)].concat();
    let third = [&second[..400], &tokens(242, 20)].concat();
    let own = Server::start(&folder, &model, &[OWN, &options].concat());
    let right = own.complete(&third, 24, r#", "cache_prompt": false"#).tokens;
    own.stop();
    let server = Server::start(&folder, &model, &options);
    server.complete(&first, 1, "");
    server.complete(&second, 1, "");
    let reply = server.complete(&third, 24, "");
    assert_eq!((reply.cached, reply.tokens), (295, right), "{}", server.said());
    server.stop();
}

/// What is restored into a slot answers who says no name: nobody else's prompt gets there (T15,
/// T07).
#[test]
fn t15_a_users_slot_is_not_saved_for_everybody() {
    let (model, folder) = (random_model("llama", 1), scratch("saved_for_all"));
    let options = ["--parallel", "1", "--slot-save-path", folder.to_str().unwrap()];
    let file = r#"{"filename": "slot.bin"}"#;
    let server = Server::start(&folder, &model, &options);
    let prompt = tokens(224, 200);
    server.complete(&prompt, 1, r#", "cache_salt": "anna""#);
    let (saved, said) = server.post("/slots/0?action=save", file);
    server.post("/slots/0?action=restore", file);
    assert_eq!(server.complete(&prompt, 1, "").cached, 0, "{}", server.said());
    assert_eq!(saved, 400, "{said}");
    // Who says no name can save what he has.
    let (saved, said) = server.post("/slots/0?action=save", file);
    assert_eq!(saved, 200, "{said}");
    server.stop();
}

/// Who fills in code goes on from the cache too (T15).
#[test]
fn t15_infill_is_answered_from_the_cache() {
    let (model, folder) = (random_model("llama", 1), scratch("infill"));
    // The small models have no such tokens of their own.
    let of = |name: &str, id: u32| format!("tokenizer.ggml.fim_{name}_token_id=int:{id}");
    let kinds = [of("pre", 256), of("suf", 257), of("mid", 258)].join(",");
    let disk = folder.join("disk");
    let disk = ["--cache-disk", disk.to_str().unwrap()];
    let options = ["--parallel", "1", "--override-kv", &kinds, disk[0], disk[1]];
    let code = "fn next() { count += 1; } ".repeat(16);
    let body = format!(
        r#"{{"input_prefix": "{code}", "input_suffix": "}}", "n_predict": 1, "temperature": 0}}"#
    );
    let server = Server::start(&folder, &model, &options);
    let first = server.reply("/infill", &body);
    assert_eq!(first.cached, 0);
    server.complete(&tokens(260, 300), 1, "");
    let again = server.reply("/infill", &body);
    assert_eq!(again.cached, first.computed - 1, "{}", server.said());
    server.stop();
    let server = Server::start(&folder, &model, &options);
    let again = server.reply("/infill", &body);
    assert_eq!(again.cached, first.computed - 1, "{}", server.said());
    server.stop();
}

/// What nothing would keep any longer is not copied at the end (T15).
#[test]
fn t15_the_end_copies_nothing_without_a_disk() {
    let (model, folder) = (random_model("llama", 1), scratch("end_without_disk"));
    let server = Server::start(&folder, &model, &["--parallel", "1"]);
    server.complete(&tokens(270, 300), 1, "");
    // At once: what has nothing to do for a second is copied in any case.
    let said = server.stop();
    assert!(!said.contains("kept a prompt"), "{said}");
}
