//! E03, E05: a publisher as subscribers see it, over sockets.
mod peers;

use bytes::Bytes;
use radixkv_net::*;
use std::ffi::{CStr, CString};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

const WAIT: Duration = Duration::from_secs(20);

/// The defaults, at an endpoint, with replays at any port.
fn at(endpoint: &CStr) -> rkv_net_publisher_config {
    rkv_net_publisher_config {
        struct_size: size_of::<rkv_net_publisher_config>() as u32,
        flags: 0,
        endpoint: endpoint.as_ptr(),
        replay_endpoint: c"tcp://127.0.0.1:0".as_ptr(),
        topic: null(),
        data_parallel_rank: 0,
        replay_batch_limit: 0,
        queue_batch_limit: 0,
        reserved: 0,
    }
}

struct Publisher(*mut rkv_net_publisher);

// SAFETY: any thread may call.
unsafe impl Sync for Publisher {}

impl Drop for Publisher {
    fn drop(&mut self) {
        // SAFETY: it came from create, and this is its last user.
        unsafe { rkv_net_publisher_destroy(self.0) };
    }
}

impl Publisher {
    fn new(topic: &str, replay_batches: u32, queue_batches: u32) -> Self {
        let topic = CString::new(topic).unwrap();
        Self::create(&rkv_net_publisher_config {
            topic: topic.as_ptr(),
            replay_batch_limit: replay_batches,
            queue_batch_limit: queue_batches,
            ..at(c"tcp://127.0.0.1:0")
        })
    }

    /// One that goes to a subscriber at a port, which need not be there yet.
    fn connected(port: u16, queue_batches: u32) -> Self {
        let endpoint = CString::new(format!("tcp://127.0.0.1:{port}")).unwrap();
        Self::create(&rkv_net_publisher_config {
            flags: RKV_NET_PUBLISHER_CONNECT,
            queue_batch_limit: queue_batches,
            ..at(&endpoint)
        })
    }

    fn create(config: &rkv_net_publisher_config) -> Self {
        let mut made = null_mut();
        // SAFETY: everything is there during the call.
        let status = unsafe { rkv_net_publisher_create(config, &mut made) };
        assert_eq!(status, rkv_net_status::Ok, "{}", last_message());
        Self(made)
    }

    fn publish(&self, payload: &[u8]) -> u64 {
        let mut sequence = u64::MAX;
        // SAFETY: a live handle, and as many bytes as is said.
        let status = unsafe {
            rkv_net_publisher_publish(self.0, payload.as_ptr(), payload.len(), &mut sequence)
        };
        assert_eq!(status, rkv_net_status::Ok);
        sequence
    }

    fn stats(&self) -> rkv_net_publisher_stats {
        // SAFETY: all fields are integers; the handle is live.
        unsafe {
            let mut stats: rkv_net_publisher_stats = zeroed();
            stats.struct_size = size_of_val(&stats) as u32;
            let status = rkv_net_publisher_read_stats(self.0, &mut stats);
            assert_eq!(status, rkv_net_status::Ok);
            stats
        }
    }
}

