//! E03, E05: peers of a publisher that go, come back, stand still, or are none at all.
use super::*;

/// A peer that has sent its greeting, and said no more.
fn greet(port: u16) -> std::net::TcpStream {
    begin(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap())
}

/// Sends a greeting.
fn begin(mut peer: std::net::TcpStream) -> std::net::TcpStream {
    use std::io::Write;
    peer.set_read_timeout(Some(WAIT)).unwrap();
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    peer.write_all(&greeting).unwrap();
    peer
}

/// Who says that a frame of 2^62 bytes follows is sent away, and the others hear on.
#[test]
fn e05_a_frame_that_nobody_has_room_for_ends_its_connection_alone() {
    use std::io::{ErrorKind, Read, Write};
    let publisher = Publisher::new("", 0, 0);
    let stats = publisher.stats();
    for port in [stats.port, stats.replay_port] {
        let mut peer = greet(port);
        peer.write_all(&[2]).unwrap();
        peer.write_all(&(1_u64 << 62).to_be_bytes()).unwrap();
        // A greeting, what the socket is, and the end; or a reset.
        let end = peer.read_to_end(&mut Vec::new());
        assert!(!end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "port {port}");
    }
    runtime().block_on(async {
        subscribe(&publisher, "").await;
        let last = publisher.publish(b"last");
        assert_eq!(replay(&publisher, last).await.len(), 1);
    });
}

