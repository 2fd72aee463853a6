//! Plain HTTP/1 requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// `GET`s a path of `http://HOST:PORT`; status code and body, `None` when nobody answers.
pub fn http_get(url: &str, path: &str) -> Option<(u16, String)> {
    request("GET", url, path, "")
}

/// `POST`s nothing to a path, with further header lines that each end in `\r\n`; as [`http_get`].
pub fn http_post(url: &str, path: &str, headers: &str) -> Option<(u16, String)> {
    request("POST", url, path, &format!("content-length: 0\r\n{headers}"))
}

fn request(method: &str, url: &str, path: &str, headers: &str) -> Option<(u16, String)> {
    let host = url.strip_prefix("http://")?;
    let mut stream = TcpStream::connect(host).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.split_whitespace().nth(1)?.parse().ok()?;
    Some((code, body.to_string()))
}
