//! Servers that a test starts, kills, stops and starts again.
use std::io::{Write, stderr};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

/// Says past the harness, which shows the output of failures alone, that a test was skipped.
pub fn skip(why: &str) {
    stderr().write_all(format!("SKIPPED: {why}\n").as_bytes()).unwrap();
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A process that listens.
pub struct Server {
    pub port: u16,
    command: Box<dyn Fn(u16) -> Command>,
    child: Option<Child>,
    /// Goes with it.
    folder: Option<PathBuf>,
}

impl Server {
    fn start_with(command: impl Fn(u16) -> Command + 'static) -> Self {
        let command = Box::new(command);
        let mut server = Self { port: free_port(), command, child: None, folder: None };
        server.start();
        server
    }

    pub fn start(&mut self) {
        let mut command = (self.command)(self.port);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(quiet.spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < end, "no server on port {}", self.port);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Lets it stand still, its sockets open, or go on.
    pub fn stop(&self, is_stopped: bool) {
        let process = self.child.as_ref().unwrap().id().to_string();
        let signal = if is_stopped { "-STOP" } else { "-CONT" };
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Redis, in a folder of its own, without a file.
pub fn redis() -> Option<Server> {
    if Command::new("redis-server").arg("--version").output().is_err() {
        skip("no redis-server: apt-get install redis-server");
        return None;
    }
    let folder = scratch().join(format!("redis-{}", free_port()));
    std::fs::create_dir_all(&folder).unwrap();
    let own = folder.clone();
    let mut server = Server::start_with(move |port| {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--port", &port.to_string()]).arg("--dir").arg(&own);
        command
    });
    server.folder = Some(folder);
    Some(server)
}

/// Redis that speaks TLS alone, and the file of the authority that its certificate is of.
pub fn redis_over_tls() -> Option<(Server, String)> {
    let has = |program: &str, word: &str| Command::new(program).arg(word).output().is_ok();
    if !has("redis-server", "--version") || !has("openssl", "version") {
        skip("no redis-server or no openssl: apt-get install redis-server openssl");
        return None;
    }
    let folder = scratch().join(format!("tls-{}", free_port()));
    std::fs::create_dir_all(&folder).unwrap();
    let openssl = |words: &str| {
        let words = words.split(' ');
        let done = Command::new("openssl").args(words).current_dir(&folder).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -days 2 -subj /CN=Test -keyout ca.key -out ca.crt"));
    openssl(&format!("req {key} -subj /CN=redis -keyout own.key -out own.csr"));
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    openssl(
        "x509 -req -in own.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
         -extfile names -out own.crt",
    );
    let ca_file = folder.join("ca.crt").to_str().unwrap().to_owned();
    let own = folder.clone();
    let mut server = Server::start_with(move |port| {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--port", "0", "--tls-port", &port.to_string(), "--tls-auth-clients", "no"]);
        command.args(["--tls-cert-file", "own.crt", "--tls-key-file", "own.key"]);
        command.args(["--tls-ca-cert-file", "ca.crt"]).current_dir(&own);
        command
    });
    server.folder = Some(folder);
    Some((server, ca_file))
}

fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Says to S3 who asks.
fn set_credentials() {
    static ENVIRONMENT: Once = Once::new();
    ENVIRONMENT.call_once(|| {
        let set = [
            ("AWS_ACCESS_KEY_ID", "x"),
            ("AWS_SECRET_ACCESS_KEY", "y"),
            ("AWS_REGION", "us-east-1"),
        ];
        for (name, value) in set {
            // SAFETY: the environment is read through std alone in this process, which locks it.
            unsafe { std::env::set_var(name, value) };
        }
    });
}

/// A server of S3, from PyPI, with a bucket.
pub fn s3(bucket: &str) -> Option<Server> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/s3_server.sh");
    let made = Command::new("bash").arg(script).output().unwrap();
    if !made.status.success() {
        skip(&format!("no server of S3: {}", String::from_utf8_lossy(&made.stderr).trim()));
        return None;
    }
    set_credentials();
    let program = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
    let server = Server::start_with(move |port| {
        let mut command = Command::new(&program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command
    });
    let done = http(server.port, &format!("PUT /{bucket} HTTP/1.0\r\nHost: s3\r\n\r\n"));
    assert!(done.contains(" 200 "), "{done}");
    Some(server)
}

/// A request, and all of its answer.
pub fn http(port: u16, request: &str) -> String {
    use std::io::Read;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// What speaks HTTP, and answers each request, which is its first word, by a function. Its address.
pub fn answers(answer: fn(&str, &mut TcpStream) -> std::io::Result<()>) -> String {
    use std::io::{BufRead, BufReader, Read};
    set_credentials();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
                let _ = reader.read_line(&mut first);
                while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
                    let word = line.to_lowercase();
                    if let Some(count) = word.strip_prefix("content-length:") {
                        length = count.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let _ = std::io::copy(&mut reader.take(length), &mut std::io::sink());
                let _ = answer(first.split(' ').next().unwrap_or_default(), &mut stream);
            });
        }
    });
    address
}
