//! Takes out of etcdctl's output what differs from server to server: addresses, identities, terms,
//! log positions, sizes, times.

/// Columns of tables whose cells are only there or not.
const MASKED_COLUMNS: [&str; 9] = [
    "ID",
    "DB SIZE",
    "IN USE",
    "PERCENTAGE NOT IN USE",
    "RAFT TERM",
    "RAFT INDEX",
    "RAFT APPLIED INDEX",
    "TOOK",
    "QUOTA",
];
/// Numbers after these words are masked. Longer numbers are masked everywhere.
const MASKED_NUMBERS: [&str; 15] = [
    "\"raft_term\":",
    "\"raftTerm\":",
    "\"raftIndex\":",
    "\"raftAppliedIndex\":",
    "\"dbSize\":",
    "\"dbSizeInUse\":",
    "\"RaftTerm\" : ",
    "\"RaftIndex\" : ",
    "\"RaftAppliedIndex\" : ",
    "\"DBSize\" : ",
    "\"DBSizeInUse\" : ",
    "remaining(",
    "\"ttl\":",
    // Versions are compared up to the minor one.
    "3.6.",
    "3.7.",
];
/// Decimal numbers of at least this many digits are identities.
const IDENTITY_DIGITS: usize = 15;
/// Hexadecimal words of at least this many digits are identities.
const IDENTITY_HEX_DIGITS: usize = 13;

/// The output without what may differ.
pub(crate) fn mask(text: &str, ports: [u16; 3]) -> String {
    let mut text = text.to_string();
    for (port, name) in ports.iter().zip(["CLIENT", "PEER", "METRICS"]) {
        text = text.replace(&format!("127.0.0.1:{port}"), name);
    }
    let mut columns: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        // etcdctl's own log: the error it reports comes again in the last line.
        if line.starts_with("{\"level\"") {
            continue;
        }
        if line.starts_with(['+', '┌', '├', '└']) {
            columns.retain(|_| !line.starts_with('┌'));
            continue;
        }
        if line.starts_with(['|', '│']) {
            let bars = ['|', '│'];
            let cells = line.trim_matches(bars).split(bars).map(|cell| cell.trim().to_string());
            let cells: Vec<String> = cells.collect();
            if columns.is_empty() {
                columns.clone_from(&cells);
            }
            let hide = |(index, cell): (usize, String)| {
                let column = columns.get(index).map_or("", String::as_str);
                let hide = MASKED_COLUMNS.contains(&column) && cell != column && !cell.is_empty();
                if hide { "*".into() } else { mask_line(&cell) }
            };
            lines.push(cells.into_iter().enumerate().map(hide).collect::<Vec<_>>().join(" | "));
            continue;
        }
        columns.clear();
        lines.push(mask_line(line));
    }
    lines.join("\n")
}

fn mask_line(line: &str) -> String {
    let mut line = mask_words(line);
    for word in MASKED_NUMBERS {
        line = mask_after(&line, word);
    }
    if let Some((before, _)) = line.split_once("took = ") {
        line = format!("{before}took = *");
    }
    if let Some((before, rest)) = line.split_once("\"took\":\"") {
        let after = rest.split_once('"').map_or("", |(_, after)| after);
        line = format!("{before}\"took\":\"*\"{after}");
    }
    // The keys of a lease come in no particular order.
    if let Some((before, keys)) = line.split_once("attached keys([") {
        let mut keys: Vec<&str> = keys.trim_end_matches("])").split(' ').collect();
        keys.sort_unstable();
        line = format!("{before}attached keys([{}])", keys.join(" "));
    }
    if line.starts_with("http://CLIENT, ") {
        line = line.split(", ").map(mask_field).collect::<Vec<_>>().join(", ");
    }
    line
}

/// Fields of `endpoint status`: sizes, shares and plain numbers.
fn mask_field(field: &str) -> &str {
    let size = [" B", " kB", " MB", " GB", "%"].iter().any(|unit| field.ends_with(unit));
    let number = !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
    if size || number { "*" } else { field }
}

/// Masks long words of digits.
fn mask_words(line: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for char in line.chars().chain(['\n']) {
        if char.is_ascii_alphanumeric() {
            word.push(char);
            continue;
        }
        let decimal = word.bytes().all(|byte| byte.is_ascii_digit());
        let hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let identity = (decimal && word.len() >= IDENTITY_DIGITS)
            || (hex && word.len() >= IDENTITY_HEX_DIGITS);
        out.push_str(if identity { "*" } else { &word });
        word.clear();
        out.push(char);
    }
    out.pop();
    out
}

fn mask_after(line: &str, word: &str) -> String {
    let mut parts = line.split(word);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        out.push_str(word);
        let rest = part.trim_start_matches(|char: char| char.is_ascii_digit());
        if rest.len() < part.len() {
            out.push('*');
        }
        out.push_str(rest);
    }
    out
}

#[test]
fn masks_identities_and_keeps_the_rest() {
    let ports = [2379, 2380, 2381];
    let json = r#"{"header":{"cluster_id":3325099075975791696,"revision":3,"raft_term":2}}"#;
    assert_eq!(mask(json, ports), r#"{"header":{"cluster_id":*,"revision":3,"raft_term":*}}"#);
    let lease = "lease 2f21a22de4fab813 granted with TTL(100s), remaining(99s)";
    assert_eq!(mask(lease, ports), "lease * granted with TTL(100s), remaining(*s)");
    let status = "http://127.0.0.1:2379, 8b59d4a24cf12f21, 3.7.3, 29 kB, true, 14, , false";
    assert_eq!(mask(status, ports), "http://CLIENT, *, 3.7.*, *, true, *, , false");
    let table = "+----+------+\n| ID | NAME |\n+----+------+\n| 8b | n1   |\n+----+------+";
    assert_eq!(mask(table, ports), "ID | NAME\n* | n1");
}
