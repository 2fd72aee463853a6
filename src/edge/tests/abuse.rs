//! Clients that are broken, slow or hostile must not stop service.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn short() -> Limits {
    let short = Duration::from_millis(100);
    Limits { first_bytes: short, header: short, ..Limits::default() }
}

async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await.unwrap();
    bytes
}

#[tokio::test]
async fn silence_is_closed_and_service_goes_on() {
    let mut served = Served::start(short());
    let mut silent = served.connect().await;
    assert!(read_to_end(&mut silent).await.is_empty());
    assert_eq!(served.next_closed().await, Closed::FirstBytes);
    served.assert_serving().await;
}

#[tokio::test]
async fn a_half_preface_is_closed() {
    let mut served = Served::start(short());
    let mut half = served.connect().await;
    half.write_all(b"PRI * HT").await.unwrap();
    read_to_end(&mut half).await;
    assert_eq!(served.next_closed().await, Closed::FirstBytes);
}

#[tokio::test]
async fn a_slow_head_is_closed() {
    let mut served = Served::start(short());
    let mut slow = served.connect().await;
    slow.write_all(b"GET /ping HTTP/1.1\r\nHost:").await.unwrap();
    read_to_end(&mut slow).await;
    assert_eq!(served.next_closed().await, Closed::Failed);
    served.assert_serving().await;
}

#[tokio::test]
async fn http2_without_a_frame_is_closed() {
    let mut served = Served::start(short());
    let mut mute = served.connect().await;
    mute.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    read_to_end(&mut mute).await;
    assert_eq!(served.next_closed().await, Closed::Silent);
}

#[tokio::test]
async fn garbage_and_tls_and_resets_are_survived() {
    let mut served = Served::start(Limits::default());
    let mut random = 0x2545_f491_4f6c_dd1du64;
    for round in 0..200u32 {
        let mut stream = served.connect().await;
        let mut bytes = Vec::new();
        if round % 4 == 0 {
            bytes.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        }
        if round % 4 == 1 {
            bytes.push(0x16);
        }
        for _ in 0..round * 7 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes.push(random as u8);
        }
        // The server may close while we write.
        let _ = stream.write_all(&bytes).await;
        if round % 3 == 0 {
            nix::sys::socket::setsockopt(
                &stream,
                nix::sys::socket::sockopt::Linger,
                &libc::linger { l_onoff: 1, l_linger: 0 },
            )
            .unwrap();
        }
    }
    let mut tls = 0;
    for _ in 0..200 {
        tls += usize::from(served.next_closed().await == Closed::Tls);
    }
    assert!(tls >= 30, "{tls} TLS hellos were seen");
    served.assert_serving().await;
    assert_eq!(served.next_closed().await, Closed::Done);
    assert_eq!(served.edge.counters().open_total(), 0);
}

#[tokio::test]
async fn connections_above_the_cap_are_refused_until_one_goes() {
    let served = Served::start(Limits { connections: Caps::each(10), ..Limits::default() });
    let mut held = Vec::new();
    for _ in 0..10 {
        let (client, ended) = h2_client(served.connect().await).await;
        held.push((client.ready().await.unwrap(), ended));
    }
    let mut refused = served.connect().await;
    assert!(read_to_end(&mut refused).await.is_empty());
    assert_eq!(served.edge.counters().refused(), 1);
    let (client, mut ended) = held.pop().unwrap();
    drop(client);
    ended.recv().await.unwrap().unwrap();
    // The place is free when the server has seen the end, which has no event here.
    while served.edge.counters().open_total() == 10 {
        tokio::task::yield_now().await;
    }
    served.assert_serving().await;
}

#[tokio::test]
async fn many_idle_connections_do_not_stop_service() {
    let limit = super::super::raise_fd_limit().unwrap() as usize;
    // Both ends are in this process.
    let count = 10_000.min((limit - 500) / 2);
    let served = Served::start(Limits { connections: Caps::each(usize::MAX), ..Limits::default() });
    let mut idle = Vec::with_capacity(count);
    for n in 0..count {
        let mut stream = served.connect().await;
        if n % 2 == 0 {
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        }
        idle.push(stream);
    }
    while served.edge.counters().open_total() < count {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        served.assert_serving().await;
    }
}

const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// The frames in `bytes` as (type, payload).
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while bytes.len() >= 9 {
        let len = usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        frames.push((bytes[3], bytes[9..9 + len].to_vec()));
        bytes = &bytes[9 + len..];
    }
    assert!(bytes.is_empty(), "a frame was cut: {bytes:?}");
    frames
}

#[tokio::test]
async fn a_ping_flood_ends_with_goaway_too_many_pings() {
    let mut served = Served::start(Limits::default());
    let mut client = served.connect().await;
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    client.write_all(&SETTINGS).await.unwrap();
    for _ in 0..200 {
        if client.write_all(&PING).await.is_err() {
            break;
        }
    }
    let _ = client.shutdown().await;
    let seen = frames(&read_to_end(&mut client).await);
    let (kind, goaway) = seen.last().unwrap();
    assert_eq!(*kind, 7, "{seen:?}");
    assert_eq!(goaway[4..8], [0, 0, 0, 0xb], "ENHANCE_YOUR_CALM");
    assert_eq!(goaway[8..], *b"too_many_pings");
    assert_eq!(served.next_closed().await, Closed::TooManyPings);
    served.assert_serving().await;
}

#[tokio::test]
async fn three_pings_are_answered() {
    let served = Served::start(Limits::default());
    let mut client = served.connect().await;
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    client.write_all(&[&SETTINGS[..], &PING, &PING, &PING].concat()).await.unwrap();
    client.shutdown().await.unwrap();
    let seen = frames(&read_to_end(&mut client).await);
    assert_eq!(seen.iter().filter(|(kind, _)| *kind == 6).count(), 3, "{seen:?}");
}
