//! Counters of a member, from the text of `/metrics`.

use crate::error::{During, Error, Result};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// Values of all series.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Numbers(BTreeMap<String, f64>);

impl Numbers {
    /// Reads them.
    pub(crate) fn of(metrics: SocketAddr) -> Result<Self> {
        let mut socket = TcpStream::connect(metrics).during(|| format!("connect to {metrics}"))?;
        socket.set_read_timeout(Some(PATIENCE)).during(|| "set a timeout".into())?;
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {metrics}\r\n\r\n");
        socket.write_all(request.as_bytes()).during(|| format!("ask {metrics}"))?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).during(|| format!("read {metrics}/metrics"))?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| Self::from_text(body));
        body.ok_or_else(|| Error::Answer("no HTTP answer from /metrics".into()))
    }

    fn from_text(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_string(), value.parse().ok()?))
        });
        Self(pairs.collect())
    }

    /// What counters gained since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let before = |series: &str| earlier.0.get(series).copied().unwrap_or(0.0);
        Self(self.0.iter().map(|(series, now)| (series.clone(), now - before(series))).collect())
    }

    /// Sum over all series that begin so: a whole name, or a name and its first labels.
    pub(crate) fn sum(&self, begin: &str) -> f64 {
        let named =
            self.0.range(begin.to_string()..).take_while(|(name, _)| name.starts_with(begin));
        named
            .filter(|(name, _)| {
                let next = name.as_bytes().get(begin.len());
                begin.contains('{') || matches!(next, None | Some(b'{'))
            })
            .map(|(_, value)| value)
            // The sum of nothing would be a negative zero.
            .fold(0.0, |sum, value| sum + value)
    }

    /// Mean of a histogram in microseconds; `labels` as in `{stage="fsync"}` or empty.
    pub(crate) fn mean_us(&self, name: &str, labels: &str) -> f64 {
        let count = self.sum(&format!("{name}_count{labels}"));
        self.sum(&format!("{name}_sum{labels}")) * 1e6 / count.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_means_of_what_was_added() {
        let before = Numbers::from_text("# HELP a b\na_total 1\na{x=\"1\"} 2\na{x=\"2\"} 3\n");
        let after = Numbers::from_text("a_total 5\na{x=\"1\"} 4\na{x=\"2\"} 3\na 10\n");
        let gained = after.since(&before);
        assert_eq!(
            (gained.sum("a"), gained.sum("a{x=\"1\""), gained.sum("a_total")),
            (12.0, 2.0, 4.0)
        );
        let text = "h_sum{s=\"x\"} 3\nh_count{s=\"x\"} 2\nh_sum{s=\"y\"} 9\nh_count{s=\"y\"} 1\n";
        let histogram = Numbers::from_text(text);
        assert_eq!(histogram.mean_us("h", "{s=\"x\"}"), 1.5e6);
        assert_eq!(histogram.mean_us("h", ""), 4e6);
        assert_eq!(histogram.mean_us("absent", ""), 0.0);
    }
}
