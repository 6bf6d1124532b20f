//! What becomes of the directory: damage, a slow disk, others who have it, its size.
use super::server::{Reply, Server, random_model, scratch};
use super::{native, tokens};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes in a folder, and how many files.
fn bytes_in(folder: &Path) -> (u64, usize) {
    let mut sum = (0, 0);
    for entry in fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        let add = match entry.metadata().unwrap() {
            data if data.is_dir() => bytes_in(&entry.path()),
            data => (data.len(), 1),
        };
        sum = (sum.0 + add.0, sum.1 + add.1);
    }
    sum
}

/// Nothing that becomes of the directory costs more than hits (T15, T04, T06).
#[test]
fn t15_a_damaged_or_vanished_directory_costs_only_hits() {
    let (model, folder) = (random_model("llama", 1), scratch("damage"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let prompts: Vec<_> = (0..6).map(|at| tokens(50 + at, 300)).collect();
    let ask = |server: &Server| {
        prompts.iter().map(|prompt| server.complete(prompt, 8, "")).collect::<Vec<_>>()
    };
    let server = Server::start(&folder, &model, &options);
    let right: Vec<_> = ask(&server).into_iter().map(|reply| reply.tokens).collect();
    server.stop();
    let check = |server: &Server, what: &str| -> usize {
        let replies = ask(server);
        for (reply, right) in replies.iter().zip(&right) {
            assert_eq!(&reply.tokens, right, "{what}\n{}", server.said());
        }
        replies.iter().filter(|reply| reply.cached > 0).count()
    };

    let server = Server::start(&folder, &model, &options);
    assert_eq!(check(&server, "whole"), 6);
    server.stop();

    // One byte in each 64 KiB of what is large: that is where the states are.
    let model_folder = fs::read_dir(&disk).unwrap().next().unwrap().unwrap().path();
    for file in fs::read_dir(&model_folder).unwrap().map(|entry| entry.unwrap().path()) {
        let mut bytes = fs::read(&file).unwrap();
        if bytes.len() > 1 << 20 {
            bytes.iter_mut().step_by(65536).for_each(|byte| *byte ^= 0x40);
            fs::write(&file, bytes).unwrap();
        }
    }
    let server = Server::start(&folder, &model, &options);
    assert_eq!(check(&server, "damaged"), 0, "{}", server.said());
    server.stop();

    // Everything is nonsense, the records too: it is another directory now, or none.
    for file in fs::read_dir(&model_folder).unwrap().map(|entry| entry.unwrap().path()) {
        let length = fs::metadata(&file).unwrap().len() as usize;
        fs::write(
            &file,
            tokens(60, length.min(1 << 20)).iter().map(|t| *t as u8).collect::<Vec<_>>(),
        )
        .unwrap();
    }
    let server = Server::start(&folder, &model, &options);
    assert_eq!(check(&server, "nonsense"), 0);
    assert!(server.says("kept in memory alone"), "{}", server.said());
    server.stop();

    // It goes while the server runs.
    fs::remove_dir_all(&disk).unwrap();
    let server = Server::start(&folder, &model, &options);
    check(&server, "new");
    fs::remove_dir_all(&disk).unwrap();
    assert_eq!(check(&server, "vanished"), 6);
    server.stop();
}

/// Has each larger read of a file take four seconds.
fn slow_disk(folder: &Path) -> String {
    preloaded(folder, include_str!("slow.c"))
}

/// A library of a source, to be put before others.
pub fn preloaded(folder: &Path, text: &str) -> String {
    let (source, library) = (folder.join("slow.c"), folder.join("slow.so"));
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    native::check(&compiler.output().unwrap(), &source);
    library.to_str().unwrap().to_owned()
}

/// Only the request that needs it waits for the disk, and no longer than it was told (T15, T03,
/// T11).
#[test]
fn t15_others_go_on_while_one_waits_for_the_disk() {
    let (model, folder) = (random_model("llama", 1), scratch("slow"));
    let disk = folder.join("disk");
    let options = ["--parallel", "2", "--cache-disk", disk.to_str().unwrap()];
    let (prompt, other) = (tokens(130, 600), tokens(131, 100));
    let server = Server::start(&folder, &model, &options);
    let right = server.complete(&prompt, 8, "").tokens;
    server.stop();

    let preload = [("LD_PRELOAD", slow_disk(&folder))];
    let server = Server::start_with(&folder, &model, &options, &preload);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.complete(&prompt, 8, ""));
        std::thread::sleep(Duration::from_millis(500));
        let start = Instant::now();
        assert_eq!(server.complete(&other, 8, "").computed, 100);
        assert!(!waits.is_finished(), "{:?}\n{}", start.elapsed(), server.said());
        let reply = waits.join().unwrap();
        assert_eq!((reply.cached, reply.tokens), (599, right.clone()), "{}", server.said());
    });
    server.stop();

    let options = [&options[..], &["--cache-disk-wait", "200"]].concat();
    let server = Server::start_with(&folder, &model, &options, &preload);
    let reply = server.complete(&prompt, 8, "");
    assert_eq!((reply.cached, reply.tokens), (0, right), "{}", server.said());
    assert!(server.says("is left on disk"), "{}", server.said());
    server.stop();
}

