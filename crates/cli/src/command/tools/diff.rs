//! Two versions of a program, line by line: side by side if there is room, else one below the other.

use std::ops::Range;

use similar::{Algorithm, DiffTag, capture_diff_slices, group_diff_ops};

use crate::render::paint::{Paint, Style, clean, clip, padded};

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 2;
/// Most lines that are shown of one comparison.
const MAX_LINES: usize = 80;
/// Columns from which two programs are shown side by side.
const MIN_COLUMNS_FOR_TWO: usize = 90;

/// Lines of a comparison.
enum DiffLine<'a> {
    Same(&'a str, &'a str),
    Changed(&'a str, &'a str),
    Removed(&'a str),
    Added(&'a str),
    /// Unchanged lines were left out here.
    Cut,
}

/// What changed from an older to a newer text, in lines of at most `width` columns.
pub(super) fn lines(older: &str, newer: &str, width: usize, paint: Paint) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (older.lines().collect(), newer.lines().collect());
    let compared = compared(&old, &new);
    let mut lines: Vec<String> = if width >= MIN_COLUMNS_FOR_TWO {
        compared.iter().map(|line| side_by_side(line, width, paint)).collect()
    } else {
        one_below_the_other(&compared, width, paint)
    };
    let more = lines.len().saturating_sub(MAX_LINES);
    if more > 1 {
        lines.truncate(MAX_LINES);
        lines.push(format!("… {more} more lines"));
    }
    lines
}

/// What stands above the lines of a comparison: over each of two columns, or both in one line.
pub(super) fn heading(older: &str, newer: &str, width: usize) -> String {
    if width >= MIN_COLUMNS_FOR_TWO {
        format!("{}   {newer}", padded(older, half(width)))
    } else {
        format!("{older} | {newer}")
    }
}

/// The columns of each of two programs.
fn half(width: usize) -> usize {
    width.saturating_sub(3) / 2
}

fn compared<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<DiffLine<'a>> {
    if old == new {
        return Vec::new();
    }
    let changes = capture_diff_slices(Algorithm::Patience, old, new);
    let mut lines = Vec::new();
    for (index, group) in group_diff_ops(changes, CONTEXT_LINES).into_iter().enumerate() {
        if index > 0 {
            lines.push(DiffLine::Cut);
        }
        for change in group {
            let (tag, old_range, new_range) = change.as_tag_tuple();
            let (old, new) = (part(old, old_range), part(new, new_range));
            let both = old.iter().zip(new).map(|(old, new)| match tag {
                DiffTag::Equal => DiffLine::Same(old, new),
                DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => DiffLine::Changed(old, new),
            });
            let removed = old.iter().skip(new.len()).map(|line| DiffLine::Removed(line));
            let added = new.iter().skip(old.len()).map(|line| DiffLine::Added(line));
            lines.extend(both.chain(removed).chain(added));
        }
    }
    lines
}

fn part<'l, 'a>(lines: &'l [&'a str], range: Range<usize>) -> &'l [&'a str] {
    lines.get(range).unwrap_or_default()
}

/// As `diff --side-by-side` marks it: `|` changed, `<` removed, `>` added.
fn side_by_side(line: &DiffLine<'_>, width: usize, paint: Paint) -> String {
    let half = half(width);
    let (left, mark, right) = match line {
        DiffLine::Same(old, new) => (*old, ' ', *new),
        DiffLine::Changed(old, new) => (*old, '|', *new),
        DiffLine::Removed(old) => (*old, '<', ""),
        DiffLine::Added(new) => ("", '>', *new),
        DiffLine::Cut => return paint.in_style(Style::Faint, "…"),
    };
    let left = padded(&clip(&clean(left), half), half);
    let right = clip(&clean(right), half);
    let [left, right] = match mark {
        ' ' => [paint.in_style(Style::Faint, &left), paint.in_style(Style::Faint, &right)],
        _ => [paint.in_style(Style::Bad, &left), paint.in_style(Style::Good, &right)],
    };
    format!("{left} {mark} {right}").trim_end().to_owned()
}

/// Removed lines of a change before its added ones, as patches have them.
fn one_below_the_other(compared: &[DiffLine<'_>], width: usize, paint: Paint) -> Vec<String> {
    let line = |style: Style, mark: char, text: &str| {
        paint.in_style(style, clip(&format!("{mark} {}", clean(text)), width).trim_end())
    };
    let (mut lines, mut added) = (Vec::new(), Vec::new());
    for compared in compared {
        match compared {
            DiffLine::Changed(old, new) => {
                lines.push(line(Style::Bad, '-', old));
                added.push(line(Style::Good, '+', new));
            }
            DiffLine::Removed(old) => lines.push(line(Style::Bad, '-', old)),
            DiffLine::Added(new) => added.push(line(Style::Good, '+', new)),
            DiffLine::Same(_, new) => {
                lines.append(&mut added);
                lines.push(line(Style::Faint, ' ', new));
            }
            DiffLine::Cut => {
                lines.append(&mut added);
                lines.push(paint.in_style(Style::Faint, "…"));
            }
        }
    }
    lines.append(&mut added);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "def share(n):\n    return 8 // n\n\n# a\n# b\n# c\n# d\n# e\nx = 1";
    const NEW: &str = "def share(n):\n    if n:\n        return 8 // n\n    return 0\n\n# a\n# b\n# c\n# d\n# e\nx = 2";

    #[test]
    fn a_narrow_comparison_reads_like_a_patch() {
        let shown = lines(OLD, NEW, 40, Paint { colour: false });
        assert_eq!(
            shown,
            [
                "  def share(n):",
                "-     return 8 // n",
                "+     if n:",
                "+         return 8 // n",
                "+     return 0",
                "",
                "  # a",
                "…",
                "  # d",
                "  # e",
                "- x = 1",
                "+ x = 2",
            ]
        );
        assert!(lines(OLD, OLD, 40, Paint { colour: false }).is_empty());
    }

    #[test]
    fn a_wide_comparison_has_both_texts_on_a_line() {
        let shown = lines(OLD, NEW, 91, Paint { colour: false });
        let half = " ".repeat(44 - "    return 8 // n".len());
        assert_eq!(shown[1], format!("    return 8 // n{half} |     if n:"));
        assert_eq!(shown[2], format!("{} >         return 8 // n", " ".repeat(44)));
        assert!(shown.iter().all(|line| line.chars().count() <= 91), "{shown:#?}");
    }
}
