//! integrations/llama_server: llama-server with radixkv in the seat of its prompt cache, beside its
//! own. The first run fetches and compiles llama.cpp, which takes a quarter of an hour, so these
//! tests need a feature of their own:
//!
//!     cargo test --features llama-server --test llama_server
use server::{Server, program, random_model, real_model, scratch};
use std::fs;
use std::process::Command;

mod beginnings;
mod directory;
mod embedded;
mod kept;
#[path = "../native/mod.rs"]
mod native;
#[path = "../native/redis.rs"]
mod redis;
mod remote;
mod server;
mod worlds;

/// Tokens of the small models: a vocabulary of bytes.
fn tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.u32(3..259)).collect()
}

fn joined(parts: &[&[u32]]) -> Vec<u32> {
    parts.concat()
}

const OWN: &[&str] = &["--no-cache-radix"];

/// One prompt cold, from memory, from disk after a crash, and in llama-server as it is: the same
/// tokens (T15). The prompt goes on where another ended, so that its state comes from the cache and
/// what is computed after it is computed in one piece in each case.
#[test]
fn t15_the_same_tokens_cold_from_memory_from_disk() {
    let (model, folder) = (random_model("llama", 1), scratch("same_tokens"));
    let disk = folder.join("disk");
    let with_disk = ["--cache-disk", disk.to_str().unwrap(), "--parallel", "1"];
    let (head, tail) = (tokens(1, 600), tokens(2, 40));
    let whole = joined(&[&head, &tail]);
    let ask = |server: &Server| server.complete(&whole, 24, "");

    let own = Server::start(&folder, &model, &[OWN, &["--parallel", "1"]].concat());
    let cold = ask(&own);
    assert_eq!((cold.cached, cold.computed, cold.tokens.len()), (0, 640, 24), "{cold:?}");
    own.stop();
    let own = Server::start(&folder, &model, &[OWN, &["--parallel", "1"]].concat());
    own.complete(&head, 1, "");
    own.complete(&tokens(3, 50), 1, ""); // into its cache
    let from_own = ask(&own);
    assert_eq!((from_own.cached, &from_own.tokens), (600, &cold.tokens));
    own.stop();

    let server = Server::start(&folder, &model, &with_disk);
    assert_eq!(ask(&server).tokens, cold.tokens);
    server.complete(&tokens(3, 50), 1, "");
    let from_memory = ask(&server);
    assert_eq!((from_memory.cached, &from_memory.tokens), (639, &cold.tokens), "{}", server.said());
    assert!(server.says("from memory"), "{}", server.said());
    server.rest();
    server.kill();

    let server = Server::start(&folder, &model, &with_disk);
    let from_disk = ask(&server);
    assert_eq!((from_disk.cached, &from_disk.tokens), (639, &cold.tokens), "{}", server.said());
    assert!(server.says("from disk"), "{}", server.said());
    server.stop();
}

