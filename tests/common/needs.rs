//! What a test needs from the machine, and numbers from the environment.

/// Whether the test runs as root. Otherwise says visibly that it does nothing.
///
/// # Panics
/// When it does not and `CI` is set: there a skipped test would hide a missing permission.
pub fn require_root(why: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip(&format!("needs root: {why}"));
    }
    root
}

/// Says visibly that a test does nothing here.
///
/// # Panics
/// When `CI` is set.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "must not be skipped in CI: {why}");
    eprintln!("SKIPPED: {why}");
}

/// A whole number from the environment.
///
/// # Panics
/// When the variable is set to something else.
pub fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")),
        Err(_) => default,
    }
}
