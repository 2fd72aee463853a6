//! Answers as lists of named fields: easy to compare, easy to read when they differ.
//!
//! Left out: cluster, member and term of headers, and what etcd itself leaves open (the order of
//! rows that compare equal under a sort, the chunks of a stream).

use crate::common::key_value;
use assay::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use assay::proto::etcdserverpb::{
    DeleteRangeResponse, PutResponse, RangeRequest, RangeResponse, RequestOp, ResponseHeader,
    ResponseOp, TxnRequest, TxnResponse, request_op, response_op,
};
use assay::proto::mvccpb::KeyValue;
use bytes::Bytes;
use std::fmt::{self, Display};
use tonic::{Code, Status};

/// Bytes shown in full up to this length, beyond it by length and checksum.
const SHOWN: usize = 48;

/// One answer: an error, or its fields in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) error: Option<(Code, String)>,
    fields: Vec<(String, String)>,
}

impl Answer {
    /// Adds a field.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: impl Display) {
        self.fields.push((name.into(), value.to_string()));
    }

    /// The value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|field| field.0 == name).map(|field| field.1.as_str())
    }

    /// Revision of the header, if there is a header.
    pub(crate) fn revision(&self) -> Option<i64> {
        self.get("header.revision").and_then(|revision| revision.parse().ok())
    }

    /// Adds what is compared of a header.
    pub(crate) fn header(&mut self, name: &str, header: Option<&ResponseHeader>) {
        match header {
            Some(header) => self.add(format!("{name}.revision"), header.revision),
            None => self.add(name, "absent"),
        }
    }

    /// The fields in which two answers differ, one a line, at most twenty.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let mut lines = Vec::new();
        if self.error != other.error {
            lines.push(format!("error: {:?} | {:?}", self.error, other.error));
        }
        let most = self.fields.len().max(other.fields.len());
        let show = |field: Option<&(String, String)>| match field {
            Some((name, value)) => format!("{name}={value}"),
            None => "(nothing)".into(),
        };
        for index in 0..most {
            let (a, b) = (self.fields.get(index), other.fields.get(index));
            if a != b {
                lines.push(format!("field {index}: {} | {}", show(a), show(b)));
            }
        }
        lines.truncate(20);
        lines.join("\n    ")
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        let error = Some((status.code(), status.message().to_string()));
        Self { error, fields: Vec::new() }
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((code, message)) = &self.error {
            return write!(f, "error {code:?}: {message}");
        }
        for (index, (name, value)) in self.fields.iter().enumerate() {
            if index == 60 {
                return write!(f, "... {} fields in all", self.fields.len());
            }
            write!(f, "{name}={value} ")?;
        }
        Ok(())
    }
}

/// Bytes for people.
pub(crate) fn show(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    format!("{} bytes with checksum {:08x}", bytes.len(), crc32c::crc32c(bytes))
}

/// A row for people: every field.
pub(crate) fn show_row(row: &KeyValue) -> String {
    format!(
        "{} create {} mod {} version {} lease {} value {}",
        show(&row.key),
        row.create_revision,
        row.mod_revision,
        row.version,
        row.lease,
        show(&row.value)
    )
}

fn optional_row(bytes: &Bytes) -> String {
    if bytes.is_empty() { "absent".into() } else { show_row(&key_value(bytes)) }
}

/// Fields of a range answer. The request says by which sort rows may be tied.
pub(crate) fn range(answer: &mut Answer, name: &str, asked: &RangeRequest, got: &RangeResponse) {
    answer.add(format!("{name}more"), got.more);
    answer.add(format!("{name}count"), got.count);
    answer.add(format!("{name}rows"), got.kvs.len());
    let rows: Vec<KeyValue> = got.kvs.iter().map(key_value).collect();
    for line in settle_ties(asked, got.more, rows) {
        answer.add(format!("{name}row"), line);
    }
}