fn last_message() -> String {
    let mut text = [0; 256];
    // SAFETY: the buffer is as long as is said.
    unsafe {
        rkv_net_last_error_message(text.as_mut_ptr(), text.len());
        CStr::from_ptr(text.as_ptr()).to_str().unwrap().to_owned()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn frames(message: ZmqMessage) -> Vec<Vec<u8>> {
    message.into_vec().iter().map(|frame| frame.to_vec()).collect()
}

async fn next(socket: &mut impl SocketRecv) -> Vec<Vec<u8>> {
    frames(tokio::time::timeout(WAIT, socket.recv()).await.expect("in time").unwrap())
}

/// A subscriber who has heard a first batch: from here on it hears all. Returns that one's number.
async fn subscribe(publisher: &Publisher, topic: &str) -> (SubSocket, u64) {
    let mut socket = SubSocket::new();
    socket.connect(&format!("tcp://127.0.0.1:{}", publisher.stats().port)).await.unwrap();
    socket.subscribe(topic).await.unwrap();
    let end = Instant::now() + WAIT;
    loop {
        let sequence = publisher.publish(b"hello");
        let heard = tokio::time::timeout(Duration::from_millis(50), socket.recv()).await;
        if let Ok(message) = heard {
            let first = frames(message.unwrap());
            let first = u64::from_be_bytes(first[1][..].try_into().unwrap());
            for _ in first..sequence {
                next(&mut socket).await;
            }
            return (socket, sequence);
        }
        assert!(Instant::now() < end, "nobody hears");
    }
}

async fn replay(publisher: &Publisher, start: u64) -> Vec<Vec<Vec<u8>>> {
    let mut dealer = DealerSocket::new();
    dealer.connect(&format!("tcp://127.0.0.1:{}", publisher.stats().replay_port)).await.unwrap();
    let request = vec![Bytes::new(), Bytes::copy_from_slice(&start.to_be_bytes())];
    dealer.send(ZmqMessage::try_from(request).unwrap()).await.unwrap();
    let mut answers = Vec::new();
    loop {
        let answer = next(&mut dealer).await;
        assert_eq!((answer.len(), answer[0].len()), (4, 0));
        if answer[2] == [0xff; 8] {
            assert!(answer[1].is_empty() && answer[3].is_empty());
            return answers;
        }
        answers.push(answer);
    }
}

/// Three frames: the topic, the number with the highest byte first, the payload.
#[test]
fn e03_batches_have_a_topic_and_a_number() {
    let publisher = Publisher::new("kv@pod@model", 0, 0);
    runtime().block_on(async {
        let (mut socket, last) = subscribe(&publisher, "kv@").await;
        for at in 1..=300 {
            let payload = format!("batch {at}").into_bytes();
            assert_eq!(publisher.publish(&payload), last + at);
            let number = (last + at).to_be_bytes().to_vec();
            assert_eq!(next(&mut socket).await, [b"kv@pod@model".to_vec(), number, payload]);
        }
    });
    assert_eq!(publisher.stats().dropped_batch_count, 0);
}

/// The last 10,000 batches, from any number on.
#[test]
fn e03_what_was_missed_is_replayed() {
    let publisher = Publisher::new("", 0, 0);
    for at in 0..10_500_u64 {
        assert_eq!(publisher.publish(&at.to_le_bytes()), at);
    }
    assert_eq!(publisher.stats().replay_batch_count, 10_000);
    runtime().block_on(async {
        for (start, first) in [(0, 500), (9_000, 9_000), (10_499, 10_499), (10_500, 10_500)] {
            let answers = replay(&publisher, start).await;
            assert_eq!(answers.len() as u64, 10_500 - first, "from {start}");
            for (answer, at) in answers.iter().zip(first..) {
                let [topic, number, payload] = [&answer[1], &answer[2], &answer[3]];
                assert!(topic.is_empty());
                assert_eq!(number[..], at.to_be_bytes());
                assert_eq!(payload[..], at.to_le_bytes());
            }
        }
        // What is no request is passed over.
        let mut dealer = DealerSocket::new();
        let port = publisher.stats().replay_port;
        dealer.connect(&format!("tcp://127.0.0.1:{port}")).await.unwrap();
        for frames in [vec![vec![]], vec![vec![], vec![1]], vec![vec![1], vec![0; 8]]] {
            let frames: Vec<Bytes> = frames.into_iter().map(Bytes::from).collect();
            dealer.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
        }
        assert_eq!(replay(&publisher, 10_499).await.len(), 1);
    });
    assert_eq!(publisher.stats().replay_request_count, 5);
}

/// Where nobody can ask for batches none are kept.
#[test]
fn e03_without_replays_nothing_is_kept() {
    let config = rkv_net_publisher_config { replay_endpoint: null(), ..at(c"tcp://127.0.0.1:0") };
    let publisher = Publisher::create(&config);
    for at in 0..10 {
        assert_eq!(publisher.publish(&[7; 1000]), at);
    }
    let stats = publisher.stats();
    assert_eq!((stats.published_batch_count, stats.replay_batch_count), (10, 0));
}

/// A subscriber that never reads costs the owner no time, and the others hear everything.
#[test]
fn e05_a_dead_subscriber_is_nobodys_business() {
    let publisher = Publisher::new("", 100, 0);
    runtime().block_on(async {
        let (_dead, _) = subscribe(&publisher, "").await;
        let (mut alive, last) = subscribe(&publisher, "").await;
        let payload = vec![7; 100_000];
        for at in 1..=500 {
            assert_eq!(publisher.publish(&payload), last + at);
            let heard = next(&mut alive).await;
            assert_eq!(heard[1], (last + at).to_be_bytes());
            assert_eq!(heard[2].len(), payload.len());
        }
        // More than the system keeps for the dead one waits in the library.
        assert_eq!(publisher.stats().dropped_batch_count, 0);
    });
}

/// What found the queue full is counted and can be replayed; each number is there once.
#[test]
fn e05_a_full_queue_loses_nothing_silently() {
    let publisher = Publisher::new("", 5000, 1);
    let numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..1000).map(|_| publisher.publish(b"x")).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(0..4000));
    let stats = publisher.stats();
    assert_eq!((stats.published_batch_count, stats.published_byte_count), (4000, 4000));
    assert!(stats.dropped_batch_count > 0 && stats.dropped_batch_count < 4000);
    assert_eq!(runtime().block_on(replay(&publisher, 0)).len(), 4000);
}

