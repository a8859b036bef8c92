//! Text on a terminal: colour, columns, and nothing a program says may move the cursor.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A heading.
    Title,
    /// The name of a call.
    Name,
    /// A good answer.
    Good,
    /// A failure.
    Bad,
    /// Something that was put right.
    Warning,
    /// What may be overlooked.
    Faint,
}

impl Style {
    /// The SGR parameters.
    fn code(self) -> &'static str {
        match self {
            Self::Title => "1",
            Self::Name => "36",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warning => "33",
            Self::Faint => "2",
        }
    }
}

/// Whether text is coloured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    /// Whether it is.
    pub(crate) colour: bool,
}

impl Paint {
    /// The text in a style.
    pub(crate) fn in_style(self, style: Style, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", style.code())
        } else {
            text.to_owned()
        }
    }
}

/// Text without characters that would move the cursor, change colours or reorder what follows.
pub(crate) fn clean(text: &str) -> String {
    let harmless = |c: char| match c {
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.replace('\t', "    ").chars().map(harmless).collect()
}

/// Lines of harmless text: a line break stays one, so that a message of several lines is read as such.
pub(crate) fn clean_lines(text: &str) -> Vec<String> {
    text.split('\n').map(|line| clean(line.trim_end_matches('\r'))).collect()
}

/// Columns that a text takes on a terminal; a wide character takes two.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Text that takes at most `room` columns, cut with an ellipsis.
pub(crate) fn clip(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let mut left = room.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or_default();
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    let kept: String = text.chars().take_while(fits).collect();
    if room == 0 { kept } else { kept + "…" }
}

/// Text followed by as many spaces as fill `room` columns.
pub(crate) fn padded(text: &str, room: usize) -> String {
    format!("{text}{}", " ".repeat(room.saturating_sub(columns(text))))
}

/// Harmless text broken between words into at most `most` lines of at most `room` columns.
pub(crate) fn wrapped(text: &str, room: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace().map(clean) {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(&word) <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(_) | None => lines.push(word),
        }
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            last.push_str(" …");
        }
    }
    lines.iter().map(|line| clip(line, room)).collect()
}

/// Harmless text broken between words into lines of at most `room` columns. A word that is longer than a line, such as a
/// path, is continued on the next: nothing is left out.
pub(crate) fn broken(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace().map(clean) {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(&word) <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(_) | None => lines.extend(pieces(&word, room.max(2))),
        }
    }
    lines
}

/// A line that was painted, broken between words into lines of at most `room` columns. A continued line is indented by
/// two more than the line. Colour takes no columns and goes on in the next line.
pub(crate) fn folded(line: &str, room: usize) -> Vec<String> {
    if painted_columns(line) <= room {
        return vec![line.to_owned()];
    }
    let text = line.trim_start_matches(' ');
    let indent = (line.len() - text.len()).min(room / 2);
    let mut lines = vec![" ".repeat(indent)];
    let mut is_begun = false;
    for word in text.split(' ') {
        let taken = lines.last().map_or(0, |last| painted_columns(last));
        let width = painted_columns(word);
        match lines.last_mut() {
            Some(last) if !is_begun => last.push_str(word),
            Some(last) if taken + 1 + width <= room => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) | None => {
                let margin = " ".repeat(indent + 2);
                let room = room.saturating_sub(indent + 2).max(2);
                // A painted word is a name or a label, and short.
                let is_long = width > room && !word.contains('\x1b');
                let words = if is_long { pieces(word, room) } else { vec![word.to_owned()] };
                lines.extend(words.iter().map(|word| format!("{margin}{word}")));
            }
        }
        is_begun = true;
    }
    lines
}

/// Columns of a text without its colours.
fn painted_columns(text: &str) -> usize {
    let mut pieces = text.split("\x1b[");
    let plain = pieces.next().map_or(0, columns);
    let after_colour = |piece: &str| piece.split_once('m').map_or(0, |(_, rest)| columns(rest));
    plain + pieces.map(after_colour).sum::<usize>()
}

/// A word in pieces of at most `room` columns.
fn pieces(word: &str, room: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for c in word.chars() {
        match pieces.last_mut() {
            Some(piece) if columns(piece) + c.width().unwrap_or_default() <= room => piece.push(c),
            Some(_) | None => pieces.push(c.to_string()),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_cannot_move_the_cursor() {
        assert_eq!(clean("a\x1b[2Jb\r\u{202e}c\td"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c    d");
    }

    #[test]
    fn long_text_is_cut_or_wrapped() {
        assert_eq!((clip("abcdef", 4), clip("abcd", 4)), ("abc…".to_owned(), "abcd".to_owned()));
        assert_eq!(wrapped("one two three four", 7, 2), ["one two", "three …"]);
        assert_eq!(wrapped("unbreakable", 5, 3), ["unbr…"]);
    }

    #[test]
    fn wide_characters_count_by_the_columns_they_take() {
        assert_eq!(columns("東京 ok"), 7);
        assert_eq!(clip("東京都", 4), "東…");
        assert_eq!(
            (clip("東京", 4), clip("é\u{301}x", 2)),
            ("東京".to_owned(), "é\u{301}x".to_owned())
        );
        assert_eq!(padded("東", 4), "東  ");
        assert_eq!(wrapped("東京 都 x", 4, 3), ["東京", "都 x"]);
        assert_eq!(clip("ab", 0), "");
    }

    #[test]
    fn broken_text_keeps_every_letter() {
        assert_eq!(broken("one two three", 7), ["one two", "three"]);
        assert_eq!(broken("see /very/long/path x", 7), ["see", "/very/l", "ong/pat", "h x"]);
    }

    #[test]
    fn a_painted_line_is_folded_between_words() {
        let line = "  \x1b[31mone two\x1b[0m three four";
        assert_eq!(folded(line, 14), ["  \x1b[31mone two\x1b[0m", "    three four"]);
        assert_eq!(folded(line, 40), [line]);
        assert_eq!(
            folded("  a: /very/long/path", 8),
            ["  a:", "    /ver", "    y/lo", "    ng/p", "    ath"]
        );
    }

    #[test]
    fn line_breaks_stay_line_breaks() {
        assert_eq!(clean_lines("a\r\nb\x1bc"), ["a", "b\u{fffd}c"]);
    }
}