/// What can't be used as a directory: the server says so and goes on in memory (T15, T14).
#[test]
fn t15_a_directory_that_cannot_be_used_is_done_without() {
    let (model, folder) = (random_model("llama", 1), scratch("unusable"));
    let file = folder.join("file");
    fs::write(&file, "a file").unwrap();
    let check = |options: &[&str], says: &str| {
        let server = Server::start(&folder, &model, &[options, &["--parallel", "1"]].concat());
        let prompts = [tokens(70, 200), tokens(71, 200)];
        let first = prompts.each_ref().map(|prompt| server.complete(prompt, 4, "").tokens);
        let again = prompts.each_ref().map(|prompt| server.complete(prompt, 4, ""));
        for (again, first) in again.iter().zip(first) {
            assert_eq!((again.cached, &again.tokens), (199, &first), "{}", server.said());
        }
        server.rest();
        assert!(server.says(says), "`{says}` in {}", server.said());
        server.stop();
    };
    check(&["--cache-disk", file.to_str().unwrap()], "kept in memory alone");
    check(&["--cache-disk", "/proc/nowhere"], "kept in memory alone");
    // Another server has it.
    let disk = folder.join("disk");
    let with_disk = ["--cache-disk", disk.to_str().unwrap()];
    let other = Server::start(&folder, &model, &with_disk);
    check(&with_disk, "kept in memory alone");
    other.stop();
    // It is given back.
    check(&with_disk, "prompts are kept in");
}

/// Another model finds nothing of the first, and both find their own (T15, T07).
#[test]
fn t15_each_model_has_its_own_folder() {
    let (models, folder) = ([1, 2].map(|seed| random_model("llama", seed)), scratch("models"));
    let disk = folder.join("disk");
    let options = ["--cache-disk", disk.to_str().unwrap()];
    let prompt = tokens(80, 300);
    // The same name and size, other weights.
    let path = folder.join("model.gguf");
    let run = |model: &Path| -> Reply {
        fs::copy(model, &path).unwrap();
        let server = Server::start(&folder, &path, &options);
        let reply = server.complete(&prompt, 8, "");
        server.stop();
        reply
    };
    let first = models.each_ref().map(|model| run(model));
    let again = models.each_ref().map(|model| run(model));
    for (first, again) in first.iter().zip(&again) {
        assert_eq!((first.cached, again.cached), (0, 299));
        assert_eq!(first.tokens, again.tokens);
    }
    assert_ne!(first[0].tokens, first[1].tokens);
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 2);
    // What changes positions is another model too.
    let server =
        Server::start(&folder, &path, &[&options[..], &["--rope-freq-base", "5000"]].concat());
    assert_eq!(server.complete(&prompt, 8, "").cached, 0);
    server.stop();
}

