//! Texts of addresses that cannot be bound.

use super::*;

#[test]
fn a_taken_port_names_flag_address_and_way_out() {
    let first = bind(&spec("http://127.0.0.1:0")).unwrap();
    let url = format!("http://{}", first.local_addr().unwrap());
    let error = bind(&spec(&url)).unwrap_err();
    assert!(error.is_in_use());
    let text = error.to_string();
    assert!(text.starts_with(&format!("--listen-client-urls: {url} is already in use")), "{text}");
    assert!(text.contains("ss -ltnp") && text.contains("another address"), "{text}");
}

#[test]
fn an_address_of_another_machine_is_named() {
    let text = bind(&spec("http://192.0.2.1:0")).unwrap_err().to_string();
    assert!(text.contains("no interface of this machine"), "{text}");
}

#[test]
fn urls_are_parsed_or_explained() {
    let ok = |url: &str, address: Address, tls: bool| {
        assert_eq!(spec(url).parse().unwrap(), (address, tls), "{url}");
    };
    ok("http://127.0.0.1:2379", Address::Tcp("127.0.0.1:2379".into()), false);
    ok("https://[::1]:2379/", Address::Tcp("[::1]:2379".into()), true);
    ok("http://:80", Address::Tcp("0.0.0.0:80".into()), false);
    ok("unix:///run/a.sock", Address::Unix("/run/a.sock".into()), false);
    ok("unixs://relative:1", Address::Unix("relative:1".into()), true);
    for url in ["127.0.0.1:1", "http://a", "http://a:b", "http://a:1/x", "ftp://a:1", "unix://"] {
        let text = spec(url).parse().unwrap_err().to_string();
        assert!(text.contains(url) && text.starts_with("--listen-client-urls"), "{text}");
    }
}

#[test]
fn a_reserved_port_is_refused_to_clients_and_to_a_second_listener_of_this_start() {
    let first = bind(&spec("http://127.0.0.1:0")).unwrap();
    let port = first.local_addr().unwrap().port();
    drop(first);
    let url = format!("http://127.0.0.1:{port}");
    let reserved = reserve(&spec(&url), &[]).unwrap();
    // The kernel answers for a closed port: nobody waits for a node that may never serve.
    let refused = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let taken = [reserved];
    for again in [url.clone(), format!("http://:{port}"), format!("http://localhost:{port}")] {
        assert!(reserve(&spec(&again), &taken).unwrap_err().is_in_use(), "{again}");
    }
    let [reserved] = taken;
    let bound = reserved.listen().unwrap();
    std::net::TcpStream::connect(bound.local_addr().unwrap()).unwrap();
    assert!(reserve(&spec(&url), &[]).unwrap_err().is_in_use());
}

#[test]
fn a_reserved_unix_socket_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let url = format!("unix://{}", path.display());
    let reserved = reserve(&spec(&url), &[]).unwrap();
    assert!(!path.exists());
    let bound = reserved.listen().unwrap();
    assert!(reserve(&spec(&url), &[]).unwrap_err().is_in_use());
    drop(bound);
    assert!(!path.exists());
    let nowhere = format!("unix://{}/no/socket", dir.path().display());
    let text = reserve(&spec(&nowhere), &[]).unwrap_err().to_string();
    assert!(text.starts_with("--listen-client-urls: cannot listen on unix://"), "{text}");
}

#[test]
fn processes_share_an_address_only_if_all_ask_for_it() {
    let shared = Spec { reuse_port: true, ..spec("http://127.0.0.1:0") };
    let first = bind(&shared).unwrap();
    let url = format!("http://{}", first.local_addr().unwrap());
    assert!(bind(&spec(&url)).unwrap_err().is_in_use());
    bind(&Spec { url, ..shared }).unwrap();
}

#[test]
fn the_caps_leave_descriptors_for_files_peers_and_scrapes() {
    use crate::edge::{Caps, FD_LIMIT_LEAST};
    for (fd_limit, caps) in [
        (20_000, [18_976, 256, 128]),
        (2_048, [1_024, 256, 128]),
        (1_024, [512, 128, 64]),
        (FD_LIMIT_LEAST, [128, 32, 16]),
    ] {
        let of = Caps::of(fd_limit);
        assert_eq!(Port::ALL.map(|port| of.cap(port)), caps, "{fd_limit}");
        let left = fd_limit - caps.iter().sum::<usize>() as u64;
        assert!(left >= 64, "{left} descriptors for files of {fd_limit}");
    }
}
