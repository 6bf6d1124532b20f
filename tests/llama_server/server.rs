//! A llama-server under test, and what it answers.
use super::native;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a server may take to load a small model, on a machine with other things to do.
const START: Duration = Duration::from_secs(120);

/// The program, as `make llama-server` builds it.
pub fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let script = native::root().join("scripts/llama_server.sh");
        let output = Command::new("bash").arg(&script).arg("build").output().unwrap();
        native::check(&output, &script);
        String::from_utf8(output.stdout).unwrap().trim().into()
    })
}

/// A folder of one test, empty.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("llama_server").join(name);
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A model of an architecture, with two layers and random weights.
pub fn random_model(architecture: &str, seed: u32) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("llama_server");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{architecture}-{seed}.gguf"));
    // Tests run side by side, and the file is the same every time.
    let part = folder.join(format!("{architecture}-{seed}.{:?}", std::thread::current().id()));
    let output = Command::new(program().with_file_name("make_gguf"))
        .args(["--architecture", architecture, "--layers", "4", "--width", "128"])
        .args(["--seed", &seed.to_string(), "--out"])
        .arg(&part)
        .output()
        .unwrap();
    native::check(&output, &path);
    fs::rename(part, &path).unwrap();
    path
}

/// SmolLM2-135M-Instruct.
pub fn real_model() -> PathBuf {
    let script = native::root().join("scripts/model.sh");
    let output = Command::new("bash").arg(&script).arg("gguf").output().unwrap();
    native::check(&output, &script);
    String::from_utf8(output.stdout).unwrap().trim().into()
}

/// What a request was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub tokens: Vec<u32>,
    pub text: String,
    /// Tokens of the prompt that did not have to be computed.
    pub cached: usize,
    /// Those that had to be.
    pub computed: usize,
}

pub struct Server {
    child: Child,
    port: u16,
    log: PathBuf,
}

/// A request with JSON.
fn posted(path: &str, body: &str) -> String {
    let head = format!("Host: test\r\nConnection: close\r\nContent-Length: {}", body.len());
    let type_ = "Content-Type: application/json";
    format!("POST {path} HTTP/1.1\r\n{head}\r\n{type_}\r\n\r\n{body}")
}

impl Server {
    /// Starts one in a folder, which gets its log, and waits until it answers.
    pub fn start(folder: &Path, model: &Path, options: &[&str]) -> Self {
        Self::start_with(folder, model, options, &[])
    }

    /// The same with variables of the environment.
    pub fn start_with(
        folder: &Path,
        model: &Path,
        options: &[&str],
        variables: &[(&str, String)],
    ) -> Self {
        let mut server = Self::spawn(folder, model, options, variables);
        let start = Instant::now();
        while server.get("/health").is_none_or(|(status, _)| status != 200) {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("llama-server ended at once: {status}\n{}", server.said());
            }
            assert!(start.elapsed() < START, "llama-server does not start\n{}", server.said());
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    fn spawn(folder: &Path, model: &Path, options: &[&str], variables: &[(&str, String)]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = (0..).map(|run| folder.join(format!("server-{run}.log")));
        let log = log.into_iter().find(|log| !log.exists()).unwrap();
        let file = File::create(&log).unwrap();
        let child = Command::new(program())
            .arg("--model")
            .arg(model)
            // One thread, for two wait for each other when others are busy. Numbers of KV in full
            // length, and no fused attention, which shortens them: how a product adds up depends on
            // the size of its batch, and rounding makes so much of that that tokens differ.
            .args(["--port", &port.to_string(), "--threads", "1", "--no-warmup"])
            .args(["--ctx-size", "4096", "--cache-type-k", "f32", "--cache-type-v", "f32"])
            .args(["--flash-attn", "off"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .env_remove("LD_LIBRARY_PATH")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .spawn()
            .unwrap();
        Self { child, port, log }
    }

    /// Everything that it has said so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned()
    }

    /// Whether it says something, which its log may have a moment later than its answer.
    pub fn says(&self, what: &str) -> bool {
        let start = Instant::now();
        while !self.said().contains(what) {
            if start.elapsed() > Duration::from_secs(10) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Waits until every prompt so far is in the cache: slots are copied when nothing has been
    /// asked for a second or two.
    pub fn rest(&self) {
        let kept = || self.said().matches("kept a prompt").count();
        let (mut before, mut since) = (kept(), Instant::now());
        while since.elapsed() < Duration::from_secs(4) {
            std::thread::sleep(Duration::from_millis(50));
            let now = kept();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
    }

    /// As a crash would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As its user would; it must end well.
    pub fn stop(mut self) -> String {
        self.interrupt();
        let status = self.child.wait().unwrap();
        self.ended_well(status)
    }

    /// Asks it to end, and doesn't wait.
    pub fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// What it said, if it ends in time, well.
    pub fn ended_within(mut self, time: Duration) -> Option<String> {
        let start = Instant::now();
        while start.elapsed() < time {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(self.ended_well(status));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    fn ended_well(&self, status: ExitStatus) -> String {
        let said = self.said();
        assert!(status.success(), "{status}\n{said}");
        said
    }

    /// The status and the body.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"))
    }

    fn exchange(&self, request: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Posts JSON; the status and the body of the answer.
    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        let answer = self.exchange(&posted(path, body));
        answer.unwrap_or_else(|| panic!("no answer\n{}", self.said()))
    }

    /// Posts JSON for an answer that nobody waits for: who drops the stream has left.
    pub fn begin(&self, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(posted(path, body).as_bytes()).unwrap();
        stream
    }

    /// Goes on after some tokens, greedily. `more` is further JSON, with a comma before.
    pub fn complete(&self, prompt: &[u32], count: usize, more: &str) -> Reply {
        let body = format!(
            r#"{{"prompt": {prompt:?}, "n_predict": {count}, "temperature": 0, "top_k": 1,
                "return_tokens": true, "ignore_eos": true{more}}}"#
        );
        self.reply("/completion", &body)
    }

    /// What becomes of tokens is not looked at. `more` as above.
    pub fn embed(&self, prompt: &[u32], more: &str) {
        let (status, said) =
            self.post("/embedding", &format!(r#"{{"content": {prompt:?}{more}}}"#));
        assert_eq!(status, 200, "{said}\n{}", self.said());
    }

    pub fn reply(&self, path: &str, body: &str) -> Reply {
        let (status, said) = self.post(path, body);
        assert_eq!(status, 200, "{said}\n{}", self.said());
        let list = after(&said, r#""tokens":["#).split(']').next().unwrap_or_default();
        let tokens = list.split(',').filter_map(|token| token.trim().parse().ok()).collect();
        let text = after(&said, r#""content":""#).replace("\\\"", "\u{1}");
        let number = |name: &str| {
            let digits = after(&said, &format!("\"{name}\":"));
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().unwrap_or_else(|_| panic!("{name} in {said}"))
        };
        Reply {
            tokens,
            text: text.split('"').next().unwrap_or_default().replace('\u{1}', "\\\""),
            cached: number("cache_n"),
            computed: number("prompt_n"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn after<'a>(text: &'a str, what: &str) -> &'a str {
    text.find(what).map_or("", |at| &text[at + what.len()..])
}
