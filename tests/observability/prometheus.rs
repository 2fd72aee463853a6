//! A real Prometheus on loopback.

use super::common::{Tool, free_port};
use super::http::{get, try_get};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time between scrapes.
const INTERVAL_S: u64 = 1;
/// Longest wait for Prometheus to start or to scrape: a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is asked: there is no event to wait for.
const POLL: Duration = Duration::from_millis(100);

/// One value of an instant query by its labels.
pub(crate) type Vector = BTreeMap<BTreeMap<String, String>, f64>;

/// A server that scrapes one node every second. Dropping it ends it.
pub(crate) struct Prometheus {
    child: Child,
    port: u16,
    home: TempDir,
}

impl Prometheus {
    /// Starts one, or says visibly that there is none to start. `native`: as one that stores native
    /// histograms.
    pub(crate) fn scraping(metrics_port: u16, native: bool) -> Option<Self> {
        let program = Tool::Prometheus.require()?;
        let home = tempfile::Builder::new().prefix("assay-prometheus-").tempdir().expect("dir");
        let config = home.path().join("prometheus.yml");
        let text = format!(
            "global:\n  scrape_interval: {INTERVAL_S}s\n  scrape_timeout: {INTERVAL_S}s\n\
             scrape_configs:\n  - job_name: assay\n    static_configs:\n\
             \x20     - targets: [\"127.0.0.1:{metrics_port}\"]\n"
        );
        std::fs::write(&config, text).expect("configuration");
        let port = free_port();
        let log = File::create(home.path().join("log")).expect("log");
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", home.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        if native {
            command.arg("--enable-feature=native-histograms");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("start Prometheus");
        let mut prometheus = Self { child, port, home };
        prometheus.wait("start", |prometheus| {
            matches!(try_get(prometheus.port, "/-/ready", "*/*"), Ok((200, _)))
        });
        Some(prometheus)
    }

    fn wait(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            let ended = self.child.try_wait().expect("state of Prometheus");
            let log = || std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
            assert!(ended.is_none(), "Prometheus ended: {}", log());
            assert!(start.elapsed() < PATIENCE, "Prometheus did not {what}: {}", log());
            std::thread::sleep(POLL);
        }
    }

    /// Waits for `count` scrapes that begin from now on.
    pub(crate) fn wait_for_scrapes(&mut self, count: usize) {
        let mut last = self.last_scrape();
        let mut seen = 0;
        // The first new one may have begun before.
        self.wait("scrape the node", |prometheus| {
            let now = prometheus.last_scrape();
            if now > last {
                (last, seen) = (now, seen + 1);
            }
            seen > count
        });
    }

    /// Time of the last scrape that brought something. (Of an expression `timestamp` would give the
    /// time of the query.)
    fn last_scrape(&self) -> f64 {
        self.query("timestamp(assay_build_info)").into_values().fold(0.0, f64::max)
    }

    /// An instant query.
    ///
    /// # Panics
    /// When Prometheus refuses the expression.
    pub(crate) fn query(&self, expression: &str) -> Vector {
        let mut query = String::new();
        for byte in expression.bytes() {
            query.push_str(&format!("%{byte:02X}"));
        }
        let path = format!("/api/v1/query?query={query}");
        let (status, body) = try_get(self.port, &path, "*/*").expect("an answer");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(status, 200, "{expression}: {body}");
        assert_eq!(body["data"]["resultType"], "vector", "{expression}");
        let series = body["data"]["result"].as_array().expect("series");
        series.iter().filter_map(sample).collect()
    }

    /// The only value of an instant query.
    pub(crate) fn value(&self, expression: &str) -> f64 {
        let vector = self.query(expression);
        assert_eq!(vector.len(), 1, "{expression}: {vector:?}");
        vector.into_values().next().expect("one value")
    }

    /// Whether the server scrapes protobuf and stores native histograms.
    pub(crate) fn stores_native(&self) -> bool {
        let flags = get(self.port, "/api/v1/status/flags");
        let flags: Value = serde_json::from_str(&flags).expect("JSON");
        flags["data"]["enable-feature"].as_str().is_some_and(|flag| flag.contains("native"))
    }
}

/// Labels and value of one series; a native histogram as such has no value.
fn sample(series: &Value) -> Option<(BTreeMap<String, String>, f64)> {
    let labels = series["metric"].as_object().expect("labels");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let labels = labels.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    let value = series["value"].as_array()?.get(1)?.as_str()?.parse().ok()?;
    Some((labels, value))
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
