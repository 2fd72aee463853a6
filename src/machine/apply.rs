//! Applying entries: one function of the state and the entry, in memory only.

use super::command::{AlarmAction, Command, Decoded, LEASE_COST, MemberOp, decode, decode_change};
use super::restore::{CLUSTER_VERSION, DOWNGRADE, FEATURE_LEVEL};
use super::{
    Alarm, AlarmKind, Answer, AnswerError, Applied, BATCH_ROW_BYTES, Downgrade, KIND_CHANGE,
    LeaseChange, Machine, Outcome,
};
use crate::lease::LeaseError;
use crate::mvcc::{Changes, EventBatch, EventKind, Put, Txn, Write};
use crate::store::{Shared, Table, row_footprint};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;

type Result<T> = std::result::Result<T, AnswerError>;

impl Machine {
    /// Applies a committed entry. Total: every entry gets an outcome, and with equal entries every
    /// member comes to an equal state. Readers see nothing of it before [`Machine::publish`].
    pub fn apply(&mut self, entry: Applied<'_>) -> Outcome {
        let mut outcome = Outcome {
            request_id: 0,
            answer: Ok(Answer::Done { revision: self.revision }),
            events: None,
            lease: Vec::new(),
            op: "unknown",
            membership_changed: false,
            compacted: false,
            over_quota: false,
        };
        let before = (self.batch.rows.len(), self.batch.small.len());
        outcome.answer = match self.broken.clone() {
            Some(error) => Err(error),
            None => self.entry(&entry, &mut outcome),
        };
        match &outcome.answer {
            Err(error) if error.is_fatal() => self.broken = Some(error.clone()),
            _ => {
                self.applied = (entry.index, entry.term);
                let conf = entry.conf_state.is_some();
                if conf {
                    self.batch.conf_state = entry.conf_state;
                }
                self.run_hash(before, conf, outcome.compacted);
            }
        }
        outcome
    }

    fn entry(&mut self, entry: &Applied<'_>, outcome: &mut Outcome) -> Result<Answer> {
        if entry.kind == KIND_CHANGE {
            let (request_id, op) = decode_change(entry.data, entry.context)?;
            (outcome.request_id, outcome.op) = (request_id, "ConfChange");
            return self.member_change(op, outcome);
        }
        let Decoded { request_id, command } = decode(entry.data, self.options.feature_level)?;
        (outcome.request_id, outcome.op) = (request_id, command.op());
        self.blocked(&command)?;
        let cost = command.cost();
        let quota = self.options.quota_bytes;
        outcome.over_quota =
            cost > 0 && quota.is_some_and(|quota| self.sizes.total_bytes + cost >= quota);
        let answer = self.command(command, outcome);
        outcome.over_quota &= answer.is_ok();
        answer
    }

    /// What active alarms forbid.
    fn blocked(&self, command: &Command) -> Result<()> {
        let changes_keys = matches!(
            command,
            Command::Put(_)
                | Command::DeleteRange(_)
                | Command::Txn(_)
                | Command::Compact { .. }
                | Command::LeaseGrant { .. }
                | Command::LeaseRevoke { .. }
        );
        if changes_keys && self.alarms.any(AlarmKind::Corrupt) {
            return Err(AnswerError::Corrupt);
        }
        if command.cost() > 0 && self.alarms.any(AlarmKind::NoSpace) {
            return Err(AnswerError::NoSpace);
        }
        Ok(())
    }

