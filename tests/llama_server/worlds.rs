//! Random chats of several users, request by request beside llama-server's own cache.
use super::server::{Reply, Server, random_model, scratch};
use super::{OWN, tokens};
use std::time::Duration;

/// No prompt is longer: a slot has room for it, whatever else it has.
const LONGEST: usize = 900;

/// What users send: chats that begin with the same instructions, go on, are asked again, changed in
/// the middle and left.
struct World {
    random: fastrand::Rng,
    instructions: Vec<Vec<u32>>,
    chats: Vec<Vec<u32>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let instructions = (0..2).map(|at| tokens(seed * 100 + at, 120 + 90 * at as usize));
        let random = fastrand::Rng::with_seed(seed);
        Self { random, instructions: instructions.collect(), chats: Vec::new() }
    }

    fn message(&mut self) -> Vec<u32> {
        let count = self.random.usize(5..60);
        tokens(self.random.u64(..), count)
    }

    /// The next prompt, and which chat it belongs to.
    fn prompt(&mut self) -> (usize, Vec<u32>) {
        let message = self.message();
        let choice = self.random.usize(..10);
        if self.chats.is_empty() || choice < 2 {
            let at = self.random.usize(..self.instructions.len());
            self.chats.push([&self.instructions[at][..], &message].concat());
            return (self.chats.len() - 1, self.chats.last().unwrap().clone());
        }
        // Recent chats are likelier.
        let count = self.chats.len();
        let back = self.random.usize(..count).min(self.random.usize(..count));
        let chat = self.chats[count - 1 - back].clone();
        let prompt = match choice {
            2..6 => [&chat[..], &message].concat(), // it goes on
            6..8 => [&chat[..self.random.usize(chat.len() / 3..chat.len())], &message].concat(),
            8 => chat,                             // asked again
            _ => tokens(self.random.u64(..), 100), // something else altogether
        };
        if prompt.len() > LONGEST {
            return self.prompt();
        }
        self.chats.push(prompt);
        (self.chats.len() - 1, self.chats.last().unwrap().clone())
    }

    /// A chat goes on with what was answered.
    fn answered(&mut self, chat: usize, reply: &Reply) {
        self.chats[chat].extend(&reply.tokens);
    }
}

struct Case {
    name: &'static str,
    architecture: &'static str,
    requests: usize,
    /// Between two requests.
    pause: Duration,
    /// Tokens that one request may reuse less.
    slack: usize,
    /// Whether what is computed anew is to be trusted, and not llama-server's own cache.
    own_errs: bool,
}

impl Default for Case {
    fn default() -> Self {
        let pause = Duration::ZERO;
        let own_errs = false;
        Self { name: "", architecture: "llama", requests: 120, pause, slack: 0, own_errs }
    }
}

