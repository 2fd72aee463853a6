//! What members said in their logs, side by side: Assay's and etcd's lines have the same form.

use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines shown at most; the first ones are the telling ones.
const SHOWN_LINES: usize = 60;
/// Members of a line that are shown in other words or not at all.
const FRAME: [&str; 6] = ["level", "ts", "caller", "msg", "logger", "stacktrace"];
const DAY_MS: i64 = 86_400_000;

/// The lines of these logs, each with the name of its member, in the order of their times, which are
/// shown in milliseconds since `start`. What is not a line of a log (a banner) is left out.
pub(crate) fn since(start: SystemTime, logs: &[(String, String)]) -> String {
    let start = start.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let start = i64::try_from(start % DAY_MS as u128).unwrap_or(0);
    let mut lines = Vec::new();
    for (name, log) in logs {
        for line in log.lines() {
            let Ok(Value::Object(line)) = serde_json::from_str(line) else { continue };
            let Some(at) = line.get("ts").and_then(Value::as_str).and_then(milliseconds) else {
                continue;
            };
            // A day may end between the two.
            let after = (at - start + DAY_MS / 2).rem_euclid(DAY_MS) - DAY_MS / 2;
            lines.push((after, format!("{name} {}", words(&line))));
        }
    }
    lines.sort_by_key(|(after, _)| *after);
    let mut text = String::new();
    for (after, line) in lines.iter().take(SHOWN_LINES) {
        let _ = writeln!(text, "    {after:>6} ms  {line}");
    }
    if lines.len() > SHOWN_LINES {
        let _ = writeln!(text, "    and {} lines more", lines.len() - SHOWN_LINES);
    }
    text
}

/// Message and fields.
fn words(line: &Map<String, Value>) -> String {
    let mut text = line.get("msg").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (name, value) in line.iter().filter(|(name, _)| !FRAME.contains(&name.as_str())) {
        let _ = write!(text, " {name}={value}");
    }
    text
}

/// Milliseconds of the day in `2026-01-31T23:59:59.123456Z`. etcd writes its zone as `+0000`, and
/// both run here in the zone of this process.
fn milliseconds(stamp: &str) -> Option<i64> {
    let (_, time) = stamp.split_once('T')?;
    let mut parts = time.get(..12)?.splitn(3, ':');
    let mut next = |unit: f64| Some(parts.next()?.parse::<f64>().ok()? * unit);
    Some((next(3_600e3)? + next(60e3)? + next(1e3)?).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_of_all_members_stand_in_the_order_of_their_times() {
        let m0 = concat!(
            r#"{"level":"info","ts":"2026-12-01T00:00:01.250000Z","caller":"a.rs:1","msg":"second","term":7}"#,
            "\n  a banner\n",
            r#"{"level":"info","ts":"2026-11-30T23:59:59.500000Z","caller":"a.rs:1","msg":"first"}"#,
        );
        let m2 = r#"{"level":"info","ts":"2026-12-01T00:00:03.000000+0000","logger":"raft","caller":"r.go:1","msg":"third"}"#;
        let start = UNIX_EPOCH + Duration::from_secs(20_788 * 86_400);
        let text = since(start, &[("m0".into(), m0.into()), ("m2".into(), m2.into())]);
        let expected =
            "      -500 ms  m0 first\n      1250 ms  m0 second term=7\n      3000 ms  m2 third\n";
        assert_eq!(text, expected);
    }
}