/// Who asks for more than fits on the way, reads none of it and goes, holds up nobody.
#[test]
fn e03_who_asks_and_goes_without_reading_holds_up_nobody() {
    let publisher = Publisher::new("", 0, 0);
    let payload = vec![7; 1000];
    for _ in 0..10_000 {
        publisher.publish(&payload);
    }
    let runtime = runtime();
    runtime.block_on(async {
        let address = format!("tcp://127.0.0.1:{}", publisher.stats().replay_port);
        // With one alone the socket goes another way.
        let mut other = DealerSocket::new();
        other.connect(&address).await.unwrap();
        let mut dealer = DealerSocket::new();
        dealer.connect(&address).await.unwrap();
        for _ in 0..12 {
            let request = vec![Bytes::new(), Bytes::copy_from_slice(&[0; 8])];
            dealer.send(ZmqMessage::try_from(request).unwrap()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(dealer);
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    publisher.publish(b"more");
    let end = Instant::now() + WAIT;
    while publisher.stats().queued_batch_count > 0 {
        if Instant::now() > end {
            // Its thread never ends, and whoever destroys it waits for that.
            std::mem::forget(publisher);
            panic!("the thread stands still");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(runtime.block_on(replay(&publisher, 10_000)).len(), 1);
}

/// Messages of 1000 bytes that the system may keep at both ends of a connection.
fn in_the_system() -> usize {
    let most = |name: &str| -> usize {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        text.split_whitespace().last().unwrap().parse().unwrap()
    };
    (most("tcp_rmem") + most("tcp_wmem")) / 1000 + 1000
}

/// What waits for a subscriber who doesn't read has an end: it sees a gap, as the header says.
#[test]
fn e05_who_never_reads_has_room_for_so_many_batches() {
    let publisher = Publisher::new("", 1, 0);
    runtime().block_on(async {
        let (mut slow, _) = subscribe(&publisher, "").await;
        let wait_for = |most: u64| {
            while publisher.stats().queued_batch_count > most {
                // Nor does the subscriber's thread do anything meanwhile.
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let (room, payload) = (in_the_system(), vec![7; 1000]);
        for at in 0..100_000 + room + 10_000 {
            publisher.publish(&payload);
            if at % 1000 == 0 {
                wait_for(20_000);
            }
        }
        wait_for(0);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(publisher.stats().dropped_batch_count, 0);
        let (mut heard, mut last) = (0, None);
        while let Ok(message) = tokio::time::timeout(Duration::from_secs(2), slow.recv()).await {
            let number = u64::from_be_bytes(frames(message.unwrap())[1][..].try_into().unwrap());
            assert!(Some(number) > last, "{number} behind {last:?}");
            (heard, last) = (heard + 1, Some(number));
        }
        assert!((100_000..=100_000 + room).contains(&heard), "{heard}");
        // Who reads on hears what is published from now on; what it missed shows in the numbers.
        let newest = publisher.publish(b"x");
        assert_eq!(next(&mut slow).await[1], newest.to_be_bytes());
        assert!(newest + 1 > heard as u64 + 9_000, "no gap: {heard} of {newest}");
    });
}

/// A subscriber that is connected to and begins anew is found again.
#[test]
fn e05_a_subscriber_that_is_connected_to_and_comes_back_hears_again() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let publisher = Publisher::connected(port, 0);
    runtime().block_on(async {
        for round in 0..3 {
            let end = Instant::now() + WAIT;
            let mut socket = SubSocket::new();
            // The one before may not have left its port yet.
            while socket.bind(&format!("tcp://127.0.0.1:{port}")).await.is_err() {
                assert!(Instant::now() < end, "round {round}: no port");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            socket.subscribe("").await.unwrap();
            loop {
                publisher.publish(b"hello");
                let heard = tokio::time::timeout(Duration::from_millis(50), socket.recv()).await;
                if let Ok(message) = heard {
                    // Once: not over two connections.
                    let first = frames(message.unwrap())[1].clone();
                    publisher.publish(b"hello");
                    assert_ne!(next(&mut socket).await[1], first);
                    break;
                }
                assert!(Instant::now() < end, "round {round}: nobody hears");
            }
        }
    });
}

/// A subscriber that was connected to, and did not say yet what it wants.
fn let_in(listener: &std::net::TcpListener) -> std::net::TcpStream {
    use std::io::{Read, Write};
    let mut peer = begin(listener.accept().unwrap().0);
    peer.write_all(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB").unwrap();
    // A greeting, and what the socket is.
    peer.read_exact(&mut [0; 64 + 27]).unwrap();
    peer
}

/// Until a subscriber that is connected to says what it wants, which from far away comes a good
/// while after what it is, batches wait for it; those that find no room are counted.
#[test]
fn e05_what_waits_for_a_subscriber_waits_until_it_subscribes() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let publisher = Publisher::connected(listener.local_addr().unwrap().port(), 3);
    for _ in 0..4 {
        publisher.publish(b"early");
    }
    let mut peer = let_in(&listener);
    std::thread::sleep(Duration::from_millis(1500));
    publisher.publish(b"early");
    peer.write_all(b"\x00\x01\x01").unwrap();
    for number in 0..3_u64 {
        // An empty topic, the number, and the payload.
        let mut heard = [0; 2 + 10 + 7];
        peer.read_exact(&mut heard).expect("it was thrown away");
        assert_eq!(heard[4..12], number.to_be_bytes());
        assert_eq!(&heard[14..], b"early");
    }
    assert_eq!(publisher.stats().dropped_batch_count, 2);
}

/// A subscriber that goes as soon as it subscribed is not looked for again at once, for ever: that
/// would take all the time of both ends, and what waits to be told. One that was there is.
#[test]
fn e05_who_subscribes_and_goes_is_looked_for_once_a_second() {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let publisher = Publisher::connected(listener.local_addr().unwrap().port(), 0);
    let subscriber = || {
        let mut peer = let_in(&listener);
        peer.write_all(b"\x00\x01\x01").unwrap();
        peer
    };
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(2) {
        let peer = subscriber();
        // So that it is heard before it goes.
        std::thread::sleep(Duration::from_millis(10));
        drop(peer);
        count += 1;
    }
    assert!(count <= 4, "it came {count} times in two seconds");
    let peer = subscriber();
    std::thread::sleep(Duration::from_millis(1500));
    drop(peer);
    let gone = Instant::now();
    let peer = subscriber();
    assert!(gone.elapsed() < Duration::from_millis(500), "after {:?}", gone.elapsed());
    // Nobody waits for who was not there for long.
    drop(peer);
    let ends = Instant::now();
    drop(publisher);
    assert!(ends.elapsed() < Duration::from_millis(700), "it took {:?}", ends.elapsed());
}

/// A path is bound again, after a publisher and after a process that was killed; not while somebody
/// listens there.
#[test]
fn e05_a_path_that_nobody_listens_at_is_bound_again() {
    let path = format!("{}/kv-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    // As a process leaves it that is killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let endpoint = CString::new(format!("ipc://{path}")).unwrap();
    let config = rkv_net_publisher_config { replay_endpoint: null(), ..at(&endpoint) };
    for _ in 0..2 {
        let publisher = Publisher::create(&config);
        let mut other = null_mut();
        // SAFETY: everything is there during the call.
        let status = unsafe { rkv_net_publisher_create(&config, &mut other) };
        assert_eq!(status, rkv_net_status::Network);
        runtime().block_on(async {
            let mut socket = SubSocket::new();
            socket.connect(&format!("ipc://{path}")).await.unwrap();
            socket.subscribe("").await.unwrap();
            let end = Instant::now() + WAIT;
            loop {
                publisher.publish(b"hello");
                let heard = tokio::time::timeout(Duration::from_millis(50), socket.recv()).await;
                if heard.is_ok() {
                    break;
                }
                assert!(Instant::now() < end, "nobody hears");
            }
        });
    }
    assert!(!std::fs::exists(&path).unwrap(), "a publisher removes its path");
    // What is no socket stays.
    std::fs::write(&path, "a file").unwrap();
    let mut other = null_mut();
    // SAFETY: as above.
    let status = unsafe { rkv_net_publisher_create(&config, &mut other) };
    assert_eq!(status, rkv_net_status::Network);
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    std::fs::remove_file(&path).unwrap();
}

/// Who asks whether the publisher is still there is answered, as libzmq does.
#[test]
fn e05_heartbeats_are_answered() {
    use std::io::{Read, Write};
    let publisher = Publisher::new("", 0, 0);
    let stats = publisher.stats();
    for (port, kind) in [(stats.port, "SUB"), (stats.replay_port, "DEALER")] {
        let mut peer = greet(port);
        peer.read_exact(&mut [0; 64]).unwrap();
        let mut ready = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
        ready.push(kind.len() as u8);
        ready.extend(kind.as_bytes());
        peer.write_all(&[4, ready.len() as u8]).unwrap();
        peer.write_all(&ready).unwrap();
        let mut head = [0; 2];
        peer.read_exact(&mut head).unwrap();
        peer.read_exact(&mut vec![0; head[1] as usize]).unwrap();
        peer.write_all(b"\x04\x0b\x04PING\0\x64beat").unwrap();
        let mut pong = [0; 11];
        peer.read_exact(&mut pong).expect(kind);
        assert_eq!(&pong, b"\x04\x09\x04PONGbeat", "{kind}");
    }
}

/// Whether a peer that says nothing is still there is asked now and then: else a host that goes
/// without a word would keep its place for ever.
#[cfg(target_os = "linux")]
#[test]
fn e05_who_goes_without_a_word_is_found_out() {
    let publisher = Publisher::new("", 0, 0);
    let stats = publisher.stats();
    for port in [stats.port, stats.replay_port] {
        let _peer = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (ours, end) = (format!("0100007F:{port:04X}"), Instant::now() + WAIT);
        loop {
            // Of connections at that port, the timer that runs: 02 is this one.
            let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let mut lines = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let is_ours = |line: &Vec<&str>| line[1] == ours && line[3] == "01";
            if lines.any(|line| is_ours(&line) && line[5].starts_with("02:")) {
                break;
            }
            assert!(Instant::now() < end, "port {port}: nobody asks");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What is published before it is known what the subscriber wants leaves when the publisher ends.
#[test]
fn e05_a_publisher_that_ends_early_sends_what_it_has() {
    let is_heard = || {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        runtime().block_on(async {
            let mut socket = SubSocket::new();
            socket.bind(&format!("tcp://127.0.0.1:{port}")).await.unwrap();
            socket.subscribe("").await.unwrap();
            let publisher = Publisher::connected(port, 0);
            for _ in 0..3 {
                publisher.publish(b"early");
            }
            // What it subscribes to is known by then, or still waited for.
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(publisher);
            for number in 0..3_u64 {
                let heard = tokio::time::timeout(Duration::from_secs(2), socket.recv()).await;
                let Ok(message) = heard else { return false };
                assert_eq!(frames(message.unwrap())[1], number.to_be_bytes());
            }
            true
        })
    };
    // On a busy machine they may be strangers still. Not each time.
    assert!((0..10).any(|_| is_heard()), "what it had is lost");
}

/// Who ends a publisher waits a little for what its subscriber wants, and does not for ever.
#[test]
fn e05_a_publisher_that_ends_waits_a_little_for_what_is_wanted() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let is_heard = |says: &'static [u8]| {
        let publisher = Publisher::connected(listener.local_addr().unwrap().port(), 0);
        publisher.publish(b"early");
        let mut peer = let_in(&listener);
        let hears = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            // The publisher may be gone by then.
            let (_, mut heard) = (peer.write_all(says), Vec::new());
            let _ = peer.read_to_end(&mut heard);
            heard
        });
        drop(publisher);
        hears.join().unwrap().ends_with(b"early")
    };
    // On a busy machine it may be too late. Not each time.
    assert!((0..10).any(|_| is_heard(b"\x00\x01\x01")), "what it had is lost");
    assert!(!is_heard(b""), "nobody wanted it");
}

/// A name of both kinds of addresses is bound where subscribers look that know IPv4 alone.
#[test]
fn e03_a_name_is_bound_as_subscribers_look_for_it() {
    let config = rkv_net_publisher_config { replay_endpoint: null(), ..at(c"tcp://localhost:0") };
    let publisher = Publisher::create(&config);
    std::net::TcpStream::connect(("127.0.0.1", publisher.stats().port)).unwrap();
}

/// Who asks whether somebody is at a path does not wait for one that takes nobody in.
#[test]
fn e05_a_path_whose_owner_stands_still_is_taken() {
    use socket2::{Domain, SockAddr, Socket, Type};
    let path = format!("{}/still-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let address = SockAddr::unix(&path).unwrap();
    let made = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let owner = made();
    owner.bind(&address).unwrap();
    owner.listen(1).unwrap();
    let mut waiting = Vec::new();
    loop {
        let peer = made();
        peer.set_nonblocking(true).unwrap();
        if peer.connect(&address).is_err() {
            break;
        }
        waiting.push(peer);
    }
    let (tell, told) = std::sync::mpsc::channel();
    let endpoint = CString::new(format!("ipc://{path}")).unwrap();
    std::thread::spawn(move || {
        let config = rkv_net_publisher_config { replay_endpoint: null(), ..at(&endpoint) };
        let mut made = null_mut();
        // SAFETY: everything is there during the call.
        tell.send(unsafe { rkv_net_publisher_create(&config, &mut made) }).unwrap();
    });
    let status = told.recv_timeout(WAIT).expect("it waits for the owner");
    assert_eq!(status, rkv_net_status::Network);
    std::fs::remove_file(&path).unwrap();
}

/// A publisher whose path is another one's by now leaves it there.
#[test]
fn e05_the_path_of_another_publisher_stays() {
    let path = format!("{}/other-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let endpoint = CString::new(format!("ipc://{path}")).unwrap();
    let config = rkv_net_publisher_config { replay_endpoint: null(), ..at(&endpoint) };
    let first = Publisher::create(&config);
    std::fs::remove_file(&path).unwrap();
    let second = Publisher::create(&config);
    drop(first);
    assert!(std::fs::exists(&path).unwrap(), "it is the second one's");
    drop(second);
    assert!(!std::fs::exists(&path).unwrap());
}