    fn command(&mut self, command: Command, outcome: &mut Outcome) -> Result<Answer> {
        match command {
            Command::Put(put) => self.put(&put, outcome),
            Command::DeleteRange(delete) => {
                let mut write = self.write();
                let (deleted, prev_kvs) = write.delete(&delete)?;
                let changes = write.finish();
                self.commit(changes, outcome);
                Ok(Answer::DeleteRange { revision: self.revision, deleted, prev_kvs })
            }
            Command::Txn(txn) => self.txn(&txn, outcome),
            Command::Compact { revision } => self.compact(revision, outcome),
            Command::LeaseGrant { id, ttl } => self.lease_grant(id, ttl, outcome),
            Command::LeaseRevoke { id } => self.lease_revoke(id, outcome),
            Command::LeaseCheckpoint(checkpoints) => {
                for (id, remaining) in checkpoints {
                    self.lease_checkpoint(id, remaining, outcome);
                }
                Ok(self.done())
            }
            Command::Alarm { action, member, kind } => Ok(self.alarm(action, member, kind)),
            Command::ClusterVersion(version) => {
                let value = Bytes::copy_from_slice(version.as_bytes());
                self.cluster_version = Some(version);
                self.store_table(Table::Cluster, CLUSTER_VERSION, value);
                Ok(self.done())
            }
            Command::Downgrade { enabled, version } => {
                self.downgrade = Downgrade { target_version: version, enabled };
                // A text and a flag always have a JSON form.
                let json = serde_json::to_vec(&self.downgrade).unwrap_or_default();
                self.store_table(Table::Cluster, DOWNGRADE, json.into());
                Ok(self.done())
            }
            Command::MemberAttributes { id, name, client_urls } => {
                let rows = Arc::make_mut(&mut self.members).change(id, |member| {
                    member.name = name;
                    member.client_urls = client_urls;
                });
                // The member may have been removed while it published itself; etcd ignores that.
                self.members_changed(rows.unwrap_or_default(), outcome);
                Ok(self.done())
            }
            Command::MemberUpdate { id, peer_urls } => {
                self.member_change(MemberOp::Update { id, peer_urls }, outcome)
            }
            Command::FeatureLevel(level) => {
                if level > self.feature_level {
                    self.feature_level = level;
                    self.store_table(Table::Cluster, FEATURE_LEVEL, level.to_string().into());
                }
                Ok(self.done())
            }
            Command::Nothing => Ok(self.done()),
        }
    }

    fn done(&self) -> Answer {
        Answer::Done { revision: self.revision }
    }

