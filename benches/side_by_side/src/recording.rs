//! What a node recorded of its own appends and syncs (`disk.mix` at `/debug/vars`), cut to one
//! measurement, so that the disk probe can replay that load.

use crate::error::{During, Error, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Key of the recording in the document.
const KEY: &str = "disk.mix";
const PATIENCE: Duration = Duration::from_secs(10);

/// A node's recording since its start.
pub(crate) struct Recording(Value);

impl Recording {
    /// Asks a node.
    pub(crate) fn of(node: SocketAddr) -> Result<Self> {
        let mut socket = TcpStream::connect(node).during(|| format!("connect to {node}"))?;
        socket.set_read_timeout(Some(PATIENCE)).during(|| "set a timeout".into())?;
        let request = format!("GET /debug/vars HTTP/1.0\r\nHost: {node}\r\n\r\n");
        socket.write_all(request.as_bytes()).during(|| format!("ask {node}"))?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).during(|| format!("read {node}/debug/vars"))?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
        let document: Option<Value> = body.and_then(|body| serde_json::from_str(body).ok());
        let found = document.and_then(|mut document| Some(document.get_mut(KEY)?.take()));
        found.map(Self).ok_or_else(|| Error::Answer(format!("no {KEY} at {node}/debug/vars")))
    }

    /// What was added since `earlier`, as the document that the probe reads.
    pub(crate) fn since(&self, earlier: &Self) -> Value {
        let mut document = self.0.clone();
        document["active_seconds"] = less(&self.0, &earlier.0, "active_seconds");
        for thread in document["threads"].as_array_mut().into_iter().flatten() {
            let mut all = earlier.0["threads"].as_array().into_iter().flatten();
            let Some(before) = all.find(|before| before["name"] == thread["name"]) else {
                continue;
            };
            for field in ["cpu_micros", "turns"] {
                thread[field] = less(thread, before, field);
            }
        }
        for stream in ["log", "store"] {
            let (now, before) = (&self.0[stream], &earlier.0[stream]);
            let mut classes = classes(now);
            for (size, (count, gap)) in self::classes(before) {
                classes.entry(size).and_modify(|now| {
                    *now = (now.0.saturating_sub(count), now.1.saturating_sub(gap));
                });
            }
            classes.retain(|_, (count, _)| *count > 0);
            let mut added = Map::new();
            for field in ["writes", "bytes", "extents", "cpu_micros"] {
                added.insert(field.into(), less(now, before, field));
            }
            let pairs: Vec<_> = classes.iter().map(|(size, (count, _))| (size, count)).collect();
            added.insert("bytes_per_sync".into(), json!(pairs));
            let gaps: Vec<_> = classes.values().map(|(_, gap)| gap).collect();
            added.insert("gap_micros".into(), json!(gaps));
            document[stream] = Value::Object(added);
        }
        document
    }
}

/// Writes a recording to a file.
pub(crate) fn save(recording: &Value, path: &Path) -> Result<()> {
    std::fs::write(path, format!("{recording}\n")).during(|| format!("write {}", path.display()))
}

fn less(now: &Value, before: &Value, field: &str) -> Value {
    let of = |document: &Value| document[field].as_u64().unwrap_or(0);
    json!(of(now).saturating_sub(of(before)))
}

/// Number of syncs and sum of gaps by size.
fn classes(stream: &Value) -> BTreeMap<u64, (u64, u64)> {
    let list = |field: &str| stream[field].as_array().into_iter().flatten();
    let both = list("bytes_per_sync").zip(list("gap_micros"));
    let class = |(pair, gap): (&Value, &Value)| {
        Some((pair[0].as_u64()?, (pair[1].as_u64()?, gap.as_u64()?)))
    };
    both.filter_map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_cut_to_what_was_added() {
        let at = |seconds: u64, small: u64, large: u64| {
            let stream = json!({"writes": small, "bytes": 100 * small + 9_000 * large,
                "extents": small, "cpu_micros": 2 * small,
                "bytes_per_sync": [[112, small], [10_240, large]],
                "gap_micros": [30 * small, 9 * large]});
            Recording(json!({"schema": 1, "program": "p", "active_seconds": seconds,
                "threads": [{"name": "edge-0", "cpu_micros": 100 * seconds, "turns": seconds}],
                "log": stream, "store": stream}))
        };
        let added = at(9, 70, 5).since(&at(4, 50, 5));
        assert_eq!(added["schema"], 1);
        assert_eq!(added["active_seconds"], 5);
        let thread = json!([{"name": "edge-0", "cpu_micros": 500, "turns": 5}]);
        assert_eq!(added["threads"], thread);
        assert_eq!(added["store"], added["log"]);
        assert_eq!(added["log"]["bytes"], 2_000);
        assert_eq!(added["log"]["extents"], 20);
        assert_eq!(added["log"]["cpu_micros"], 40);
        assert_eq!(added["log"]["bytes_per_sync"], json!([[112, 20]]));
        assert_eq!(added["log"]["gap_micros"], json!([600]));
    }
}
