//! The few protobuf messages of the etcd interface that the client needs, written and read by hand:
//! the client must cost little beside the server it measures.

/// Name of a key: 14 bytes, ordered by number.
pub(crate) fn key(prefix: &str, number: u64) -> Vec<u8> {
    format!("{prefix}{number:08}").into_bytes()
}

/// The first key behind all keys of a prefix.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        varint(out, field << 3);
        varint(out, value);
    }
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// `PutRequest`.
pub(crate) fn put(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    bytes(out, 1, key);
    bytes(out, 2, value);
}

/// `RangeRequest`; an empty `end` asks for one key, a `limit` of 0 for all.
pub(crate) fn range(out: &mut Vec<u8>, key: &[u8], end: &[u8], limit: u64, serializable: bool) {
    bytes(out, 1, key);
    if !end.is_empty() {
        bytes(out, 2, end);
    }
    number(out, 3, limit);
    number(out, 7, u64::from(serializable));
}

/// `TxnRequest` without conditions that puts these pairs.
pub(crate) fn txn_of_puts<'a>(out: &mut Vec<u8>, pairs: impl Iterator<Item = (Vec<u8>, &'a [u8])>) {
    let (mut request, mut op) = (Vec::new(), Vec::new());
    for (key, value) in pairs {
        request.clear();
        op.clear();
        put(&mut request, &key, value);
        bytes(&mut op, 2, &request);
        bytes(out, 2, &op);
    }
}

/// `WatchRequest` that creates a watch of a range from now on.
pub(crate) fn watch(out: &mut Vec<u8>, key: &[u8], end: &[u8]) {
    let mut create = Vec::new();
    bytes(&mut create, 1, key);
    bytes(&mut create, 2, end);
    bytes(out, 1, &create);
}

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    /// Variable-length integer.
    Number(u64),
    /// Bytes, text or a message.
    Bytes(&'a [u8]),
    /// Eight fixed bytes.
    Fixed(u64),
}

/// The fields of a message in the order of the wire; ends early at bytes that are no field.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => {
                let (fixed, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Value::Fixed(u64::from_le_bytes(*fixed))
            }
            2 => {
                let len = self.varint()? as usize;
                let (value, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                Value::Bytes(value)
            }
            5 => {
                let (fixed, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Value::Fixed(u64::from(u32::from_le_bytes(*fixed)))
            }
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

/// First value of a field with bytes.
fn field(message: &[u8], field: u64) -> Option<&[u8]> {
    Fields(message).find_map(|(at, value)| match value {
        Value::Bytes(bytes) if at == field => Some(bytes),
        _ => None,
    })
}

/// `header.revision` of any answer (field 1 of the message, 3 of the header).
pub(crate) fn header_revision(answer: &[u8]) -> Option<i64> {
    let header = field(answer, 1)?;
    Fields(header).find_map(|(at, value)| match value {
        Value::Number(revision) if at == 3 => Some(revision as i64),
        _ => None,
    })
}

/// What a `StatusResponse` holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Who answers.
    pub(crate) member: u64,
    /// Whom it holds for the leader, 0 for nobody.
    pub(crate) leader: u64,
    /// Last index of its log.
    pub(crate) index: u64,
    /// Last index that it applied.
    pub(crate) applied: u64,
}

/// Reads a `StatusResponse`.
pub(crate) fn status(answer: &[u8]) -> Status {
    let mut status = Status::default();
    for (at, value) in Fields(answer) {
        match (at, value) {
            (1, Value::Bytes(header)) => {
                let member = Fields(header).find_map(|(at, value)| match value {
                    Value::Number(member) if at == 2 => Some(member),
                    _ => None,
                });
                status.member = member.unwrap_or(0);
            }
            (4, Value::Number(leader)) => status.leader = leader,
            (5, Value::Number(index)) => status.index = index,
            (7, Value::Number(applied)) => status.applied = applied,
            _ => {}
        }
    }
    status
}

/// `hash` of a `HashKVResponse`.
pub(crate) fn hash(answer: &[u8]) -> Option<u64> {
    Fields(answer).find_map(|(at, value)| match value {
        Value::Number(hash) if at == 2 => Some(hash),
        _ => None,
    })
}

/// What a `WatchResponse` holds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Watched<'a> {
    /// The watch was created.
    pub(crate) created: bool,
    /// It was cancelled.
    pub(crate) cancelled: bool,
    /// Number of events.
    pub(crate) events: u64,
    /// Value in the first event.
    pub(crate) first_value: Option<&'a [u8]>,
}

/// Reads a `WatchResponse`.
pub(crate) fn watched(answer: &[u8]) -> Watched<'_> {
    let mut watched = Watched::default();
    for (at, value) in Fields(answer) {
        match (at, value) {
            (3, Value::Number(created)) => watched.created = created != 0,
            (4, Value::Number(cancelled)) => watched.cancelled = cancelled != 0,
            (11, Value::Bytes(event)) => {
                if watched.events == 0 {
                    // Event.kv is field 2, KeyValue.value is field 5.
                    watched.first_value = field(event, 2).and_then(|row| field(row, 5));
                }
                watched.events += 1;
            }
            _ => {}
        }
    }
    watched
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_wire_form_of_the_interface() {
        let mut out = Vec::new();
        put(&mut out, b"k", b"vv");
        assert_eq!(out, b"\x0a\x01k\x12\x02vv");
        out.clear();
        range(&mut out, b"a", b"b", 1_000, true);
        assert_eq!(out, b"\x0a\x01a\x12\x01b\x18\xe8\x07\x38\x01");
        out.clear();
        txn_of_puts(&mut out, [(b"k".to_vec(), &b"v"[..])].into_iter());
        assert_eq!(out, b"\x12\x08\x12\x06\x0a\x01k\x12\x01v");
        out.clear();
        watch(&mut out, b"a", b"b");
        assert_eq!(out, b"\x0a\x06\x0a\x01a\x12\x01b");
    }

    #[test]
    fn answers_are_read_and_garbage_ends_the_reading() {
        assert_eq!(header_revision(b"\x0a\x04\x08\x01\x18\x2a"), Some(42));
        assert_eq!(header_revision(b"\x0a\x7f\x08"), None);
        let header = b"\x0a\x04\x08\x01\x10\x07";
        let mut answer = header.to_vec();
        for (field, value) in [(4, 9), (5, 30), (7, 29)] {
            number(&mut answer, field, value);
        }
        assert_eq!(hash(b"\x0a\x02\x18\x05\x10\x2a"), Some(42));
        assert_eq!(status(&answer), Status { member: 7, leader: 9, index: 30, applied: 29 });
        let event = b"\x12\x05\x0a\x00\x2a\x01v";
        let mut answer = b"\x0a\x02\x18\x05\x18\x01".to_vec();
        bytes(&mut answer, 11, event);
        bytes(&mut answer, 11, event);
        let read = watched(&answer);
        assert!(read.created && !read.cancelled);
        assert_eq!((read.events, read.first_value), (2, Some(&b"v"[..])));
    }

    #[test]
    fn keys_sort_by_number() {
        assert!(key("a/", 9) < key("a/", 10));
        assert!(key("a/", 99_999_999) < end_of("a/"));
    }
}
