//! A process that has a store is killed, again and again, at any moment.
//!
//! The child is this test binary: the test below is both, by what the environment says.
use crate::story::{Fate, Story, bytes_of};
use crate::support::*;
use radixkv::tier::{DiskStore, LowerStore, OpenError, Refused};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const FOLDER: &str = "RKV_TIER_FOLDER";
const FIRST: &str = "RKV_TIER_FIRST";
const BOUND: u64 = 4 * MIB;
/// Records that the last child must find, for all of them to have done anything.
const ENOUGH: usize = 50;

/// Tells each step in a line once it is true, until it is killed.
fn live(folder: &str) {
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let mut config = radixkv::tier::DiskConfig::new(folder, BOUND, FINGERPRINT);
    config.workers = 2;
    config.commit_interval = Duration::from_micros(500);
    let (store, found) = DiskStore::open(config).unwrap();
    let mut random = fastrand::Rng::with_seed(first);
    let mut live: Vec<u64> = found.iter().map(|record| number(&record.key)).collect();
    let say = |word: &str, number: u64| {
        let line = format!("{word} {number}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    };
    say("ready", 0);
    for next in first.. {
        // Told before: it may be there from now on.
        say("put", next);
        while let Err(why) = put(&store, next, bytes_of(next)) {
            assert_eq!(why, Refused::Full);
            if live.len() < 100 {
                // What was removed before gives room with the next commit.
                std::thread::sleep(Duration::from_micros(100));
                continue;
            }
            let gone = live.swap_remove(random.usize(..live.len()));
            say("remove", gone);
            store.remove(key(gone));
        }
        live.push(next);
        for seen in poll(&store) {
            let Seen::Committed(key) = seen else { panic!("{seen:?}") };
            say("committed", number(&key));
        }
        if random.u32(..20) == 0 {
            assert!(store.flush(LONG));
            say("flushed", 0);
        }
    }
}

fn number(key: &[u8; 32]) -> u64 {
    u64::from_le_bytes(key[..8].try_into().unwrap())
}

fn child(folder: &Folder, first: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::t05_a_killed_process_loses_nothing", "--nocapture"])
        .env(FOLDER, folder.path())
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Takes a line of the child's into the story; whether it has said anything that counts.
fn tell(story: &mut Story, line: &str) {
    let Some((word, number)) = line.split_once(' ') else { return };
    let Ok(number) = number.parse() else { return };
    let fates = &mut story.fates;
    match word {
        "put" => {
            fates.insert(number, Fate::Put);
        }
        "committed" => {
            fates.insert(number, Fate::Committed);
        }
        "remove" => {
            let was_committed = fates[&number] == Fate::Committed;
            fates.insert(number, Fate::Removed { was_committed });
        }
        "flushed" => {
            for fate in fates.values_mut().filter(|fate| matches!(fate, Fate::Removed { .. })) {
                *fate = Fate::Gone;
            }
        }
        _ => {}
    }
}

fn committed(story: &Story) -> usize {
    story.fates.values().filter(|fate| **fate == Fate::Committed).count()
}

#[test]
fn t05_a_killed_process_loses_nothing() {
    if let Ok(folder) = std::env::var(FOLDER) {
        return live(&folder);
    }
    let kills: u64 =
        std::env::var("RKV_TIER_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let seed = fastrand::u64(..1 << 32);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = Folder::new();
    let mut story = Story::default();
    // On a machine that does much else children come to little: some more have their turn.
    for kill in 0..3 * kills {
        if kill >= kills && committed(&story) > ENOUGH {
            break;
        }
        let first = story.fates.last_key_value().map_or(0, |(number, _)| number + 1);
        let mut child = child(&folder, first);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = Vec::new();
        // Some die while they open the store.
        if kill % 4 > 0 {
            while told.last().is_none_or(|line| line != "ready 0") {
                told.push(lines.next().expect("the child ended by itself").unwrap());
            }
            if kill == 1 {
                let error = DiskStore::open(folder.config(BOUND)).map(|_| ()).unwrap_err();
                assert!(matches!(error, OpenError::InUse { .. }), "{error}");
            }
        }
        std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
        child.kill().unwrap();
        assert!(child.wait().unwrap().code().is_none(), "the child ended by itself");
        // The last line may be cut.
        told.extend(lines.map_while(Result::ok));
        told.iter().for_each(|line| tell(&mut story, line));
        let (store, found) = DiskStore::open(folder.config(BOUND)).unwrap();
        story.check(&store, &found);
        story.fates.retain(|_, fate| *fate == Fate::Committed);
        // A new child's numbers are higher than all that any child before may have used.
        let last = first.max(story.fates.last_key_value().map_or(0, |(number, _)| *number));
        story.fates.entry(last + 1000).or_insert(Fate::Gone);
    }
    let committed = committed(&story);
    assert!(committed > ENOUGH, "the children did nothing: {committed}");
}
