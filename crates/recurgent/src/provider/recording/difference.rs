//! How two prompts differ. Text that changes from run to run is ignored; the first other differences are shown,
//! shortened.

/// Lines of a difference that are shown.
const MAX_LINES: usize = 3;
/// Characters shown on each side of the first difference in a line.
const AROUND: usize = 60;

/// The beginning of the line that names the function to write. Recordings of version 0.1 lack it.
const HEAD_LINE: &str = "Write exactly this function: `";

/// A prompt without addresses in a worker's memory, which no two runs share, and without the line that follows from the
/// call.
pub(super) fn masked(text: &str) -> String {
    let lines = text.split_inclusive('\n').filter(|line| !line.starts_with(HEAD_LINE));
    let text: String = lines.collect();
    let text = text.as_str();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("0x") {
        let (before, from) = rest.split_at(at + 2);
        out.push_str(before);
        rest = from.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    out + rest
}

/// The lines that differ, each around its first difference.
pub(super) fn difference(recorded: &str, now: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (recorded.lines().collect(), now.lines().collect());
    let mut lines = Vec::new();
    for at in 0..old.len().max(new.len()) {
        let (old, new) = (old.get(at).copied(), new.get(at).copied());
        if old.map(masked) == new.map(masked) {
            continue;
        }
        if lines.len() == 2 * MAX_LINES {
            lines.push("  …".to_owned());
            break;
        }
        let common = common_chars(old.unwrap_or_default(), new.unwrap_or_default());
        let shown = |line: Option<&str>| line.map_or("(nothing)".to_owned(), |l| around(l, common));
        lines.push(format!("- {}", shown(old)));
        lines.push(format!("+ {}", shown(new)));
    }
    lines.join("\n")
}

fn common_chars(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
}

/// The name of a line, and the text around a place in it.
fn around(line: &str, place: usize) -> String {
    let name = line.split_once(": ").map_or("", |(name, _)| name);
    let start = place.saturating_sub(AROUND);
    let piece: String = line.chars().skip(start).take(2 * AROUND).collect();
    let open = if start == 0 { String::new() } else { format!("{name}: …") };
    let close = if line.chars().count() > start + 2 * AROUND { "…" } else { "" };
    format!("{open}{piece}{close}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let old = format!(
            "invocation: {{\"role\": \"a\"}}\nknown_tools: {}1{}\n",
            "x".repeat(200),
            "y".repeat(200)
        );
        let new = old.replace("x1y", "x2y") + "history: 3\n";
        let shown = difference(&old, &new);
        let (minus, plus) =
            (format!("- known_tools: …{}1", "x".repeat(AROUND)), format!("{}2y", "x".repeat(9)));
        assert!(shown.starts_with(&minus) && shown.contains(&plus), "{shown}");
        assert!(shown.ends_with("- (nothing)\n+ history: 3"), "{shown}");
        assert!(!shown.contains("invocation"), "{shown}");
    }

    #[test]
    fn addresses_in_memory_do_not_count() {
        assert_eq!(masked("<f at 0x7f00aB> and 0x"), masked("<f at 0x1> and 0xdead"));
        assert_ne!(masked("0x1 g"), masked("0x1 h"));
    }

    #[test]
    fn a_recording_without_the_function_to_write_is_the_same() {
        let now =
            "invocation: {}\nWrite exactly this function: `def add(x):`\nWrite the program.\n";
        assert_eq!(masked(now), masked("invocation: {}\nWrite the program.\n"));
    }
}
