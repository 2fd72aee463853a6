//! Reads a command line as Go's `flag` package does, and the environment, into [`Raw`] texts.

use super::flags::{self, FLAGS, Flag, Kind};
use super::{ConfigError, Raw};

/// Where the text of an option came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// Command line.
    Flag,
    /// Environment variable.
    Env,
}

/// A variable without a flag, for tests; see [`super::Config::feature_level`].
const TEST_FEATURE_LEVEL: &str = "ASSAY_TEST_FEATURE_LEVEL";
/// Its name in [`Raw`].
pub(super) const FEATURE_LEVEL: &str = "test-feature-level";

/// What a command line asks for.
#[derive(Debug)]
pub enum Parsed {
    /// `--help`
    Help,
    /// `--version`
    Version,
    /// A start, with notes to log once logging is up (variables used or not recognised).
    Start {
        /// Option texts by flag name.
        raw: Raw,
        /// Log lines: whether it is a warning, message, variable.
        notes: Vec<(bool, &'static str, String)>,
    },
}

/// Parses `args` (without the program name) and `env`.
///
/// # Errors
/// An unknown flag names the nearest one; a flag and its variable set together are refused, as etcd
/// refuses them.
pub fn parse(
    args: &[String],
    env: &mut dyn Iterator<Item = (String, String)>,
) -> Result<Parsed, ConfigError> {
    let mut raw: Raw =
        FLAGS.iter().map(|flag| (flag.name, (flag.default.to_string(), Source::Default))).collect();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let body = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'));
        let Some(body) = body.filter(|body| !body.is_empty()) else {
            return Err(ConfigError::LeftOver { word: arg.clone() });
        };
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (body, None),
        };
        match name {
            "h" | "help" => return Ok(Parsed::Help),
            "version" => return Ok(Parsed::Version),
            _ => {}
        }
        let flag = flags::find(name).ok_or_else(|| ConfigError::UnknownFlag {
            name: name.to_string(),
            nearest: flags::nearest(name),
        })?;
        let value = match value {
            Some(value) => value,
            None if flag.kind == Kind::Bool => "true".to_string(),
            None => args.next().cloned().ok_or(ConfigError::MissingValue { flag: flag.name })?,
        };
        raw.insert(flag.name, (value, Source::Flag));
    }
    let mut notes = Vec::new();
    for (variable, value) in env {
        if !variable.starts_with("ETCD_") && !variable.starts_with("ASSAY_") {
            continue;
        }
        if variable == TEST_FEATURE_LEVEL {
            raw.insert(FEATURE_LEVEL, (value, Source::Env));
            notes.push((true, "this program poses as an older version: for tests only", variable));
            continue;
        }
        let Some(flag) = FLAGS.iter().find(|flag| matches(flag, &variable)) else {
            if variable.starts_with("ETCD_") {
                notes.push((true, "unrecognized environment variable", variable));
            }
            continue;
        };
        if raw.get(flag.name).is_some_and(|(_, source)| *source == Source::Flag) {
            return Err(ConfigError::Shadowed { variable, flag: flag.name });
        }
        raw.insert(flag.name, (value, Source::Env));
        notes.push((false, "recognized and used environment variable", variable));
    }
    Ok(Parsed::Start { raw, notes })
}

fn matches(flag: &Flag, variable: &str) -> bool {
    flag.env() == variable || (flag.group.starts_with("Assay") && flag.own_env() == variable)
}
