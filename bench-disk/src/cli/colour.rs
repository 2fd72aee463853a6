//! Colour for people: only on a terminal, and not where NO_COLOR asks for none.

use std::io::IsTerminal;

const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";
const BOLD: &str = "\u{1b}[1m";
const PLAIN: &str = "\u{1b}[0m";

/// The text with its answer, its warnings and its slow syncs coloured, where that is wanted.
pub(crate) fn paint(text: &str) -> String {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if set("NO_COLOR") || dumb || !std::io::stdout().is_terminal() {
        return text.into();
    }
    text.split_inclusive('\n').map(line).collect()
}

/// Colours by the words that lines begin with; what is coloured is also told in words.
fn line(line: &str) -> String {
    let start = line.trim_start();
    let marks = [
        ("PASS:", GREEN),
        ("VALID:", GREEN),
        ("FAIL:", RED),
        ("REFUSED", RED),
        ("INCONCLUSIVE:", YELLOW),
        ("NOT VALID:", YELLOW),
        ("NOT MEASURED:", BOLD),
        ("warning:", YELLOW),
        ("refused:", RED),
    ];
    if let Some((word, colour)) = marks.iter().find(|(word, _)| start.starts_with(word)) {
        let indent = &line[..line.len() - start.len()];
        return format!("{indent}{colour}{word}{PLAIN}{}", &start[word.len()..]);
    }
    if let Some(at) =
        line.find(" !").filter(|_| start.starts_with("<=") || start.starts_with("more"))
    {
        return format!("{}{RED}{}{PLAIN}\n", &line[..=at], line[at + 1..].trim_end());
    }
    // Titles of sections.
    let title = line.trim_end();
    if title.len() > 3
        && !line.starts_with(' ')
        && title.chars().all(|c| c.is_uppercase() || " ,".contains(c))
    {
        return format!("{BOLD}{title}{PLAIN}\n");
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_coloured_and_nothing_is_lost() {
        for (plain, colour) in [
            ("PASS: p99 0.3 ms\n", GREEN),
            ("  refused: no [x]\n", RED),
            ("    <= 15 ms        2 !!\n", RED),
            ("FILE SYSTEM\n", BOLD),
        ] {
            let painted = line(plain);
            assert!(painted.contains(colour) && painted.ends_with('\n'), "{painted:?}");
            assert_eq!(painted.replace(colour, "").replace(PLAIN, ""), plain);
        }
        assert_eq!(line("  <= 0.30 ms      880 ###\n"), "  <= 0.30 ms      880 ###\n");
    }
}
