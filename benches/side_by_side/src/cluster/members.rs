//! Three members of one cluster on this machine.

use crate::closed_loop::runtime;
use crate::connection::{Method, call};
use crate::cpu::Cpu;
use crate::error::{Error, Result};
use crate::messages::{self, Status};
use crate::server::{Kind, Programs, Server, free_ports, settle};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Members of a cluster: the smallest number that survives a death.
const MEMBERS: usize = 3;
/// Longest wait for a leader that a majority agrees on.
const LEADER_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for a member's word about itself.
const STATUS_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait until all members have applied the same, without load.
const AGREE_LIMIT: Duration = Duration::from_secs(60);
/// How often members are asked.
const POLL: Duration = Duration::from_millis(20);
/// Running members; dropping it ends them and removes their files.
pub(crate) struct Cluster {
    pub(crate) kind: Kind,
    pub(crate) members: Vec<Server>,
}

impl Cluster {
    /// Starts members on fresh files below `dir` and waits until all of them serve.
    pub(crate) fn start(kind: Kind, programs: &Programs, dir: &Path) -> Result<Self> {
        let ports = free_ports(MEMBERS)?;
        let founder =
            |(at, [_, peer, _]): (usize, &[SocketAddr; 3])| format!("m{at}=http://{peer}");
        let founders = ports.iter().enumerate().map(founder).collect::<Vec<_>>().join(",");
        let mut members = Vec::new();
        for (at, ports) in ports.into_iter().enumerate() {
            let name = format!("m{at}");
            members.push(Server::launch(kind, programs, dir, &name, ports, &founders)?);
        }
        let mut cluster = Self { kind, members };
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// Waits until every member answers a linearizable read.
    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(Server::wait_ready)
    }

    /// Client addresses of all members.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// CPU clocks of all running members.
    pub(crate) fn cpus(&self) -> Vec<Cpu> {
        self.members.iter().filter_map(|member| member.cpu().ok()).collect()
    }

    /// What a member says about itself; `None` if it does not answer.
    pub(crate) fn status(&self, at: usize) -> Result<Option<Status>> {
        let answer = call(self.members[at].address, Method::Status, b"");
        let answer = async { tokio::time::timeout(STATUS_LIMIT, answer).await };
        let answer = runtime()?.block_on(answer);
        Ok(answer.ok().and_then(std::result::Result::ok).map(|answer| messages::status(&answer)))
    }

    /// Position of the leader that a majority agrees on; waits for one.
    pub(crate) fn leader(&self) -> Result<usize> {
        let start = Instant::now();
        loop {
            let mut said = Vec::new();
            for at in 0..self.members.len() {
                said.extend(self.status(at)?.map(|status| (at, status)));
            }
            for (at, own) in &said {
                let with = said.iter().filter(|(_, other)| other.leader == own.member).count();
                if own.leader == own.member && with > self.members.len() / 2 {
                    return Ok(*at);
                }
            }
            if start.elapsed() > LEADER_LIMIT {
                return Err(Error::Answer(format!("no leader: {said:?}")));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until all members have applied the same, and compares their hashes of all keys.
    pub(crate) fn agree(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut applied = Vec::new();
            for at in 0..self.members.len() {
                applied.extend(self.status(at)?.map(|status| status.applied));
            }
            let all = applied.len() == self.members.len();
            if all && applied.windows(2).all(|pair| pair[0] == pair[1]) {
                break;
            }
            if start.elapsed() > AGREE_LIMIT {
                return Err(Error::Answer(format!("members stay apart: applied {applied:?}")));
            }
            std::thread::sleep(POLL);
        }
        let mut hashes = Vec::new();
        for member in &self.members {
            let answer = runtime()?.block_on(call(member.address, Method::HashKv, b""))?;
            hashes.push(messages::hash(&answer));
        }
        if hashes.windows(2).any(|pair| pair[0] != pair[1]) || hashes.contains(&None) {
            return Err(Error::Answer(format!("members hold different keys: {hashes:x?}")));
        }
        Ok(())
    }

    /// Waits until all members have done what they do once after a start; returns how many bytes
    /// they wrote meanwhile.
    pub(crate) fn settle(&self) -> Result<u64> {
        settle(|| Ok(self.written_bytes()))
    }

    /// By those that run.
    fn written_bytes(&self) -> u64 {
        self.members.iter().filter_map(|member| member.written_bytes().ok()).sum()
    }
}
