//! The machine on a real store on a simulated disk.

mod errors;
mod facts;
mod fences;
mod history;
mod levels;
mod model;
mod random;
mod requests;
mod running;
mod speed;

use super::*;
use crate::disk::{Disk, SimDisk};
use crate::proto::etcdserverpb as pb;
use crate::store::{self, Writer};
use pb::InternalRaftRequest;
use pb::request_op::Request;
use prost::Message;
use std::path::Path;

const PATH: &str = "/data/store.redb";

const OPTIONS: MachineOptions = MachineOptions {
    cluster_id: 1,
    member_id: 2,
    quota_bytes: None,
    lease_ttl_min: 2,
    compaction_batch: 1_000,
    feature_level: super::level::OWN,
};

/// An entry of the log: kind, data, context.
#[derive(Clone, Debug)]
struct Entry(u8, Bytes, Bytes);

/// One member without raft: the log is a list.
struct Node {
    disk: SimDisk,
    options: MachineOptions,
    log: Vec<Entry>,
    machine: Machine,
    writer: Writer,
    reader: Reader,
}

impl Node {
    fn new() -> Self {
        Self::with(OPTIONS)
    }

    fn with(options: MachineOptions) -> Self {
        let disk = SimDisk::new();
        disk.create_dir(Path::new("/data")).unwrap();
        let (machine, writer) = Self::open(&disk, options);
        Self { reader: machine.reader(), disk, options, log: Vec::new(), machine, writer }
    }

    fn open(disk: &SimDisk, options: MachineOptions) -> (Machine, Writer) {
        Self::try_open(disk, options).unwrap()
    }

    fn try_open(
        disk: &SimDisk,
        options: MachineOptions,
    ) -> Result<(Machine, Writer), MachineError> {
        let open = store::Options { cache_bytes: 1 << 20, ..store::Options::default() };
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let (writer, shared, loaded) = store::open(disk, Path::new(PATH), &open).unwrap();
        Machine::restore(loaded, shared, options, &mut |_, _| {}).map(|machine| (machine, writer))
    }

    /// Appends an entry to the log and applies it, without publishing.
    fn entry(&mut self, entry: Entry) -> Outcome {
        self.log.push(entry);
        self.replay(self.log.len())
    }

    fn replay(&mut self, index: usize) -> Outcome {
        let Entry(kind, data, context) = &self.log[index - 1];
        self.machine.apply(Applied {
            index: index as u64,
            term: 1,
            kind: *kind,
            data,
            context,
            conf_state: None,
        })
    }

    /// Applies and publishes a command.
    fn run(&mut self, mut request: InternalRaftRequest) -> Outcome {
        let id = self.log.len() as u64 + 1_000;
        request.header = Some(pb::RequestHeader { id, ..Default::default() });
        let outcome = self.entry(Entry(0, request.encode_to_vec().into(), Bytes::new()));
        assert_eq!(outcome.request_id, id);
        self.machine.publish();
        outcome
    }

    fn ok(&mut self, request: InternalRaftRequest) -> Answer {
        self.run(request).answer.unwrap()
    }

    fn err(&mut self, request: InternalRaftRequest) -> AnswerError {
        let before = (self.machine.revision, self.reader.sizes());
        let outcome = self.run(request);
        assert!(outcome.events.is_none() && outcome.lease.is_empty());
        assert_eq!(
            before,
            (self.machine.revision, self.reader.sizes()),
            "an error changed something"
        );
        outcome.answer.unwrap_err()
    }

    /// Makes everything durable.
    fn commit(&mut self) {
        if let Some(batch) = self.machine.take_batch() {
            self.writer.commit(batch).unwrap();
        }
    }

    /// Finishes all compactions.
    fn drain(&mut self) {
        while self.machine.compaction_step() {
            if self.machine.open_bytes() > 0 {
                self.commit();
            }
        }
    }

    /// The process ends and starts again; what was not committed is replayed from the log. The
    /// outcomes of what is replayed are returned.
    fn restart(&mut self) -> Vec<Outcome> {
        let old = std::mem::replace(self, Self::with(self.options));
        let Node { disk, options, log, machine, writer, reader } = old;
        drop((machine, writer, reader));
        let (machine, writer) = Self::open(&disk, options);
        let reader = machine.reader();
        *self = Self { disk, options, log, machine, writer, reader };
        let applied = self.machine.applied().0 as usize;
        let outcomes = (applied + 1..=self.log.len()).map(|index| self.replay(index)).collect();
        self.machine.publish();
        outcomes
    }

    /// The process ends, and another version of the program does not start.
    fn restart_error(self, options: MachineOptions) -> MachineError {
        let Node { disk, machine, writer, reader, .. } = self;
        drop((machine, writer, reader));
        match Self::try_open(&disk, options) {
            Ok(_) => panic!("it started"),
            Err(error) => error,
        }
    }

    fn get(&self, key: &str) -> Option<pb_kv::KeyValue> {
        let row = self.reader.row_at(key.as_bytes(), self.reader.revision()).unwrap()?;
        Some(pb_kv::KeyValue::decode(row).unwrap())
    }
}

use crate::proto::mvccpb as pb_kv;
pub(super) use requests::*;
