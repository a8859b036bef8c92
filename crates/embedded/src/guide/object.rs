//! The guide of an answer that is one JSON object: the model writes a value, and all around it is forced.

use super::NextMove;

/// Guides one object.
#[derive(Debug, Clone)]
pub(crate) struct ObjectGuide {
    opening: String,
    value: String,
    closing: String,
}

impl ObjectGuide {
    /// An object that begins with `opening`, then has a value that begins with `value`, and ends with `closing`.
    pub(crate) fn new(opening: &str, value: &str, closing: &str) -> Self {
        Self { opening: opening.to_owned(), value: value.to_owned(), closing: closing.to_owned() }
    }

    /// Forces the beginning, lets the model write the value, and forces the end.
    pub(crate) fn next(&self, text: &str) -> NextMove {
        let Some(value) = text.strip_prefix(self.opening.as_str()) else {
            return NextMove::Replace { from: 0, with: format!("{}{}", self.opening, self.value) };
        };
        match end_of_value(value) {
            None => NextMove::SAMPLE,
            Some(end) => self.close(text, self.opening.len() + end),
        }
    }

    /// Decides when the model wants to end: a number ends where the text does, anything else is not complete.
    pub(crate) fn at_end(&self, text: &str) -> NextMove {
        let value = text.strip_prefix(self.opening.as_str()).unwrap_or_default();
        if value.is_empty() || value.starts_with(['"', '{', '[']) {
            return NextMove::Stop { keep: text.len() };
        }
        self.close(text, text.len())
    }

    /// The value ends at this place.
    fn close(&self, text: &str, end: usize) -> NextMove {
        if text.get(end..).is_some_and(|rest| rest.starts_with(self.closing.as_str())) {
            return NextMove::Stop { keep: end + self.closing.len() };
        }
        NextMove::Replace { from: end, with: self.closing.clone() }
    }
}

/// Where the JSON value at the start of a text ends; `None`: it goes on.
fn end_of_value(text: &str) -> Option<usize> {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => {
                in_text = !in_text;
                if !in_text && depth == 0 {
                    return Some(at + 1);
                }
            }
            _ if in_text => {}
            b'{' | b'[' => depth += 1,
            // A bracket that the value did not open, or that follows it, is not part of it.
            b'}' | b']' | b',' | b' ' | b'\n' if depth == 0 && at > 0 => return Some(at),
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_where_it_is_complete() {
        for (text, end) in [
            ("", None),
            ("\"a } b", None),
            ("\"a \\\" } b\"", Some(10)),
            ("\"a\"}, and more", Some(3)),
            ("{\"x\": [1, \"}\"]", None),
            ("{\"x\": [1, \"}\"]} and more", Some(15)),
            ("[{\"x\": 1}]}", Some(10)),
            ("12", None),
            ("12}", Some(2)),
            ("true, \"", Some(4)),
            ("null\n", Some(4)),
        ] {
            assert_eq!(end_of_value(text), end, "{text}");
        }
    }

    #[test]
    fn all_around_the_value_is_forced() {
        let guide = ObjectGuide::new("{\"answer\": ", "\"", "}");
        let replace = |from, with: &str| NextMove::Replace { from, with: with.to_owned() };
        for (text, next) in [
            ("", replace(0, "{\"answer\": \"")),
            ("{\"answer\": \"", NextMove::SAMPLE),
            ("{\"answer\": \"bug", NextMove::SAMPLE),
            ("{\"answer\": \"bug\"", replace(16, "}")),
            ("{\"answer\": \"bug\", \"note", replace(16, "}")),
            ("{\"answer\": \"bug\"}", NextMove::Stop { keep: 17 }),
            ("{\"answer\": \"bug\"} more", NextMove::Stop { keep: 17 }),
        ] {
            assert_eq!(guide.next(text), next, "{text}");
        }
        let number = ObjectGuide::new("{\"answer\": ", "", "}");
        assert_eq!(number.at_end("{\"answer\": 12"), replace(13, "}"));
        assert_eq!(number.at_end("{\"answer\": \"un"), NextMove::Stop { keep: 14 });
    }
}
