//! Texts for people: `--help`, `--version` and the short text of a start.

use assay::config::{self, Config, flags};
use assay::node::FeatureLevels;
use std::fmt::{Display, Write as _};
use std::io::Write as _;

/// Version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Writes to standard output. Nobody may be reading it, or it may be full: that must not end a node.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes an error to standard error, under the name of the program; see [`say`].
pub(crate) fn complain(error: &dyn Display) {
    let _ = writeln!(std::io::stderr(), "assay: {error}");
}

/// `--version`: four lines whose first names the API level, as clients and test frameworks read it.
pub(crate) fn version() -> String {
    format!(
        "etcd Version: {}\nGit SHA: assay-{VERSION}\nGo Version: none (Rust)\nGo OS/Arch: {}/{}\n",
        config::API_VERSION,
        std::env::consts::OS,
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    )
}

/// `--help`, from the table of flags.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Assay: a key-value node that speaks the etcd v3 API, measures everything and refuses bad \
         disks.\n\nUsage: assay [flags]\n       assay upgrade status|finalize [flags]\n\nWithout flags a node starts on default.assay, for this \
         machine only.\nEvery flag is also read from a variable: --data-dir from ETCD_DATA_DIR.\n",
    );
    let mut group = "";
    for flag in flags::FLAGS {
        if flag.group != group {
            group = flag.group;
            let _ = write!(text, "\n{group}:\n");
        }
        let default = if flag.default.is_empty() { "''" } else { flag.default };
        let _ = writeln!(text, "  --{} {default}\n        {}{}", flag.name, flag.help, state(flag));
    }
    text.push_str(
        "\nExit codes: 0 stopped in order, 1 configuration, 2 usage, 20 disk gate FAIL, 21 disk \
         gate\nINCONCLUSIVE (strict), 22 disk gate REFUSED, 74 I/O error, 75 directory locked, 78 \
         foreign,\nnewer or incomplete data directory, a command of a newer version, or members that contradict\neach other.\n",
    );
    text
}

fn state(flag: &flags::Flag) -> &'static str {
    match flag.state {
        flags::State::Works => "",
        flags::State::Accepted => " (accepted, no effect)",
        flags::State::NotYet => " (not in this version)",
    }
}

/// How safe the ports are, in words.
fn security(config: &Config) -> &'static str {
    let (tls, listen) = (&config.tls, &config.listen);
    let checked = |urls: &config::UrlList, side: &config::TlsSide| {
        urls.0.iter().all(|url| url.is_loopback() || url.is_tls() && side.trusted_ca.is_some())
    };
    let sides = [(&listen.client, &tls.client), (&listen.peer, &tls.peer)];
    if sides.iter().any(|(urls, side)| !checked(urls, side)) {
        return "  INSECURE  other machines can connect without a certificate, and there is no \
                authentication:\n            whoever reaches a port reads and writes everything\n";
    }
    if sides.iter().any(|(urls, _)| urls.0.iter().any(|url| !url.is_tls())) {
        return "  insecure  a port has no TLS and no authentication; only this machine can connect \
                there\n";
    }
    "  secure    every client and member shows a certificate\n"
}

/// The text of a start: what runs, on what disk, where, and what is insecure. Without `levels` (a
/// member on a new directory: its cluster may be setting its level at this moment) nothing is said
/// of them.
pub(crate) fn started(
    config: &Config,
    disk: &str,
    ids: (u64, u64),
    metrics: &[String],
    levels: Option<FeatureLevels>,
) -> String {
    let mut text = format!(
        "Assay {VERSION} (etcd API {}), member {:x} of cluster {:x}\n  data      {}\n  disk      \
         {disk}\n  clients   {}\n  peers     {}\n  metrics   {}\n",
        config::API_VERSION,
        ids.1,
        ids.0,
        config.paths.data_dir.display(),
        config.listen.client,
        config.listen.peer,
        if metrics.is_empty() { "on the client port".into() } else { metrics.join(",") },
    );
    text.push_str(security(config));
    if let Some(levels) = levels.filter(|levels| levels.cluster < levels.own) {
        let _ = writeln!(
            text,
            "  level     {} of {}: the version before still reads everything, until the upgrade is \
             finalized",
            levels.cluster, levels.own
        );
    }
    text.push_str("  space     nothing compacts history by itself: compact, or watch the quota\n");
    text
}
