//! GET requests over one connection each.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Status and body of `GET path` on a loopback port, or the error of the connection.
pub(crate) fn try_get(port: u16, path: &str, accept: &str) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // HTTP/1.0: the body ends with the connection, whatever its length.
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end = end.ok_or_else(|| std::io::Error::other("no end of the headers"))?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other(format!("no status in {head}")))?;
    Ok((status, answer.split_off(end + 4)))
}

/// The body of `GET path` as text.
///
/// # Panics
/// When the answer is not 200.
pub(crate) fn get(port: u16, path: &str) -> String {
    let (status, body) = try_get(port, path, "*/*").expect("an answer");
    let body = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(status, 200, "GET {path}: {body}");
    body
}
