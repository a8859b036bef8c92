//! A payload out of what a model wrote when it wrote more than a payload: prose around it, a code
//! fence, raw line ends inside strings. The payload is not trusted yet: the payload parser and the
//! guest language's own parser remain the judges.

use serde_json::{Value, json};

/// Texts longer than this are not searched.
const MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;
/// Places in a text where an object may begin that are tried.
const MAX_STARTS: usize = 64;
/// Fence labels of blocks that are not programs but say how to install or run one.
const NOT_PROGRAMS: [&str; 7] = ["bash", "sh", "shell", "console", "text", "output", "toml"];

/// The payload in a model's text: the whole of it, an object in it that has `code`, or a fenced program.
///
/// ```
/// # use lifecycle::draft::salvage;
/// let text = "Here you are:\n```python\nresult = args[0]\n```\nEnjoy!";
/// assert_eq!(salvage(text).unwrap()["code"], "result = args[0]\n");
/// assert!(salvage("I cannot do that.").is_none());
/// ```
pub fn salvage(text: &str) -> Option<Value> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let trimmed = text.trim_start_matches('\u{feff}').trim();
    if let Some(whole) = object(trimmed) {
        return Some(whole);
    }
    let trimmed = answered(trimmed);
    let fences = fences(trimmed);
    let in_fence = fences.iter().find_map(|fence| object(fence.body.trim()).filter(is_payload));
    in_fence
        .or_else(|| objects(trimmed).find(is_payload))
        .or_else(|| fences.iter().find(|fence| fence.is_program()).map(Fence::payload))
}

/// The object in a model's text: the whole of it, or one in it that `is_it`.
pub(crate) fn object_in(text: &str, is_it: impl Fn(&Value) -> bool) -> Option<Value> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let trimmed = answered(text.trim_start_matches('\u{feff}').trim());
    let in_fence = || fences(trimmed).iter().find_map(|fence| object(fence.body.trim()));
    let whole = object(trimmed).or_else(in_fence);
    whole.filter(&is_it).or_else(|| objects(trimmed).find(&is_it))
}

/// The program in the answer of a model that was asked for a program only: the first fenced one, or the whole text.
pub(super) fn program(text: &str) -> &str {
    let answer = answered(text.trim_start_matches('\u{feff}').trim());
    let fenced = fences(answer).into_iter().find(Fence::is_program);
    fenced.map_or(answer, |fence| fence.body)
}

/// What a model says after it thought aloud: drafts of the program are not the answer.
fn answered(text: &str) -> &str {
    match text.strip_prefix("<think>").and_then(|rest| rest.split_once("</think>")) {
        Some((_, answer)) => answer.trim(),
        None => text,
    }
}

fn is_payload(value: &Value) -> bool {
    value.get("code").is_some_and(Value::is_string)
}

/// The text as one JSON object, also with raw line ends and tabs inside its strings.
fn object(text: &str) -> Option<Value> {
    if !text.starts_with('{') {
        return None;
    }
    let parsed = serde_json::from_str::<Value>(text).ok();
    parsed.or_else(|| serde_json::from_str(&escaped(text)).ok()).filter(Value::is_object)
}

/// Every object that begins somewhere in the text and can be read.
fn objects(text: &str) -> impl Iterator<Item = Value> {
    text.match_indices('{').take(MAX_STARTS).filter_map(|(start, _)| {
        let rest = text.get(start..)?;
        rest.get(..balanced(rest)?).and_then(object)
    })
}

/// Where the object at the start of `text` ends.
fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut skip) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if skip => skip = false,
            b'\\' if in_string => skip = true,
            b'"' => in_string = !in_string,
            b'{' if !in_string => depth += 1,
            b'}' if !in_string => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The text with control characters inside strings escaped, as JSON wants them.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let (mut in_string, mut skip) = (false, false);
    for c in text.chars() {
        match c {
            '\n' if in_string => out.push_str("\\n"),
            '\r' if in_string => out.push_str("\\r"),
            '\t' if in_string => out.push_str("\\t"),
            _ => out.push(c),
        }
        match c {
            _ if skip => skip = false,
            '\\' if in_string => skip = true,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    out
}

/// A fenced block.
struct Fence<'a> {
    label: &'a str,
    body: &'a str,
}

