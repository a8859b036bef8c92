//! Text on a terminal: colour, columns, and nothing a program says may move the cursor.

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

/// Text that takes at most `room` columns, cut with an ellipsis.
pub(crate) fn clip(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// Harmless text broken between words into at most `most` lines of at most `room` columns.
pub(crate) fn wrapped(text: &str, room: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace().map(clean) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
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
}
