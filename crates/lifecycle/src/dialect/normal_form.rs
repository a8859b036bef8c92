//! The normal form of a program: its tokens, without comments and layout. Programs that differ only in those are the
//! same program to a person.

use std::ops::Range;

use ruby_prism as prism;
use ruby_prism::Visit;
use ruff_python_ast::PythonVersion;
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use ruff_text_size::Ranged;

use super::recorder::InspectionRecorder;
use super::{Language, inspect, with_stack};

/// Stands between tokens; no program text needs it.
const SEPARATOR: char = '\u{1f}';

/// Whether two texts are the same program, apart from comments and layout.
pub fn is_same_program(language: Language, one: &str, other: &str) -> bool {
    one == other
        || normal_form(language, one).is_some_and(|form| normal_form(language, other) == Some(form))
}

/// The normal form of a program; `None`: it cannot be read.
fn normal_form(language: Language, source: &str) -> Option<String> {
    // Also bounds the nesting of what is read below.
    inspect(language, source).ok()?;
    Some(with_stack(source, || match language {
        Language::Python => python(source),
        Language::Ruby => ruby(source),
    }))
}

/// Tokens whose text is white space, and what stands for them.
const LAYOUT: [(TokenKind, &str); 3] =
    [(TokenKind::Newline, "\n"), (TokenKind::Indent, "{"), (TokenKind::Dedent, "}")];

fn python(source: &str) -> String {
    let options = ParseOptions::from(Mode::Module).with_target_version(PythonVersion::latest());
    let parsed = parse_unchecked(source, options);
    let mut form = String::with_capacity(source.len());
    for token in parsed.tokens() {
        let kind = token.kind();
        if kind.is_trivia() {
            continue;
        }
        let layout = LAYOUT.iter().find(|(known, _)| *known == kind).map(|(_, text)| *text);
        let own = || source.get(token.range().to_std_range()).unwrap_or_default();
        form.push_str(layout.unwrap_or_else(own));
        form.push(SEPARATOR);
    }
    form
}

fn ruby(source: &str) -> String {
    let parsed = prism::parse(source.as_bytes());
    let mut literals = Literals { recorder: InspectionRecorder::new(source), ranges: Vec::new() };
    literals.visit(&parsed.node());
    let comments: Vec<Range<usize>> =
        parsed.comments().map(|comment| literals.range(&comment.location())).collect();
    let is_in = |ranges: &[Range<usize>], at| ranges.iter().any(|range| range.contains(&at));
    let mut form = String::with_capacity(source.len());
    let (mut is_spaced, mut is_new_line) = (false, false);
    for (at, character) in source.char_indices() {
        let is_literal = is_in(&literals.ranges, at);
        if !is_literal && (character.is_whitespace() || is_in(&comments, at)) {
            is_new_line |= character == '\n';
            is_spaced = true;
            continue;
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let joins = is_word(character) && form.chars().next_back().is_some_and(is_word);
        if is_new_line && !form.is_empty() {
            form.push('\n');
        } else if is_spaced && joins {
            form.push(' ');
        }
        (is_spaced, is_new_line) = (false, false);
        form.push(character);
    }
    form
}

/// The places of a Ruby program where white space is content.
struct Literals<'s> {
    recorder: InspectionRecorder<'s>,
    ranges: Vec<Range<usize>>,
}

impl Literals<'_> {
    fn range(&self, location: &prism::Location<'_>) -> Range<usize> {
        let start = self.recorder.offset(location.start_line(), location.start_column());
        start..self.recorder.offset(location.end_line(), location.end_column())
    }
}

impl<'pr> Visit<'pr> for Literals<'_> {
    fn visit_leaf_node_enter(&mut self, node: prism::Node<'pr>) {
        let content = None
            .or_else(|| node.as_string_node().map(|it| it.content_loc()))
            .or_else(|| node.as_x_string_node().map(|it| it.content_loc()))
            .or_else(|| node.as_regular_expression_node().map(|it| it.content_loc()))
            .or_else(|| node.as_symbol_node().map(|it| it.location()));
        if let Some(content) = content {
            let range = self.range(&content);
            self.ranges.push(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_layout_do_not_make_another_program() {
        use Language::{Python, Ruby};
        for (language, one, other, expected) in [
            (Python, "result = args[0] + 1", "result = args[0] + 1\n", true),
            (Python, "result = args[0] + 1", "# adds\nresult=args[0]+1  # one\n\n", true),
            (Python, "def d(x):\n    return x + 1", "def d(x):\n\n  return (x + 1)", false),
            (Python, "def d(x):\n    return x + 1", "def d(x):\n\n  return x+1\n", true),
            (Python, "if a:\n  b()\nc()", "if a:\n  b()\n  c()", false),
            (Python, "result = 'a b'", "result = 'a  b'", false),
            (Python, "result = 'a # b'", "result = 'a # c'", false),
            (Python, "result = x + 1", "result = x - 1", false),
            (Python, "result = (", "result = (", true),
            (Python, "result = (", "result = ( ", false),
            (Ruby, "args[0] + 1", "# adds\n\nargs[0]+1 # one\n", true),
            (Ruby, "def d(x)\n  x + 1\nend", "def d(x)\n\n    x + 1\nend\n", true),
            (Ruby, "def d(x)\n  x + 1\nend", "def d(x)\n  x + 2\nend", false),
            (Ruby, "'a b'", "'a  b'", false),
            (Ruby, "'a # b'", "'a # c'", false),
            (Ruby, "\"a  #{x}\"", "\"a #{x}\"", false),
            (Ruby, "<<~T\n  a b\nT\n", "<<~T\n  a  b\nT\n", false),
            (Ruby, "<<~T\n  a b\nT\n", "<<~T  # text\n  a b\nT\n\n", true),
            (Ruby, "=begin\nold\n=end\n1", "1", true),
            (Ruby, "return 1", "return1", false),
        ] {
            assert_eq!(is_same_program(language, one, other), expected, "{one:?} {other:?}");
        }
    }
}