impl Fence<'_> {
    fn is_program(&self) -> bool {
        let label = self.label.to_ascii_lowercase();
        !self.body.trim().is_empty()
            && !NOT_PROGRAMS.contains(&label.as_str())
            && !label.starts_with("json")
    }

    fn payload(&self) -> Value {
        json!({"code": self.body, "dependencies": []})
    }
}

/// The fenced blocks of a text, in order; one that is never closed ends with the text.
fn fences(text: &str) -> Vec<Fence<'_>> {
    let mut found = Vec::new();
    // Where the open block's body begins, how its fence is written, its label.
    let mut open: Option<(usize, &str, &str)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        let marks = bare.len() - bare.trim_start_matches('`').len();
        match open {
            Some((start, fence, label)) if bare.starts_with(fence) && marks == bare.len() => {
                found.extend(text.get(start..at).map(|body| Fence { label, body }));
                open = None;
            }
            None if marks >= 3 => {
                let label = bare.get(marks..).unwrap_or_default().trim();
                open = Some((at + line.len(), bare.get(..marks).unwrap_or_default(), label));
            }
            Some(_) | None => {}
        }
        at += line.len();
    }
    if let Some((start, _, label)) = open {
        found.extend(text.get(start..).map(|body| Fence { label, body }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that every case below holds.
    const CODE: &str = "x = {'a': \"}\"}\nresult = x";

    fn payload() -> String {
        json!({"code": CODE, "dependencies": []}).to_string()
    }

    #[test]
    fn a_payload_is_found_in_what_models_write() {
        let raw = format!("{{\"code\": \"{}\", \"dependencies\": []}}", CODE.replace('"', "\\\""));
        for text in [
            payload(),
            format!("\u{feff}\n  {}\n", payload()),
            format!("Sure! Here it is:\n\n{}\n\nIt maps {{a}} to }}.", payload()),
            format!("```json\n{}\n```", payload()),
            format!("Use {{}} with care.\n```\n{}\n```\ndone", payload()),
            raw.clone(),
            format!("```json\n{raw}\n```"),
            format!("<think>\n{{\"code\": \"wrong\"}}, no: </think>\n\n{}", payload()),
            format!("<think>```py\nwrong\n```</think>{raw}"),
        ] {
            let found = salvage(&text).unwrap_or_else(|| panic!("nothing in {text:?}"));
            assert_eq!(found["code"], CODE, "{text:?}");
        }
    }

    #[test]
    fn a_program_is_the_first_fenced_block_or_everything() {
        for (text, code) in [
            ("def f():\n    return 1\n", "def f():\n    return 1"),
            ("Here:\n```python\nx = 1\n```\nand\n```python\ny = 2\n```", "x = 1\n"),
            ("```python\nx = 1", "x = 1"),
            ("<think>```\nno\n```</think>x = 2", "x = 2"),
            ("", ""),
        ] {
            assert_eq!(program(text), code, "{text:?}");
        }
    }

    #[test]
    fn a_fenced_program_is_found_and_a_fenced_command_is_not() {
        for (text, code) in [
            ("```python\nresult = 1\n```", Some("result = 1\n")),
            ("```bash\npip install x\n```\n```python\nresult = 1\n```", Some("result = 1\n")),
            ("````ruby\nx = '```'\n````", Some("x = '```'\n")),
            ("```py\nresult = 1", Some("result = 1")),
            ("```sh\nls\n```", None),
            ("```python\n\n```", None),
            ("no program", None),
            ("", None),
            ("{\"code\"", None),
        ] {
            let found = salvage(text);
            assert_eq!(found.as_ref().and_then(|f| f["code"].as_str()), code, "{text:?}");
        }
    }

    /// Every text of a small alphabet up to some length, and long hostile ones: an answer, never a panic.
    #[test]
    fn no_text_makes_it_panic() {
        let alphabet = ["{", "}", "\"", "\\", "`", "```\n", "é", "\n", "code", ":"];
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            let longer =
                texts.iter().flat_map(|text| alphabet.map(|piece| format!("{text}{piece}")));
            texts = longer.collect();
            for text in &texts {
                let _ = salvage(text);
            }
        }
        for piece in ["{", "[{\"code\":", "```", "\\\"", "{\"code\": \"x\"}"] {
            let _ = salvage(&piece.repeat(20_000));
        }
    }
}
