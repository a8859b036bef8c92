//! How much of a failure its retry's feedback holds: enough to repair it, within a limit.

use crate::excerpt::shortened;

/// Bytes of a failing program in feedback.
const CODE_BYTES: usize = 900;
/// Characters of a failure's message in feedback.
const MESSAGE_CHARS: usize = 300;

/// The text of a failing program: all of it, or the lines around one, with the number of the first.
pub(super) fn excerpt(source: &str, line: Option<u32>) -> (Option<usize>, String) {
    if source.len() <= CODE_BYTES {
        return (None, source.to_owned());
    }
    let lines: Vec<&str> = source.split_inclusive('\n').collect();
    let last = lines.len().saturating_sub(1);
    let place = line.map_or(0, |line| (line as usize).saturating_sub(1)).min(last);
    let around = |count: usize| {
        let from = place.saturating_sub(count);
        let to = place.saturating_add(count).min(last);
        (from, lines.get(from..=to).unwrap_or_default().concat())
    };
    let fitting = (0..lines.len()).map(around).take_while(|(_, code)| code.len() <= CODE_BYTES);
    match fitting.last() {
        Some((from, code)) => (Some(from + 1), code),
        None => (Some(place + 1), message(lines.get(place).copied().unwrap_or_default())),
    }
}

/// A message, cut when it is long.
pub(super) fn message(text: &str) -> String {
    shortened(text, MESSAGE_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_program_is_shown_around_its_failure() {
        let line = |number: usize| format!("line_{number:03} = {number}\n");
        let program: String = (1..=400).map(line).collect();
        for place in [1, 2, 200, 399, 400, 9999] {
            let (from, code) = excerpt(&program, Some(place));
            let place = (place as usize).min(400);
            assert!(code.len() <= CODE_BYTES && code.contains(&line(place)), "{place}: {code}");
            assert!(code.starts_with(&line(from.unwrap())), "{place}: {from:?}");
        }
        assert_eq!(excerpt("result = 1", Some(1)), (None, "result = 1".to_owned()));
        let (from, code) = excerpt(&"é".repeat(5000), None);
        assert_eq!((from, code.chars().count()), (Some(1), MESSAGE_CHARS + 1));
    }
}