/// Runs the same requests through both; ours must not compute more, of any of them.
fn compare(case: Case, options: &[&str]) {
    let Case { name, architecture, requests, pause, slack, own_errs } = case;
    let seed = std::env::var("RKV_LLAMA_SERVER_SEED").map_or(1, |seed| seed.parse().unwrap());
    let (model, folder) = (random_model(architecture, 1), scratch(name));
    let own_server = Server::start(&folder, &model, &[OWN, options].concat());
    let server = Server::start(&folder, &model, options);
    let anew = own_errs.then(|| Server::start(&folder, &model, &[OWN, options].concat()));
    let mut world = World::new(seed);
    let (mut more, mut fewer, mut sums, mut prompt_count) = (0, 0, [0, 0], 0);
    for request in 0..requests {
        let (chat, prompt) = world.prompt();
        let [own, our] = [&own_server, &server].map(|server| server.complete(&prompt, 6, ""));
        let what = format!("request {request} of {} tokens, seed {seed}", prompt.len());
        let anew = anew.as_ref();
        let anew = anew.map(|server| server.complete(&prompt, 6, r#", "cache_prompt": false"#));
        let expected = anew.map_or(own.tokens, |reply| reply.tokens);
        assert_eq!(expected, our.tokens, "{what}\n{}", server.said());
        let less = own.cached.saturating_sub(our.cached);
        assert!(less <= slack, "{what}: {} < {}\n{}", our.cached, own.cached, server.said());
        assert_eq!(our.cached + our.computed, prompt.len(), "{what}");
        more += (our.cached > own.cached) as usize;
        fewer += (less > 0) as usize;
        sums = [sums[0] + own.cached, sums[1] + our.cached];
        prompt_count += prompt.len();
        world.answered(chat, &our);
        std::thread::sleep(pause);
    }
    println!(
        "{name}: {requests} requests of {prompt_count} tokens; reused {} by llama-server's own \
         cache, {} by radixkv, more in {more} requests, fewer in {fewer}",
        sums[0], sums[1]
    );
    assert!(more > fewer && sums[1] > sums[0], "{name}: {more} of {requests}, {sums:?}");
    own_server.stop();
    server.stop();
    if let Some(server) = anew {
        server.stop();
    }
}

/// One slot, so that each request takes the place of another.
#[test]
fn t15_never_fewer_reused_tokens_with_one_slot() {
    compare(Case { name: "one_slot", ..Case::default() }, &["--parallel", "1"]);
}

/// As it starts without options: slots that share one memory, and are cleared for each other.
#[test]
fn t15_never_fewer_reused_tokens_with_slots_that_share_memory() {
    let case = Case { name: "shared", ..Case::default() };
    compare(case, &["--parallel", "3", "--kv-unified"]);
}

#[test]
fn t15_never_fewer_reused_tokens_with_slots_that_do_not() {
    let case = Case { name: "slots", ..Case::default() };
    compare(case, &["--parallel", "2", "--no-kv-unified"]);
}

const CHECKPOINTS: &[&str] = &["--parallel", "2", "--checkpoint-min-step", "64"];

/// With a recurrent state, which is all or nothing but for checkpoints. Those are made where
/// something is computed: who reuses more has fewer. So one request might find a checkpoint that is
/// not there with ours, but all together find less.
#[test]
fn t15_more_reused_tokens_with_recurrent_states() {
    let case = Case { name: "recurrent", architecture: "mamba", slack: LONGEST, ..Case::default() };
    compare(case, CHECKPOINTS);
}

/// With windows: only the last positions are there, and checkpoints. What a slot still has before
/// its window is saved as well, so that a state can be cut as the slot could.
fn compare_with_windows(name: &'static str, options: &[&str]) {
    compare(Case { name, architecture: "cohere2", ..Case::default() }, options);
}

#[test]
fn t15_never_fewer_reused_tokens_with_windows() {
    compare_with_windows("windows", CHECKPOINTS);
}

#[test]
fn t15_never_fewer_reused_tokens_with_windows_in_memory_that_slots_share() {
    let options = ["--parallel", "3", "--kv-unified", "--checkpoint-min-step", "64"];
    compare_with_windows("windows_shared", &options);
}

/// A batch is all that a slot has before its window.
#[test]
fn t15_never_fewer_reused_tokens_with_windows_and_small_batches() {
    compare_with_windows("windows_small", &[CHECKPOINTS, &["--ubatch-size", "64"]].concat());
}

/// Of layers with windows all positions are kept, and saved. llama-server's own cache saves the
/// window alone, and goes on from anywhere as if all were there.
#[test]
fn t15_never_fewer_reused_tokens_with_whole_windows() {
    let case = Case { name: "windows_whole", architecture: "cohere2", ..Case::default() };
    compare(Case { own_errs: true, ..case }, &["--parallel", "2", "--swa-full"]);
}

/// The memory of a few prompts, and the rest on disk, where it is found a quarter of a second
/// later.
#[test]
fn t15_never_fewer_reused_tokens_with_little_memory() {
    let pause = Duration::from_millis(600);
    let case = Case { name: "little", requests: 60, pause, ..Case::default() };
    let folder = scratch("little_disk");
    let disk = folder.to_str().unwrap();
    compare(case, &["--parallel", "1", "--cache-ram", "4", "--cache-disk", disk]);
}