/// A chat with a trained model, through the interface that everybody uses: it goes on after a crash
/// with its beginning from disk, and says what it says when its server goes on (T15, T01).
#[test]
fn t15_a_chat_goes_on_after_a_restart() {
    let (model, folder) = (real_model(), scratch("chat"));
    let disk = folder.join("disk");
    let with_disk = ["--cache-disk", disk.to_str().unwrap()];
    let system = "You are the librarian of a small town. You answer in one sentence. ".repeat(12);
    let questions = ["Which book is about whales?", "Who wrote it?", "And when was that?"];
    let chat = |server: &Server, answers: &[String]| {
        let mut messages = format!(r#"{{"role": "system", "content": "{system}"}}"#);
        for (at, question) in questions.iter().take(answers.len() + 1).enumerate() {
            messages += &format!(r#", {{"role": "user", "content": "{question}"}}"#);
            if let Some(answer) = answers.get(at) {
                messages += &format!(r#", {{"role": "assistant", "content": "{answer}"}}"#);
            }
        }
        let more = r#""max_tokens": 24, "temperature": 0, "top_k": 1"#;
        let body = format!(r#"{{"messages": [{messages}], {more}}}"#);
        server.reply("/v1/chat/completions", &body)
    };

    let server = Server::start(&folder, &model, &with_disk);
    let mut answers = Vec::new();
    let first = chat(&server, &answers);
    assert_eq!(first.cached, 0);
    answers.push(first.text);
    let second = chat(&server, &answers);
    assert!(second.cached >= first.computed, "{second:?}");
    answers.push(second.text.clone());
    server.rest();
    server.kill();

    let server = Server::start(&folder, &model, &with_disk);
    assert!(server.says("from before"), "{}", server.said());
    let third = chat(&server, &answers);
    assert!(server.says("from disk"), "{}", server.said());
    assert!(third.cached >= second.cached + second.computed, "{third:?} after {second:?}");
    assert!(third.computed < 40, "{third:?}");
    // What was asked before is found too, though it is but the beginning of what is there.
    let again = chat(&server, &answers[..1]);
    assert_eq!(again.text, second.text);
    assert!(again.computed < 40, "{again:?}");
    server.stop();

    let own = Server::start(&folder, &model, OWN);
    let alone = [0, 1, 2].map(|count| chat(&own, &answers[..count]));
    assert_eq!(alone.map(|reply| reply.text), [&answers[..], &[third.text]].concat()[..]);
    own.stop();
}

/// Entries stay when they are used: one state starts one chat after another, also at once (T15).
#[test]
fn t15_entries_stay_when_they_are_used() {
    let (model, folder) = (random_model("llama", 1), scratch("stay"));
    let head = tokens(10, 400);
    // The instructions are asked for alone, and leave their slot. Then come chats that begin with
    // them, each in a slot of its own.
    let found = |server: &Server| {
        server.complete(&head, 1, "");
        server.complete(&tokens(11, 300), 1, "");
        let chats: Vec<_> = (0..3).map(|at| joined(&[&head, &tokens(20 + at, 200)])).collect();
        std::thread::scope(|scope| {
            let asked: Vec<_> = chats
                .iter()
                .map(|chat| scope.spawn(|| server.complete(chat, 64, "").cached))
                .collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
        })
    };
    let slots = ["--parallel", "4", "--kv-unified", "--slot-prompt-similarity", "0"];
    let own = Server::start(&folder, &model, &[OWN, &slots].concat());
    let of_own = found(&own);
    assert!(of_own.contains(&0), "llama-server's own has got better: {of_own:?}");
    own.stop();
    let ours = Server::start(&folder, &model, &slots);
    assert_eq!(found(&ours), [400; 3], "{}", ours.said());
    ours.stop();
}

/// Entries that llama-server's own cache doesn't look for, or no longer has (T15).
#[test]
fn t15_entries_are_found_where_its_own_finds_none() {
    let (model, folder) = (random_model("llama", 1), scratch("found"));
    let head = tokens(30, 500);
    let [one, two] = [31, 32].map(|seed| joined(&[&head, &tokens(seed, 250)]));
    let options = ["--parallel", "1"];
    let found = |server: &Server| -> Vec<usize> {
        // Two that begin alike, in turns: most of each stays in the slot, so nothing is looked for.
        let turns = [&one, &two, &one, &two].map(|prompt| server.complete(prompt, 1, "").cached);
        // A long one that a short one has the beginning of: less than a quarter is in common.
        server.complete(&tokens(33, 100), 1, "");
        let short = joined(&[&head[..150], &tokens(34, 30)]);
        [&turns[..], &[server.complete(&short, 1, "").cached]].concat()
    };
    let own = Server::start(&folder, &model, &[OWN, &options].concat());
    assert_eq!(found(&own), [0, 500, 500, 500, 0]);
    own.stop();
    let ours = Server::start(&folder, &model, &options);
    assert_eq!(found(&ours), [0, 500, 749, 749, 150], "{}", ours.said());
    ours.stop();
}

/// One user's state never answers another's request: not from a slot, not from memory, not from
/// disk. Who says nothing is a user too (T15, T07).
#[test]
fn t15_users_share_nothing() {
    let (model, folder) = (random_model("llama", 1), scratch("users"));
    let disk = folder.join("disk");
    let options = ["--parallel", "2", "--cache-disk", disk.to_str().unwrap()];
    let prompt = tokens(40, 300);
    let users = [r#", "cache_salt": "anna""#, r#", "cache_salt": "bert""#, ""];
    let server = Server::start(&folder, &model, &options);
    let ask = |server: &Server, user: &str| server.complete(&prompt, 8, user);
    let first: Vec<_> = users.iter().map(|user| ask(&server, user)).collect();
    assert!(first.iter().all(|reply| reply.cached == 0), "{first:?}\n{}", server.said());
    assert!(first.iter().all(|reply| reply.tokens == first[0].tokens));
    for user in users {
        assert_eq!(ask(&server, user).cached, 299, "{}", server.said());
    }
    assert_eq!(ask(&server, r#", "cache_salt": "carl""#).cached, 0);
    server.rest();
    server.kill();

    let server = Server::start(&folder, &model, &options);
    assert_eq!(ask(&server, r#", "cache_salt": "dora""#).cached, 0);
    for user in users {
        let reply = ask(&server, user);
        assert_eq!((reply.cached, &reply.tokens), (299, &first[0].tokens), "{}", server.said());
    }
    for salt in ["7", r#""""#] {
        let body = format!(r#"{{"prompt": [5], "cache_salt": {salt}}}"#);
        let (status, said) = server.post("/completion", &body);
        assert_eq!(status, 400, "{said}");
        assert!(said.contains("cache_salt"), "{said}");
    }
    server.stop();
}

/// A server that keeps nobody apart doesn't take the name of a user (T15, T07).
#[test]
fn t15_who_keeps_nobody_apart_says_so() {
    let (model, folder) = (random_model("llama", 1), scratch("not_apart"));
    for off in [OWN, &["--cache-ram", "0"]] {
        let server = Server::start(&folder, &model, &[off, &["--parallel", "1"]].concat());
        let prompt = tokens(41, 300);
        server.complete(&prompt, 1, "");
        for path in ["/completion", "/v1/completions"] {
            let body = format!(r#"{{"prompt": {prompt:?}, "n_predict": 1, "cache_salt": "anna"}}"#);
            let (status, said) = server.post(path, &body);
            assert_eq!(status, 400, "{off:?} {path}: {said}");
            assert!(said.contains("cache_salt"), "{said}");
        }
        assert_eq!(server.complete(&prompt, 1, "").cached, 299, "others are answered as before");
        server.stop();
    }
}

/// The state of the draft model comes along (T15).
#[test]
fn t15_with_a_draft_model() {
    let (model, folder) = (random_model("llama", 1), scratch("draft"));
    let draft = random_model("llama", 2);
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let drafting = ["--model-draft", draft.to_str().unwrap(), "--spec-type", "draft-simple"];
    let prompt = tokens(110, 400);
    let alone = Server::start(&folder, &model, &options);
    let right = alone.complete(&prompt, 16, "").tokens;
    alone.stop();
    let options = [&options[..], &drafting].concat();
    let server = Server::start(&folder, &model, &options);
    let cold = server.complete(&prompt, 16, "");
    assert_eq!((cold.cached, &cold.tokens), (0, &right), "{}", server.said());
    server.kill();
    let server = Server::start(&folder, &model, &options);
    _ = server.complete(&prompt, 16, "");
    server.stop();
    let server = Server::start(&folder, &model, &options);
    let again = server.complete(&prompt, 16, "");
    assert_eq!((again.cached, &again.tokens), (399, &right), "{}", server.said());
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 2, "with and without a draft model");
    server.stop();
}

/// Where a context was shifted, the state is not that of its tokens: it is not kept (T15).
#[test]
fn t15_a_shifted_context_is_not_kept() {
    let (model, folder) = (random_model("llama", 1), scratch("shifted"));
    let options = ["--parallel", "1", "--ctx-size", "256", "--context-shift"];
    let server = Server::start(&folder, &model, &options);
    server.complete(&tokens(120, 200), 120, "");
    assert!(server.says("slot context shift"), "{}", server.said());
    server.rest();
    assert!(!server.said().contains("kept a prompt"), "{}", server.said());
    server.complete(&tokens(121, 100), 8, "");
    server.rest();
    assert!(server.says("kept a prompt of 107 tokens"), "{}", server.said());
    server.stop();
}

/// Nor where a chunk was reused elsewhere, whatever a shift of the context keeps of it (T15).
#[test]
fn t15_a_shift_makes_no_chunk_exact() {
    let (model, folder) = (random_model("llama", 1), scratch("chunks"));
    let options = ["--parallel", "1", "--ctx-size", "256", "--context-shift"];
    let server = Server::start(&folder, &model, &[&options[..], &["--cache-reuse", "16"]].concat());
    let [head, middle, tail] = [(140, 40), (141, 40), (142, 80)].map(|(seed, n)| tokens(seed, n));
    server.complete(&joined(&[&head, &middle, &tail]), 1, "");
    let prompt = joined(&[&head, &tail]);
    let long = server.complete(&prompt, 200, r#", "n_keep": -1"#);
    assert_eq!(long.cached, 119, "no chunk was reused: {}", server.said());
    assert!(server.says("slot context shift"), "{}", server.said());
    assert_eq!(server.complete(&prompt, 1, "").cached, 119);
    server.rest();
    assert!(server.says("kept a prompt of 160 tokens"), "{}", server.said());
    assert!(!server.said().contains("kept a prompt of 120 tokens"), "{}", server.said());
    server.stop();
}

/// What a file brings into a slot may be shifted, too: the slot goes on with it, and it is not
/// kept (T15).
#[test]
fn t15_a_restored_slot_is_not_kept() {
    let (model, folder) = (random_model("llama", 1), scratch("restored"));
    let options = ["--parallel", "1", "--ctx-size", "256", "--context-shift", "--slot-save-path"];
    let options = [&options[..], &[folder.to_str().unwrap()]].concat();
    let file = r#"{"filename": "slot.bin"}"#;
    let server = Server::start(&folder, &model, &options);
    server.complete(&tokens(150, 200), 120, "");
    assert!(server.says("slot context shift"), "{}", server.said());
    let (status, said) = server.post("/slots/0?action=save", file);
    assert_eq!(status, 200, "{said}");
    server.stop();
    let server = Server::start(&folder, &model, &options);
    let (status, said) = server.post("/slots/0?action=restore", file);
    assert_eq!(status, 200, "{said}");
    server.rest();
    assert!(!server.said().contains("kept a prompt"), "{}", server.said());
    // What is computed here is kept as ever.
    server.complete(&tokens(151, 100), 8, "");
    server.rest();
    assert!(server.says("kept a prompt of 107 tokens"), "{}", server.said());
    server.stop();
}

/// The patch is for one version: to another it is not applied, and says so.
#[test]
fn the_patch_fails_loudly_on_another_version() {
    let folder = scratch("patch");
    let source = program().ancestors().nth(3).unwrap().join("llama.cpp");
    let list =
        fs::read_to_string(native::root().join("integrations/llama_server/llama.cpp.sha256"));
    let list = list.unwrap();
    let files: Vec<_> = list.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    assert!(files.len() >= 6);
    for file in &files {
        fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
        fs::copy(source.join(file), folder.join(file)).unwrap();
    }
    let patched = || {
        let script = native::root().join("scripts/llama_server.sh");
        Command::new("bash").arg(script).arg("patch").arg(&folder).output().unwrap()
    };
    let patch = native::root().join("integrations/llama_server/llama.cpp.patch");
    let reversed = Command::new("patch")
        .args(["-p1", "--fuzz=0", "--reverse", "--quiet", "-d"])
        .arg(&folder)
        .arg("-i")
        .arg(&patch)
        .output()
        .unwrap();
    native::check(&reversed, &patch);
    // It applies to what it was written for, and gives what was built.
    native::check(&patched(), &folder);
    for file in &files {
        assert!(fs::read(folder.join(file)).unwrap() == fs::read(source.join(file)).unwrap());
    }
    // Twice, or to one that differs in a comment, it doesn't, and changes nothing.
    for file in [None, Some(files[2])] {
        if let Some(file) = file {
            let reversed = Command::new("patch")
                .args(["-p1", "--fuzz=0", "--reverse", "--quiet", "-d"])
                .arg(&folder)
                .arg("-i")
                .arg(&patch)
                .output()
                .unwrap();
            native::check(&reversed, &patch);
            let text = fs::read_to_string(folder.join(file)).unwrap();
            fs::write(folder.join(file), text + "// another version\n").unwrap();
        }
        let before: Vec<_> =
            files.iter().map(|file| fs::read(folder.join(file)).unwrap()).collect();
        let output = patched();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("the patch is for that alone"), "{said}");
        let after: Vec<_> = files.iter().map(|file| fs::read(folder.join(file)).unwrap()).collect();
        assert!(before == after);
    }
}

#[test]
fn options_are_documented_and_checked() {
    let ask = |arguments: &[&str]| Command::new(program()).args(arguments).output().unwrap();
    let help = String::from_utf8(ask(&["--help"]).stdout).unwrap();
    for option in [
        "--no-cache-radix",
        "--cache-disk DIR",
        "--cache-disk-mib N",
        "--cache-disk-wait MS",
        "--cache-remote URL",
    ] {
        assert!(help.contains(option), "{option}");
    }
    for wrong in
        [["--cache-disk-mib", "0"], ["--cache-disk-mib", "-2"], ["--cache-disk-wait", "-1"]]
    {
        let output = ask(&wrong);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(!output.status.success() && said.contains(wrong[0]), "{said}");
    }
}

/// Where slots share memory those with nothing to do are cleared when a task begins: not one whose
/// state nobody keeps, which goes on with it (T15).
#[test]
fn t15_a_restored_slot_stays_when_others_begin() {
    let (model, folder) = (random_model("llama", 1), scratch("others_begin"));
    let options = ["--parallel", "2", "--kv-unified", "--slot-save-path", folder.to_str().unwrap()];
    let file = r#"{"filename": "slot.bin"}"#;
    let prompt = tokens(160, 200);
    let server = Server::start(&folder, &model, &options);
    server.complete(&prompt, 1, r#", "id_slot": 0"#);
    let (status, said) = server.post("/slots/0?action=save", file);
    assert_eq!(status, 200, "{said}");
    server.stop();
    let server = Server::start(&folder, &model, &options);
    let (status, said) = server.post("/slots/0?action=restore", file);
    assert_eq!(status, 200, "{said}");
    server.complete(&tokens(161, 50), 1, r#", "id_slot": 1"#);
    assert_eq!(server.complete(&prompt, 1, "").cached, 199, "{}", server.said());
    server.stop();
}

/// Slots that share memory: where a state finds no room, one with nothing to do makes some (T15).
#[test]
fn t15_a_slot_with_nothing_to_do_makes_room_for_a_state() {
    let (model, folder) = (random_model("llama", 1), scratch("room"));
    let options = ["--parallel", "2", "--kv-unified", "--ctx-size", "1024"];
    let server = Server::start(&folder, &model, &options);
    let prompts = [tokens(170, 600), tokens(171, 600)];
    for prompt in &prompts {
        server.complete(prompt, 1, "");
    }
    server.rest();
    for prompt in &prompts {
        assert_eq!(server.complete(prompt, 1, "").cached, 599, "{}", server.said());
    }
    server.stop();
}

/// A request that reuses nothing takes a slot, too: what that has is kept before (T15).
#[test]
fn t15_a_slot_is_kept_before_who_reuses_nothing() {
    let (model, folder) = (random_model("llama", 1), scratch("reuses_nothing"));
    let server = Server::start(&folder, &model, &["--parallel", "1"]);
    let prompt = tokens(180, 200);
    server.complete(&prompt, 1, "");
    server.complete(&tokens(181, 50), 1, r#", "cache_prompt": false"#);
    assert_eq!(server.complete(&prompt, 1, "").cached, 199, "{}", server.said());
    server.stop();
}

/// Who says whose states may answer is heard at each endpoint (T15, T07).
#[test]
fn t15_users_share_nothing_at_any_endpoint() {
    let (model, folder) = (real_model(), scratch("endpoints"));
    let server = Server::start(&folder, &model, &["--parallel", "1"]);
    let text = "You answer in one word, and you never say why. ".repeat(12);
    // How many tokens of it were found, by the name that this endpoint has for that.
    let found = |path: &str, messages: &str, name: &str, user: &str| -> usize {
        let body = format!(
            r#"{{{messages}: [{{"role": "user", "content": "{text}"}}], "max_tokens": 4,
                "temperature": 0, "cache_salt": "{user}"}}"#
        );
        let (status, said) = server.post(path, &body);
        assert_eq!(status, 200, "{said}");
        let name = format!("\"{name}\":");
        let at = said.find(&name).unwrap_or_else(|| panic!("{name} in {said}")) + name.len();
        let digits = said[at..].chars().take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().unwrap()
    };
    for (path, messages, name) in [
        ("/v1/chat/completions", r#""messages""#, "cache_n"),
        ("/v1/messages", r#""messages""#, "cache_read_input_tokens"),
        ("/v1/responses", r#""input""#, "cached_tokens"),
    ] {
        let [anna, bert] = ["anna", "bert"].map(|user| format!("{user} {path}"));
        assert_eq!(found(path, messages, name, &anna), 0, "{path}\n{}", server.said());
        assert_eq!(found(path, messages, name, &bert), 0, "{path}\n{}", server.said());
        assert!(found(path, messages, name, &anna) > 50, "{path}\n{}", server.said());
    }
    let (status, said) = server.post(
        "/v1/messages",
        r#"{"messages": [{"role": "user", "content": "a"}], "cache_salt": 7}"#,
    );
    assert_eq!(status, 400, "{said}");
    server.stop();
}

/// What is built is what has a checksum: nothing else is fetched on the way.
#[test]
fn the_build_fetches_nothing_by_itself() {
    let cache = program().ancestors().nth(2).unwrap().join("CMakeCache.txt");
    let cache = fs::read_to_string(cache).unwrap();
    assert!(cache.contains("LLAMA_USE_PREBUILT_UI:BOOL=OFF"), "the page comes from elsewhere");
}
