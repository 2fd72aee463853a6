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
fn the_cap_leaves_descriptors_for_files() {
    use crate::edge::connection_cap;
    assert_eq!(connection_cap(20_000), 18_976);
    assert_eq!(connection_cap(1_024), 512);
}