/// etcd's sort is not stable: rows with equal sort values come in any order, and when a limit cuts
/// through such a group any of them may be the ones shown.
fn settle_ties(asked: &RangeRequest, more: bool, mut rows: Vec<KeyValue>) -> Vec<String> {
    let target = asked.sort_target();
    if target == SortTarget::Key || asked.sort_target != target as i32 {
        return rows.iter().map(show_row).collect();
    }
    // Without values nobody can tell which rows were tied on them.
    let blind = target == SortTarget::Value && asked.keys_only;
    let rank = |row: &KeyValue| match target {
        _ if blind => Vec::new(),
        SortTarget::Value => row.value.to_vec(),
        SortTarget::Version => row.version.to_be_bytes().to_vec(),
        SortTarget::Create => row.create_revision.to_be_bytes().to_vec(),
        SortTarget::Mod | SortTarget::Key => row.mod_revision.to_be_bytes().to_vec(),
    };
    if !blind {
        let descending = asked.sort_order() == SortOrder::Descend;
        let ordered = rows.windows(2).all(|pair| {
            let order = rank(&pair[0]).cmp(&rank(&pair[1]));
            if descending { order.is_ge() } else { order.is_le() }
        });
        if !ordered {
            return vec!["rows are not in the order asked for".into()];
        }
    }
    let last = rows.last().map(rank);
    // Stable within the order of the answer, by key within a group of equals.
    let mut start = 0;
    while start < rows.len() {
        let group = rank(&rows[start]);
        let len = rows[start..].iter().take_while(|row| rank(row) == group).count();
        rows[start..start + len].sort_by(|a, b| a.key.cmp(&b.key));
        start += len;
    }
    let line = |row: &KeyValue| match &last {
        Some(last) if more && rank(row) == *last => format!("one of those ranked {}", show(last)),
        _ => show_row(row),
    };
    rows.iter().map(line).collect()
}

/// Fields of a put answer.
pub(crate) fn put(answer: &mut Answer, name: &str, got: &PutResponse) {
    answer.add(format!("{name}prev_kv"), optional_row(&got.prev_kv));
}

/// Fields of a delete answer.
pub(crate) fn delete(answer: &mut Answer, name: &str, got: &DeleteRangeResponse) {
    answer.add(format!("{name}deleted"), got.deleted);
    for row in &got.prev_kvs {
        answer.add(format!("{name}prev_kv"), optional_row(row));
    }
}

/// Fields of a transaction answer, nested ones included.
pub(crate) fn txn(answer: &mut Answer, name: &str, asked: &TxnRequest, got: &TxnResponse) {
    answer.add(format!("{name}succeeded"), got.succeeded);
    answer.add(format!("{name}responses"), got.responses.len());
    let ops = if got.succeeded { &asked.success } else { &asked.failure };
    for (index, (op, response)) in ops.iter().zip(&got.responses).enumerate() {
        nested(answer, &format!("{name}{index}."), op, response);
    }
}

fn nested(answer: &mut Answer, name: &str, asked: &RequestOp, got: &ResponseOp) {
    use response_op::Response as R;
    let Some(response) = &got.response else { return answer.add(name, "no response") };
    let header = match response {
        R::ResponseRange(got) => got.header.as_ref(),
        R::ResponsePut(got) => got.header.as_ref(),
        R::ResponseDeleteRange(got) => got.header.as_ref(),
        R::ResponseTxn(got) => got.header.as_ref(),
    };
    answer.header(&format!("{name}header"), header);
    if let Some(header) = header {
        let full = header.cluster_id != 0 || header.member_id != 0 || header.raft_term != 0;
        answer.add(format!("{name}header.full"), full);
    }
    match (&asked.request, response) {
        (Some(request_op::Request::RequestRange(asked)), R::ResponseRange(got)) => {
            range(answer, name, asked, got);
        }
        (Some(request_op::Request::RequestTxn(asked)), R::ResponseTxn(got)) => {
            txn(answer, name, asked, got);
        }
        (_, R::ResponsePut(got)) => put(answer, name, got),
        (_, R::ResponseDeleteRange(got)) => delete(answer, name, got),
        (asked, got) => answer.add(name, format!("{got:?} answers {asked:?}")),
    }
}
