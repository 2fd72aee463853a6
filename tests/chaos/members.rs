//! A cluster of processes, each on its host and its disk.

use crate::common::{Clients, Lan, Launch, LoopFs, Node};
use assay::proto::etcdserverpb::{HashKvRequest, RangeRequest, StatusRequest};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

/// Longest wait for what takes a healthy cluster a second or two, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(3);
/// Room for a member's log with its spares, the ballast, and the store.
const IMAGE_MIB: u64 = 1024;
const PORTS: [u16; 3] = [2379, 2380, 2381];

/// One cluster at a time: these tests are about faults of their own, not of their neighbours.
static ONE: Mutex<()> = Mutex::new(());

/// Where members keep their data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disks {
    /// The machine's own file system.
    Shared,
    /// An ext4 each, on a loop device.
    Own,
}

/// Running members. Dropping it kills them and removes everything.
pub(crate) struct Members {
    pub(crate) nodes: Vec<Node>,
    pub(crate) disks: Vec<LoopFs>,
    pub(crate) lan: Lan,
    home: TempDir,
    _one: MutexGuard<'static, ()>,
}

impl Members {
    /// Starts `count` members and waits until all serve; `more` adds each one's flags. `None` with a
    /// visible word when the machine cannot. To be called on the thread of the test, before there is
    /// a runtime.
    pub(crate) fn start(
        count: usize,
        disks: Disks,
        more: impl Fn(usize, Launch) -> Launch,
    ) -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let lan = Lan::create(count)?;
        let mut own = Vec::new();
        if disks == Disks::Own {
            for _ in 0..count {
                own.push(LoopFs::create(IMAGE_MIB)?);
            }
        }
        let home = tempfile::Builder::new().prefix("assay-chaos-").tempdir().expect("temp dir");
        let mut members = Self { nodes: Vec::new(), disks: own, lan, home, _one: one };
        let url = |at: usize| format!("m{at}=http://{}:{}", members.lan.address(at), PORTS[1]);
        let all = (0..count).map(url).collect::<Vec<_>>().join(",");
        for at in 0..count {
            let launch = Launch::assay()
                .host(&members.lan.address(at))
                .ports(PORTS)
                .data_dir(&members.data_dir(at))
                .wrapper(members.lan.words(at))
                .arg(format!("--name=m{at}"))
                .arg(format!("--initial-cluster={all}"));
            members.nodes.push(more(at, launch).spawn());
        }
        members.nodes.iter_mut().for_each(Node::wait_ready);
        Some(members)
    }

    fn data_dir(&self, at: usize) -> PathBuf {
        match self.disks.get(at) {
            Some(disk) => disk.path().join("data"),
            None => self.home.path().join(format!("m{at}")),
        }
    }

    /// Client URLs, by position.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::client_url).collect()
    }

    /// Own id, leader and term of a member, if it answers.
    pub(crate) async fn status(&self, at: usize) -> Option<(u64, u64, u64)> {
        let url = self.nodes[at].client_url();
        let status = async {
            let mut clients = Clients::try_connect(&url).await.ok()?;
            clients.maintenance.status(StatusRequest {}).await.ok()
        };
        let status = timeout(PATIENCE, status).await.ok()??.into_inner();
        let header = status.header.unwrap_or_default();
        Some((header.member_id, status.leader, status.raft_term))
    }

    /// Position of the leader that most members agree on, among `of`.
    pub(crate) async fn leader_of(&self, of: &[usize]) -> usize {
        let start = Instant::now();
        loop {
            let mut said = Vec::new();
            for at in of {
                if let Some((own, leader, term)) = self.status(*at).await {
                    said.push((term, own, leader, *at));
                }
            }
            for (term, own, leader, at) in &said {
                let with = said.iter().filter(|(t, _, l, _)| (t, l) == (term, leader)).count();
                if own == leader && with > self.nodes.len() / 2 {
                    return *at;
                }
            }
            assert!(start.elapsed() < SOON, "no leader among {of:?}: {said:x?}");
            sleep(POLL).await;
        }
    }

    /// As [`Members::leader_of`], of all.
    pub(crate) async fn leader(&self) -> usize {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        self.leader_of(&all).await
    }

    /// Waits until every member has applied what is there now, and compares their hashes of it.
    ///
    /// # Panics
    /// When they differ.
    pub(crate) async fn agree(&self) {
        let start = Instant::now();
        let revision = loop {
            assert!(start.elapsed() < SOON, "no linearizable read when all is well again");
            if let Some(revision) = self.revision(0).await {
                break revision;
            }
            sleep(POLL).await;
        };
        let mut hashes = Vec::new();
        for at in 0..self.nodes.len() {
            hashes.push(loop {
                if let Some(hash) = self.hash(at, revision).await {
                    break hash;
                }
                assert!(start.elapsed() < SOON, "member {at} does not catch up to {revision}");
                sleep(POLL).await;
            });
        }
        assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "members differ: {hashes:x?}");
    }

    async fn revision(&self, at: usize) -> Option<i64> {
        let mut clients = Clients::try_connect(&self.nodes[at].client_url()).await.ok()?;
        let range = RangeRequest { key: "any".into(), ..RangeRequest::default() };
        let answer = timeout(PATIENCE, clients.kv.range(range)).await.ok()?.ok()?;
        Some(answer.into_inner().header?.revision)
    }

    async fn hash(&self, at: usize, revision: i64) -> Option<(u32, i64)> {
        let mut clients = Clients::try_connect(&self.nodes[at].client_url()).await.ok()?;
        let answer = clients.maintenance.hash_kv(HashKvRequest { revision }).await.ok()?;
        let answer = answer.into_inner();
        (answer.header?.revision >= revision).then_some((answer.hash, answer.compact_revision))
    }
}

/// A runtime whose threads are in the networks and mounts of the calling thread.
pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// The seed of a run, said visibly.
pub(crate) fn seed() -> u64 {
    let seed = crate::common::number("SEED", rand::random());
    eprintln!("SEED={seed}");
    seed
}