/// The directory keeps to its size, and what is there is what was used last (T15, T10).
#[test]
fn t15_the_directory_keeps_to_its_size() {
    let (model, folder) = (random_model("llama", 1), scratch("size"));
    let disk = folder.join("disk");
    let mib = 4;
    let size = mib.to_string();
    let options =
        ["--parallel", "1", "--cache-disk", disk.to_str().unwrap(), "--cache-disk-mib", &size];
    let server = Server::start(&folder, &model, &options);
    let prompts: Vec<_> = (0..12).map(|at| tokens(90 + at, 700)).collect();
    let right: Vec<_> =
        prompts.iter().map(|prompt| server.complete(prompt, 4, "").tokens).collect();
    server.stop();
    // Records come on top of the data.
    let (bytes, _) = bytes_in(&disk);
    assert!(bytes <= (mib << 20) + (8 << 20), "{bytes} bytes");
    let server = Server::start(&folder, &model, &options);
    let last = prompts.len() - 1;
    let reply = server.complete(&prompts[last], 4, "");
    assert_eq!((reply.cached, &reply.tokens), (699, &right[last]), "{}", server.said());
    let reply = server.complete(&prompts[0], 4, "");
    assert_eq!((reply.cached, &reply.tokens), (0, &right[0]), "{}", server.said());
    server.stop();
}

/// A state lies otherwise where slots have memory of their own, for each number of them, and where
/// attention is fused: such servers find nothing of each other, and keep what they compute (T15).
#[test]
fn t15_states_that_lie_otherwise_have_their_own_folder() {
    let (model, folder) = (random_model("llama", 1), scratch("layouts"));
    let disk = folder.join("disk");
    let prompt = tokens(81, 300);
    let ways: [&[&str]; 3] =
        [&["--parallel", "1"], &["--parallel", "2"], &["--parallel", "1", "--flash-attn", "on"]];
    for way in ways {
        let options = [way, &["--cache-disk", disk.to_str().unwrap()]].concat();
        for cached in [0, 299] {
            let server = Server::start(&folder, &model, &options);
            let reply = server.complete(&prompt, 8, "");
            assert_eq!(reply.cached, cached, "{way:?}\n{}", server.said());
            assert!(!server.said().contains("doesn't fit the context"), "{}", server.said());
            server.stop();
        }
    }
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 3);
    // Slots that share memory have one stream, however many they are.
    let options = ["--parallel", "3", "--kv-unified", "--cache-disk", disk.to_str().unwrap()];
    let server = Server::start(&folder, &model, &options);
    assert_eq!(server.complete(&prompt, 8, "").cached, 299, "{}", server.said());
    server.stop();
}

/// A server doesn't fall asleep over a request that waits for the disk (T15, T03).
#[test]
fn t15_no_server_sleeps_while_a_request_waits_for_the_disk() {
    let (model, folder) = (random_model("llama", 1), scratch("sleeps"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let prompt = tokens(135, 600);
    let server = Server::start(&folder, &model, &options);
    let right = server.complete(&prompt, 8, "").tokens;
    server.stop();

    let preload = [("LD_PRELOAD", slow_disk(&folder))];
    let options = [&options[..], &["--sleep-idle-seconds", "1"]].concat();
    let server = Server::start_with(&folder, &model, &options, &preload);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.complete(&prompt, 8, ""));
        std::thread::sleep(Duration::from_secs(20));
        let is_answered = asked.is_finished();
        // Whoever comes next wakes it.
        server.complete(&tokens(136, 20), 1, "");
        let reply = asked.join().unwrap();
        assert!(is_answered, "it waited for another request\n{}", server.said());
        assert_eq!((reply.cached, reply.tokens), (599, right), "{}", server.said());
    });
    server.stop();
}

/// Quantized keys are turned before they are rounded, unless a variable says otherwise: such
/// servers find nothing of each other (T15).
#[test]
fn t15_keys_that_are_turned_have_their_own_folder() {
    let (model, folder) = (random_model("llama", 1), scratch("turned"));
    let disk = folder.join("disk");
    let options =
        ["--parallel", "1", "--cache-type-k", "q8_0", "--cache-disk", disk.to_str().unwrap()];
    let prompt = tokens(82, 300);
    for off in ["0", "1"] {
        let variables = [("LLAMA_ATTN_ROT_DISABLE", off.to_owned())];
        for cached in [0, 299] {
            let server = Server::start_with(&folder, &model, &options, &variables);
            assert_eq!(server.complete(&prompt, 8, "").cached, cached, "{off}\n{}", server.said());
            server.stop();
        }
    }
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 2);
}

