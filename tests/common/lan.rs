//! A network of the test's own with one host for each member, whose links can be cut one way.
//!
//! ```text
//! test thread ── br0 (10.77.0.254) ──┬── host 0 (10.77.0.1)
//!                                    └── host 1 (10.77.0.2) ...
//! ```
//!
//! A cut from A to B gives A a wrong hardware address for B: what A sends to B then goes nowhere,
//! without an error, as in a broken switch; what B sends to A arrives. The test's own traffic is never
//! cut. All of it goes with the test's thread and its children.

use super::{own_network, skip};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BRIDGE: &str = "br0";
/// A hardware address that nobody has.
const NOWHERE: &str = "02:00:00:00:00:01";
/// Longest time for a process to enter its namespace.
const LIMIT: Duration = Duration::from_secs(20);

/// Hosts on one bridge.
pub struct Lan {
    /// A process in the network of each host, which keeps it.
    holders: Vec<Child>,
}

impl Lan {
    /// A network with `hosts` hosts for the calling thread, or `None` with a visible word when the
    /// machine cannot (a failure when `CI` is set).
    pub fn create(hosts: usize) -> Option<Self> {
        if !own_network() {
            return None;
        }
        if !try_ip(&["link", "add", BRIDGE, "type", "bridge"]) {
            skip("the kernel makes no bridges");
            return None;
        }
        ip(&["addr", "add", "10.77.0.254/24", "dev", BRIDGE]);
        ip(&["link", "set", BRIDGE, "up"]);
        let mut lan = Self { holders: Vec::new() };
        for at in 0..hosts {
            // It ends with the thread that starts it, whatever becomes of the test.
            let words = ["--net", "setpriv", "--pdeathsig", "KILL", "sleep", "infinity"];
            let mut holder = Command::new("unshare");
            holder.args(words).stdin(Stdio::null());
            lan.holders.push(holder.spawn().expect("start unshare"));
            lan.wait_apart(at);
            let (pid, port) = (lan.holders[at].id().to_string(), format!("port{at}"));
            let peer = ["peer", "name", "eth0", "netns", &pid];
            ip(&[&["link", "add", &port, "type", "veth"][..], &peer].concat());
            ip(&["link", "set", &port, "master", BRIDGE, "up"]);
            lan.ip_in(at, &["addr", "add", &format!("{}/24", lan.address(at)), "dev", "eth0"]);
            lan.ip_in(at, &["link", "set", "lo", "up"]);
            lan.ip_in(at, &["link", "set", "eth0", "up"]);
        }
        Some(lan)
    }

    /// Address of a host.
    pub fn address(&self, at: usize) -> String {
        format!("10.77.0.{}", at + 1)
    }

    /// Words that start a program on a host.
    pub fn words(&self, at: usize) -> Vec<String> {
        vec!["nsenter".into(), format!("--net=/proc/{}/ns/net", self.holders[at].id()), "--".into()]
    }

    /// Nothing arrives any more from one host at the other; the way back stays.
    pub fn cut(&self, from: usize, to: usize) {
        let address = self.address(to);
        let entry = ["lladdr", NOWHERE, "dev", "eth0", "nud", "permanent"];
        self.ip_in(from, &[&["neigh", "replace", &address][..], &entry].concat());
    }

    /// Cuts both ways between every host of one group and every host of the other.
    pub fn part(&self, one: &[usize], other: &[usize]) {
        for (a, b) in one.iter().flat_map(|a| other.iter().map(move |b| (*a, *b))) {
            self.cut(a, b);
            self.cut(b, a);
        }
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        for from in 0..self.holders.len() {
            self.ip_in(from, &["neigh", "flush", "dev", "eth0", "nud", "permanent"]);
        }
    }

    fn ip_in(&self, at: usize, words: &[&str]) {
        let enter = self.words(at);
        let status = Command::new(&enter[0]).args(&enter[1..]).arg("ip").args(words).status();
        assert!(status.expect("run nsenter").success(), "host {at}: ip {words:?}");
    }

    /// Waits until the holder has left the test's network.
    fn wait_apart(&self, at: usize) {
        let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let (own, start) = (network("thread-self"), Instant::now());
        let holder = self.holders[at].id().to_string();
        while network(&holder).is_none_or(|network| Some(network) == own) {
            assert!(start.elapsed() < LIMIT, "unshare makes no network");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

fn try_ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).status().is_ok_and(|status| status.success())
}

fn ip(words: &[&str]) {
    assert!(try_ip(words), "ip {words:?}");
}