/// Whoever begins again with the numbers after a gap asks for what it missed.
#[test]
fn e03_a_gap_is_filled() {
    let publisher = Publisher::new("", 0, 0);
    runtime().block_on(async {
        let (socket, last) = subscribe(&publisher, "").await;
        drop(socket);
        let missed: Vec<u64> = (0..50).map(|_| publisher.publish(b"missed")).collect();
        let (_socket, now) = subscribe(&publisher, "").await;
        assert!(now > last + 50, "the gap shows in the numbers");
        let answers = replay(&publisher, last + 1).await;
        let numbers: Vec<u64> = answers
            .iter()
            .map(|answer| u64::from_be_bytes(answer[2][..].try_into().unwrap()))
            .collect();
        assert!(numbers.iter().copied().eq(last + 1..=now));
        assert!(missed.iter().all(|number| numbers.contains(number)));
    });
}

/// A publisher that connects is made before its subscriber is there, waits for it in no call, and
/// ends without it.
#[test]
fn e05_a_subscriber_that_is_connected_to_may_come_later() {
    // A port that nobody has.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let alone = Publisher::connected(port, 2);
    for _ in 0..5 {
        alone.publish(b"to nobody");
    }
    let stats = alone.stats();
    assert_eq!((stats.port, stats.dropped_batch_count, stats.published_batch_count), (0, 3, 5));
    assert_eq!(runtime().block_on(replay(&alone, 0)).len(), 5, "replays do without it");
    drop(alone);
    let publisher = Publisher::connected(port, 0);
    assert_eq!(publisher.publish(b"early"), 0);
    runtime().block_on(async {
        let mut socket = SubSocket::new();
        socket.bind(&format!("tcp://127.0.0.1:{port}")).await.unwrap();
        socket.subscribe("").await.unwrap();
        let end = Instant::now() + WAIT;
        loop {
            publisher.publish(b"hello");
            let heard = tokio::time::timeout(Duration::from_millis(50), socket.recv()).await;
            if let Ok(message) = heard {
                assert!([&b"early"[..], b"hello"].contains(&&frames(message.unwrap())[2][..]));
                break;
            }
            assert!(Instant::now() < end, "nobody hears");
        }
    });
}

#[test]
fn m01_what_is_refused() {
    let taken = Publisher::new("", 0, 0);
    let at_taken = CString::new(format!("tcp://127.0.0.1:{}", taken.stats().port)).unwrap();
    let any = c"tcp://127.0.0.1:0";
    let good = rkv_net_publisher_config { replay_endpoint: null(), ..at(any) };
    let invalid = rkv_net_status::InvalidArgument;
    let refused = |config: &rkv_net_publisher_config, status, word: &str| {
        let mut made = null_mut();
        // SAFETY: everything is there during the call.
        let done = unsafe { rkv_net_publisher_create(config, &mut made) };
        assert_eq!(done, status, "{word}");
        assert!(made.is_null() && last_message().contains(word), "{}", last_message());
    };
    refused(&rkv_net_publisher_config { struct_size: 8, ..good }, invalid, "struct_size");
    refused(&rkv_net_publisher_config { flags: 2, ..good }, invalid, "config.flags");
    refused(&rkv_net_publisher_config { reserved: 1, ..good }, invalid, "config.reserved");
    refused(&rkv_net_publisher_config { endpoint: null(), ..good }, invalid, "config.endpoint");
    let wrong = c"tcp://nowhere".as_ptr();
    refused(&rkv_net_publisher_config { endpoint: wrong, ..good }, invalid, "config.endpoint");
    let config = rkv_net_publisher_config { replay_endpoint: wrong, ..good };
    refused(&config, invalid, "config.replay_endpoint");
    for nobody in [any, c"tcp://*:5557"] {
        let connects = RKV_NET_PUBLISHER_CONNECT;
        let config =
            rkv_net_publisher_config { flags: connects, replay_endpoint: null(), ..at(nobody) };
        refused(&config, invalid, "names nobody");
    }
    let config = rkv_net_publisher_config { topic: c"\xff".as_ptr(), ..good };
    refused(&config, invalid, "config.topic");
    let network = rkv_net_status::Network;
    let config = rkv_net_publisher_config { endpoint: at_taken.as_ptr(), ..good };
    refused(&config, network, "config.endpoint");
    let config = rkv_net_publisher_config { replay_endpoint: at_taken.as_ptr(), ..good };
    refused(&config, network, "config.replay_endpoint");

    // SAFETY: NULL is refused, and nothing else of it is read.
    unsafe {
        assert_eq!(rkv_net_publisher_create(null(), &mut null_mut()), invalid);
        assert_eq!(rkv_net_publisher_create(&good, null_mut()), invalid);
        assert_eq!(rkv_net_publisher_publish(null_mut(), null(), 0, null_mut()), invalid);
        assert_eq!(rkv_net_publisher_publish(taken.0, null(), 1, null_mut()), invalid);
        assert_eq!(rkv_net_publisher_read_stats(taken.0, null_mut()), invalid);
        rkv_net_publisher_destroy(null_mut());
    }
    assert_eq!(taken.stats().published_batch_count, 0);
    assert_eq!(rkv_net_abi_version(), RKV_NET_ABI_VERSION);
}