/// Beyond the length that it was trained for a model may have other factors for its positions
/// (T15).
#[test]
fn t15_contexts_beyond_the_models_own_have_their_own_folder() {
    let (model, folder) = (random_model("llama", 1), scratch("beyond"));
    let disk = folder.join("disk");
    let prompt = tokens(83, 300);
    // How long a context is makes no difference before.
    for (size, cached) in [("2048", 0), ("8192", 299), ("16384", 0), ("16384", 299)] {
        let options =
            ["--parallel", "1", "--ctx-size", size, "--cache-disk", disk.to_str().unwrap()];
        let server = Server::start(&folder, &model, &options);
        assert_eq!(server.complete(&prompt, 8, "").cached, cached, "{size}\n{}", server.said());
        server.stop();
    }
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 2);
}

/// A request waits for the disk as long as it was told, however many prompts it has (T15, T11).
#[test]
fn t15_a_request_of_several_prompts_waits_once() {
    let (model, folder) = (random_model("llama", 1), scratch("several"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let prompts = [137, 138, 139].map(|seed| tokens(seed, 600));
    let server = Server::start(&folder, &model, &options);
    for prompt in &prompts {
        server.complete(prompt, 1, "");
    }
    server.stop();
    let preload = [("LD_PRELOAD", slow_disk(&folder))];
    let server = Server::start_with(&folder, &model, &options, &preload);
    let start = Instant::now();
    let body = format!(r#"{{"prompt": {prompts:?}, "n_predict": 1}}"#);
    let (status, said) = server.post("/completion", &body);
    assert_eq!(status, 200, "{said}");
    // Four seconds for one of them, five for all.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}\n{}", start.elapsed(), server.said());
    server.stop();
}

/// A slot that is at work when the server ends is kept with what it has (T15).
#[test]
fn t15_a_slot_at_work_is_kept_at_the_end() {
    let (model, folder) = (random_model("llama", 1), scratch("at_work"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let prompt = tokens(220, 1500);
    let body = format!(r#"{{"prompt": {prompt:?}, "n_predict": 2500, "ignore_eos": true}}"#);
    // llama.cpp's handler of signals takes a lock. Where the thread that it interrupts has it, the
    // server stands still.
    let said = (0..10).find_map(|_| {
        let server = Server::start(&folder, &model, &options);
        let asked = server.begin("/completion", &body);
        assert!(server.says("processing task"), "{}", server.said());
        std::thread::sleep(Duration::from_millis(500));
        server.interrupt();
        std::thread::sleep(Duration::from_millis(500));
        drop(asked);
        server.ended_within(Duration::from_secs(10))
    });
    let said = said.expect("it stood still each time");
    assert!(!said.contains("stop processing"), "it was ready too early: {said}");
    let server = Server::start(&folder, &model, &options);
    assert!(server.complete(&prompt, 1, "").cached > 0, "{}", server.said());
    server.stop();
}

/// Who looks at the server all the time keeps no prompt from the disk (T15, T03).
#[test]
fn t15_prompts_are_written_while_somebody_watches() {
    let (model, folder) = (random_model("llama", 1), scratch("watched"));
    let disk = folder.join("disk");
    let options = ["--parallel", "1", "--cache-disk", disk.to_str().unwrap()];
    let prompt = tokens(216, 600);
    let server = Server::start(&folder, &model, &options);
    server.complete(&prompt, 1, "");
    for _ in 0..20 {
        assert_eq!(server.get("/slots").unwrap().0, 200);
        std::thread::sleep(Duration::from_millis(300));
    }
    server.kill();
    let server = Server::start(&folder, &model, &options);
    assert_eq!(server.complete(&prompt, 1, "").cached, 599, "{}", server.said());
    server.stop();
}
