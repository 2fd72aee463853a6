//! What each finding means, and what to do about it.
//!
//! A finding tells what was seen here; the explanation tells why it matters anywhere. A test walks
//! the sources and fails for a code without an explanation.

mod texts;

/// The text about one kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The code, as in [`Finding::code`](crate::finding::Finding::code).
    pub code: &'static str,
    /// One line.
    pub title: &'static str,
    /// Why it matters.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

/// All explanations, sorted by code.
pub fn all() -> &'static [Explanation] {
    texts::TABLE
}

/// The explanation of a code.
pub fn of(code: &str) -> Option<&'static Explanation> {
    texts::TABLE.iter().find(|explanation| explanation.code == code)
}

/// The known code that a mistyped one is closest to, if any is close.
pub fn nearest(code: &str) -> Option<&'static str> {
    let near = texts::TABLE.iter().map(|known| (distance(known.code, code), known.code)).min()?;
    let contains = texts::TABLE.iter().find(|known| !code.is_empty() && known.code.contains(code));
    (near.0 <= code.len() / 3).then_some(near.1).or(contains.map(|known| known.code))
}

/// Edits that turn one text into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Text constants of calls that make findings: `Finding::warn("code"`, also over a line break.
    fn codes_in(source: &str) -> Vec<String> {
        let mut codes = Vec::new();
        for maker in ["Finding::note(", "Finding::warn(", "Finding::refuse(", "suspect("] {
            for (_, rest) in
                source.match_indices(maker).map(|(at, _)| source.split_at(at + maker.len()))
            {
                if let Some(text) = rest.trim_start().strip_prefix('"') {
                    codes.extend(text.split('"').next().map(str::to_string));
                }
            }
        }
        codes
    }

    fn walk(directory: &Path, codes: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).expect("listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, codes);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).expect("readable");
                let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                codes.extend(codes_in(shipped));
            }
        }
    }

    #[test]
    fn every_finding_of_the_sources_has_a_text() {
        let mut codes = Vec::new();
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut codes);
        assert!(codes.len() > 25, "the walk finds findings: {codes:?}");
        let missing: Vec<&String> = codes.iter().filter(|code| of(code).is_none()).collect();
        assert!(missing.is_empty(), "without a text in explain/texts.rs: {missing:?}");
    }

    #[test]
    fn the_table_is_sorted_and_complete() {
        assert!(all().is_sorted_by(|a, b| a.code < b.code));
        for explanation in all() {
            let code = explanation.code;
            assert!(code.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{code}");
            assert!(explanation.meaning.len() > 60 && explanation.remedy.len() > 30, "{code}");
            assert!(
                explanation.meaning.ends_with('.') && explanation.remedy.ends_with('.'),
                "{code}"
            );
            assert!(!explanation.title.ends_with('.') && explanation.title.len() <= 56, "{code}");
        }
    }

    #[test]
    fn a_mistyped_code_finds_its_neighbour() {
        assert_eq!(nearest("barrier-off"), Some("barriers-off"));
        assert_eq!(nearest("throttling"), Some("throttling-suspected"));
        assert_eq!(nearest("zzzzzz"), None);
        assert_eq!(nearest(""), None);
    }
}
