//! Things a probe noticed: each has a stable code, a weight, and one sentence for people.

use serde::{Deserialize, Serialize};

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Likely to hurt, but not a reason to stay down.
    Warn,
    /// The disk must not be used for a consensus log.
    Refuse,
}

impl Severity {
    /// The word in JSON and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warn => "warn",
            Severity::Refuse => "refuse",
        }
    }

    /// The word for people.
    pub fn title(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warn => "warning",
            Severity::Refuse => "refused",
        }
    }
}

/// One observation. Codes are part of the JSON interface and never change their meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name in kebab case, for example `volatile-file-system`.
    pub code: String,
    /// Weight.
    pub severity: Severity,
    /// One sentence for people: what, where, what to do.
    pub text: String,
}

impl Finding {
    /// A note.
    pub fn note(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.into(), severity: Severity::Note, text: text.into() }
    }

    /// A warning.
    pub fn warn(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.into(), severity: Severity::Warn, text: text.into() }
    }

    /// A reason to refuse.
    pub fn refuse(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.into(), severity: Severity::Refuse, text: text.into() }
    }
}
