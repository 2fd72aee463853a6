//! URL lists of the listen and advertise flags, with etcd's rules and error texts.

use std::fmt;

/// One URL: `http`, `https`, `unix` or `unixs` with host and port or a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenUrl {
    text: String,
    scheme_len: usize,
}

impl ListenUrl {
    /// Parses one URL.
    ///
    /// # Errors
    /// The text that etcd prints for the same mistake.
    pub fn parse(text: &str) -> Result<ListenUrl, String> {
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("URL scheme must be http, https, unix, or unixs: {text}"));
        };
        match scheme {
            "http" | "https" => {
                if let Some(at) = rest.find('/') {
                    return Err(format!(
                        "URL must not contain a path: {}",
                        &text[..scheme.len() + 3 + at + 1]
                    ));
                }
                let port = rest.rsplit_once(':').filter(|(host, port)| {
                    !port.is_empty()
                        && port.parse::<u16>().is_ok()
                        && (host.starts_with('[') == host.ends_with(']'))
                        && (host.starts_with('[') || !host.contains(':'))
                });
                if port.is_none() {
                    return Err(format!(
                        "URL address does not have the form \"host:port\": {text}"
                    ));
                }
            }
            "unix" | "unixs" if !rest.is_empty() => {}
            "unix" | "unixs" => return Err(format!("URL has no socket path: {text}")),
            _ => return Err(format!("URL scheme must be http, https, unix, or unixs: {text}")),
        }
        Ok(ListenUrl { scheme_len: scheme.len(), text: text.to_string() })
    }

    /// The whole URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `http`, `https`, `unix` or `unixs`.
    pub fn scheme(&self) -> &str {
        &self.text[..self.scheme_len]
    }

    /// `host:port`, or the path of the socket.
    pub fn address(&self) -> &str {
        &self.text[self.scheme_len + 3..]
    }

    /// Host without port and brackets; empty for sockets.
    pub fn host(&self) -> &str {
        if self.is_unix() {
            return "";
        }
        let host = self.address().rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Port; 0 for sockets.
    pub fn port(&self) -> u16 {
        if self.is_unix() {
            return 0;
        }
        self.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    }

    /// Whether it is a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.scheme().starts_with("unix")
    }

    /// Whether TLS is asked for.
    pub fn is_tls(&self) -> bool {
        matches!(self.scheme(), "https" | "unixs")
    }

    /// Whether only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        self.is_unix()
            || self.host() == "localhost"
            || self.host().parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A list of URLs, sorted as text and without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UrlList(pub Vec<ListenUrl>);

impl UrlList {
    /// Parses a comma-separated list; an empty text is an empty list.
    ///
    /// # Errors
    /// The first bad URL.
    pub fn parse(text: &str) -> Result<UrlList, String> {
        let mut urls = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(ListenUrl::parse)
            .collect::<Result<Vec<_>, _>>()?;
        urls.sort();
        urls.dedup();
        Ok(UrlList(urls))
    }

    /// The URLs as texts.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|url| url.text.clone()).collect()
    }
}

impl fmt::Display for UrlList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.texts().join(","))
    }
}