    fn write(&self) -> Write<'_, Shared> {
        let write = Write::new(&self.index, &self.store, self.revision, self.compacted);
        write.charged_by(row_footprint)
    }

    fn put(&mut self, put: &Put, outcome: &mut Outcome) -> Result<Answer> {
        let leases = Arc::clone(&self.leases);
        let mut write = self.write();
        let prev_kv = write.put_checked(put, &|id| leases.read().contains(id))?;
        let changes = write.finish();
        self.commit(changes, outcome);
        Ok(Answer::Put { revision: self.revision, prev_kv })
    }

    fn txn(&mut self, txn: &Txn, outcome: &mut Outcome) -> Result<Answer> {
        let leases = Arc::clone(&self.leases);
        let mut write = self.write();
        let answer = write.txn(txn, &|id| leases.read().contains(id))?;
        let changes = write.finish();
        self.commit(changes, outcome);
        Ok(Answer::Txn(answer))
    }

    /// Takes in the changes of one revision: rows, counters, lease links, events.
    fn commit(&mut self, changes: Changes, outcome: &mut Outcome) {
        let Changes { rows, events, charged, live, keys } = changes;
        if rows.is_empty() {
            return;
        }
        self.revision += 1;
        self.store.pending().append(&rows);
        self.batch.bytes +=
            rows.iter().map(|(_, _, row)| BATCH_ROW_BYTES + row.len()).sum::<usize>();
        self.batch.rows.extend(rows);
        self.sizes.total_bytes += charged;
        self.sizes.in_use_bytes = self.sizes.in_use_bytes.saturating_add_signed(live);
        self.sizes.keys = self.sizes.keys.saturating_add_signed(keys);
        let mut leases = self.leases.write();
        for event in &events {
            match event.kind {
                // Existence was checked; should it be gone all the same, the key has no lease.
                EventKind::Put if leases.put(&event.key, event.lease).is_ok() => {}
                EventKind::Put | EventKind::Delete => leases.delete(&event.key),
            }
        }
        drop(leases);
        outcome.events = Some(Arc::new(EventBatch { revision: self.revision, events }));
    }

    fn compact(&mut self, revision: i64, outcome: &mut Outcome) -> Result<Answer> {
        if revision <= self.compacted {
            return Err(AnswerError::Compacted);
        }
        if revision > self.revision {
            return Err(AnswerError::FutureRevision);
        }
        self.schedule_compaction(revision);
        outcome.compacted = true;
        Ok(Answer::Compact { revision: self.revision })
    }

    fn lease_grant(&mut self, id: i64, ttl: i64, outcome: &mut Outcome) -> Result<Answer> {
        // The proposer names the lease; 0 would be "any", which only it can choose.
        let minimum = self.options.lease_ttl_min;
        let granted = self.leases.write().grant(id, ttl.max(minimum));
        let record = granted.map_err(|error| match error {
            LeaseError::NotFound(_) => AnswerError::LeaseNotFound,
            LeaseError::Exists(_) => AnswerError::LeaseExists,
            LeaseError::TtlTooLarge(_) => AnswerError::LeaseTtlTooLarge,
        })?;
        self.sizes.total_bytes += LEASE_COST;
        self.sizes.in_use_bytes += LEASE_COST;
        self.store_lease(id, Some(record.encode_to_vec().into()));
        outcome.lease.push(LeaseChange::Granted { id, ttl: record.ttl });
        Ok(Answer::LeaseGrant { revision: self.revision, id, ttl: record.ttl })
    }

    fn lease_revoke(&mut self, id: i64, outcome: &mut Outcome) -> Result<Answer> {
        let keys = self.leases.write().revoke(id).map_err(|_| AnswerError::LeaseNotFound)?;
        let mut write = self.write();
        write.delete_keys(keys.iter().map(|key| &**key));
        let changes = write.finish();
        self.commit(changes, outcome);
        self.sizes.total_bytes = self.sizes.total_bytes.saturating_sub(LEASE_COST);
        self.sizes.in_use_bytes = self.sizes.in_use_bytes.saturating_sub(LEASE_COST);
        self.store_lease(id, None);
        outcome.lease.push(LeaseChange::Revoked { id });
        Ok(Answer::LeaseRevoke { revision: self.revision })
    }

    fn lease_checkpoint(&mut self, id: i64, remaining: i64, outcome: &mut Outcome) {
        let Some(record) = self.leases.write().checkpoint(id, remaining) else { return };
        self.store_lease(id, Some(record.encode_to_vec().into()));
        outcome.lease.push(LeaseChange::Checkpointed { id, remaining: record.remaining });
    }

    fn store_lease(&mut self, id: i64, record: Option<Bytes>) {
        self.store_small(Table::Leases, Bytes::copy_from_slice(&id.to_be_bytes()), record);
    }

    fn alarm(&mut self, action: AlarmAction, member: u64, kind: Option<AlarmKind>) -> Answer {
        let alarm = kind.map(|kind| Alarm { member, kind });
        let alarms = match (action, alarm) {
            (AlarmAction::List, _) => self.listed(kind),
            (_, None) => Vec::new(),
            (AlarmAction::Raise, Some(alarm)) => {
                if self.alarms.raise(alarm) {
                    self.alarm_changed(alarm, Some(Bytes::new()));
                }
                vec![alarm]
            }
            (AlarmAction::Clear, Some(alarm)) => {
                let cleared = self.alarms.clear(alarm);
                if cleared {
                    self.alarm_changed(alarm, None);
                }
                let ended = alarm.kind == AlarmKind::Corrupt && self.unfence(alarm.member);
                if cleared || ended { vec![alarm] } else { Vec::new() }
            }
            (AlarmAction::Fence, Some(alarm)) => self.fence(alarm.member),
        };
        Answer::Alarm { revision: self.revision, alarms }
    }

    fn alarm_changed(&mut self, alarm: Alarm, value: Option<Bytes>) {
        self.tables_changed = true;
        self.store_small(Table::Alarms, alarm.to_key(), value);
    }

    pub(super) fn store_table(&mut self, table: Table, key: &'static [u8], value: Bytes) {
        self.tables_changed = true;
        self.store_small(table, Bytes::from_static(key), Some(value));
    }

    fn member_change(&mut self, op: MemberOp, outcome: &mut Outcome) -> Result<Answer> {
        if let MemberOp::Remove(id) = op {
            self.unfence(id);
        }
        let rows = Arc::make_mut(&mut self.members).apply(op);
        self.members_changed(rows.map_err(|()| AnswerError::MemberNotFound)?, outcome);
        Ok(Answer::Members(Arc::clone(&self.members)))
    }

    fn members_changed(&mut self, rows: Vec<super::members::Row>, outcome: &mut Outcome) {
        for (table, key, value) in rows {
            self.tables_changed = true;
            outcome.membership_changed = true;
            self.store_small(table, key, value);
        }
    }
}
