//! The end of service.

use super::*;

#[tokio::test]
async fn idle_connections_end_with_goaway_and_open_streams_are_cut_at_the_deadline() {
    let served = Served::start(Limits::default());
    let (mut idle, mut idle_ended) = h2_client(served.connect().await).await;
    let (response, _) = idle.send_request(grpc("/a.B/C"), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    let (mut busy, mut busy_ended) = h2_client(served.connect().await).await;
    let (hanging, _) = busy.send_request(grpc("/a.B/Hang"), true).unwrap();
    let mut hanging = hanging.await.unwrap().into_body();
    let edge = served.edge;
    let drained =
        tokio::task::spawn_blocking(move || edge.drain(Duration::from_millis(300))).await.unwrap();
    assert_eq!((drained.open, drained.cut), (2, 1));
    // The idle one ended in order.
    idle_ended.recv().await.unwrap().unwrap();
    // The other one was told, then cut.
    assert!(hanging.data().await.is_none_or(|data| data.is_err()));
    busy_ended.recv().await.unwrap().ok();
    assert!(TcpStream::connect(served.address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn a_call_that_ends_in_time_is_not_cut() {
    let served = Served::start(Limits::default());
    let (mut busy, mut ended) = h2_client(served.connect().await).await;
    let (hanging, _) = busy.send_request(grpc("/a.B/Hang"), true).unwrap();
    let hanging = hanging.await.unwrap().into_body();
    let edge = served.edge;
    let drain = tokio::task::spawn_blocking(move || edge.drain(SOON));
    // The client learns of the drain and lets go.
    while busy.clone().ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
    drop(hanging);
    assert_eq!(drain.await.unwrap().cut, 0);
    drop(busy);
    ended.recv().await.unwrap().ok();
}
