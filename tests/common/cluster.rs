//! Several members of one cluster, each a process of its own on loopback ports.

use super::{Clients, Launch, Node, free_port};
use assay::proto::etcdserverpb::StatusRequest;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time that a cluster gets for what takes it a second or two.
pub const SOON: Duration = Duration::from_secs(60);
/// How often members are asked for their state.
const POLL: Duration = Duration::from_millis(20);

/// A member before it is started.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Its name.
    pub name: String,
    /// Its ports for clients, peers and metrics.
    pub ports: [u16; 3],
    /// `http` or `https` for peers.
    pub scheme: &'static str,
}

impl Seat {
    /// A seat on free ports.
    pub fn free(name: &str) -> Self {
        let ports = [free_port(), free_port(), free_port()];
        Self { name: name.to_string(), ports, scheme: "http" }
    }

    /// `http://127.0.0.1:PORT` for peers.
    pub fn peer_url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[1])
    }
}

/// Running members. Dropping it kills them.
pub struct Cluster {
    /// Where each member is, by position.
    pub seats: Vec<Seat>,
    /// The processes, by position.
    pub nodes: Vec<Node>,
    home: TempDir,
    launch: Box<dyn Fn(Launch) -> Launch + Send + Sync>,
}

impl Cluster {
    /// Starts `count` members of a new cluster and waits until all serve.
    pub fn start(count: usize) -> Self {
        Self::start_with(count, |launch| launch)
    }

    /// As [`Cluster::start`], with more flags for everybody.
    pub fn start_with(
        count: usize,
        launch: impl Fn(Launch) -> Launch + Send + Sync + 'static,
    ) -> Self {
        let mut cluster = Self::planned(count, "http", launch);
        cluster.spawn();
        for node in &mut cluster.nodes {
            node.wait_ready();
        }
        cluster
    }

    /// Seats of a new cluster, nobody started.
    pub fn planned(
        count: usize,
        scheme: &'static str,
        launch: impl Fn(Launch) -> Launch + Send + Sync + 'static,
    ) -> Self {
        let home = tempfile::Builder::new().prefix("assay-cluster-").tempdir().expect("temp dir");
        let seat = |ix| Seat { scheme, ..Seat::free(&format!("m{ix}")) };
        let seats: Vec<Seat> = (0..count).map(seat).collect();
        Self { nodes: Vec::new(), home, launch: Box::new(launch), seats }
    }

    /// Starts everybody and waits for nobody.
    pub fn spawn(&mut self) {
        let named = self.initial_cluster(&self.seats);
        for seat in &self.seats {
            self.nodes.push(self.launch(seat, &named, "new").spawn());
        }
    }

    /// The value of `--initial-cluster` for these seats.
    pub fn initial_cluster(&self, seats: &[Seat]) -> String {
        let named = |seat: &Seat| format!("{}={}", seat.name, seat.peer_url());
        seats.iter().map(named).collect::<Vec<_>>().join(",")
    }

    /// Flags of a member, with a data directory that outlives it.
    pub fn launch(&self, seat: &Seat, named: &str, state: &str) -> Launch {
        let dir = self.home.path().join(&seat.name);
        let launch = Launch::assay()
            .ports(seat.ports)
            .data_dir(&dir)
            .arg(format!("--name={}", seat.name))
            .arg(format!("--initial-cluster={named}"))
            .arg(format!("--initial-cluster-state={state}"));
        (self.launch)(launch)
    }

    /// The data directory of a seat.
    pub fn data_dir(&self, seat: &Seat) -> std::path::PathBuf {
        self.home.path().join(&seat.name)
    }

    /// Where the cluster keeps its files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// What every member logged.
    pub fn logs(&self) -> String {
        self.nodes.iter().map(|node| format!("--- {}\n{}", node.pid(), node.log())).collect()
    }

    /// Client URLs of all members, as etcdctl takes them.
    pub fn endpoints(&self) -> String {
        self.nodes.iter().map(Node::client_url).collect::<Vec<_>>().join(",")
    }

    /// Clients of one member over a new connection.
    pub async fn clients(&self, at: usize) -> Clients {
        self.nodes[at].clients().await
    }

    /// Position of the leader, once all running members agree on one.
    pub async fn leader(&mut self) -> usize {
        self.leader_other_than(0).await
    }

    /// As [`Cluster::leader`], not counting the member with this id.
    pub async fn leader_other_than(&mut self, not: u64) -> usize {
        let start = Instant::now();
        loop {
            let mut leaders = BTreeSet::new();
            let mut at = None;
            for ix in 0..self.nodes.len() {
                if !self.nodes[ix].is_running() {
                    continue;
                }
                let Some((own, leader)) = self.status(ix).await else {
                    leaders.insert(0);
                    continue;
                };
                leaders.insert(leader);
                if own == leader {
                    at = Some(ix);
                }
            }
            match (leaders.len(), at) {
                (1, Some(at)) if !leaders.contains(&not) => return at,
                _ => assert!(start.elapsed() < SOON, "no agreement on a leader: {leaders:x?}"),
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Own id and leader of a member, if it answers.
    pub async fn status(&self, at: usize) -> Option<(u64, u64)> {
        let mut clients = Clients::try_connect(&self.nodes[at].client_url()).await.ok()?;
        let status = clients.maintenance.status(StatusRequest {}).await.ok()?.into_inner();
        Some((status.header.map_or(0, |header| header.member_id), status.leader))
    }
}
