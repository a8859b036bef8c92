//! Guides a program. Imports, constants, classes and helpers may come first. Then the head of the wanted function is
//! forced, whatever the model would have called it. The program ends where the function ends, unless helpers follow.
//! Every line is judged by the parser of the language; a line that no valid program contains is taken back.

use lifecycle::dialect::{Language, ProgramGrowth, growth};

use super::NextMove;

/// How often lines are taken back in one program. After that it ends as it is, and the runtime reports the error.
const MAX_RETAKES: usize = 12;
/// How often one line is written anew before the line above it is taken back too: the error may be there.
const RETAKES_OF_A_LINE: usize = 2;
/// What each failed attempt at a line adds to the temperature of the next one.
const WARMER_STEP: f32 = 0.3;
/// The most that is added.
const WARMER_MOST: f32 = 0.9;
/// The most lines before the head.
const MAX_PREAMBLE_LINES: usize = 60;
/// A program is over after this many empty lines.
const MAX_EMPTY_LINES: usize = 3;
/// The same line this often in a row is a loop.
const MAX_EQUAL_LINES: usize = 5;
/// What ends a program: the end of the block of code around it.
const FENCE: &str = "```";

/// Beginnings of lines at the top level that may stand before the function.
const PYTHON_BEFORE: [&str; 6] = ["import ", "from ", "def ", "class ", "@", "#"];
const RUBY_BEFORE: [&str; 6] = ["require ", "require_relative ", "def ", "class ", "module ", "#"];
/// Beginnings of lines at the top level that may stand after it. A comment is not among them: it introduces an example.
const PYTHON_AFTER: [&str; 5] = ["import ", "from ", "def ", "class ", "@"];
const RUBY_AFTER: [&str; 4] = ["require ", "def ", "class ", "module "];

/// Where in the program the model is writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Before the head.
    Preamble,
    /// In the function.
    Body,
    /// After the function.
    Helpers,
}

/// The guide of one program.
#[derive(Debug, Clone)]
pub(crate) struct ProgramGuide {
    language: Language,
    head: String,
    method: String,
    section: Section,
    /// Where the lines start that were judged and found possible, and where the line in progress starts. Empty lines
    /// are not among them.
    lines: Vec<usize>,
    /// Where the head ends. Nothing before is taken back.
    head_end: usize,
    growth: ProgramGrowth,
    /// How much of the text is a complete program. After the head it contains the function.
    complete: usize,
    retakes: usize,
    /// The line that was taken back last, and how often in a row.
    failing: (usize, usize),
}

impl ProgramGuide {
    pub(crate) fn new(language: Language, head: &str, method: &str) -> Self {
        Self {
            language,
            head: format!("{}\n", head.trim_end()),
            method: method.to_owned(),
            section: Section::Preamble,
            lines: vec![0],
            head_end: 0,
            growth: ProgramGrowth::Complete,
            complete: 0,
            retakes: 0,
            failing: (0, 0),
        }
    }

    pub(crate) fn next(&mut self, text: &str) -> NextMove {
        while let Some(end) = self.next_line_end(text) {
            if let Some(next) = self.judge_line(text, end) {
                return next;
            }
        }
        let line = text.get(self.line_start()..).unwrap_or_default();
        if line.starts_with(FENCE) {
            return self.at_end(text);
        }
        if !line.is_empty() && self.is_top_level(line) {
            self.judge_beginning(line)
        } else {
            self.sample()
        }
    }

    /// The model wants to end: before the head it may not.
    pub(crate) fn at_end(&mut self, text: &str) -> NextMove {
        match self.section {
            Section::Preamble => self.force_head(),
            Section::Body | Section::Helpers => NextMove::Stop { keep: self.kept(text) },
        }
    }

    pub(crate) fn settled(&self) -> usize {
        match self.section {
            Section::Preamble => 0,
            Section::Helpers => self.complete,
            Section::Body => {
                let before = self.lines.len().checked_sub(2).and_then(|it| self.lines.get(it));
                before.copied().unwrap_or(0)
            }
        }
    }

    pub(crate) fn kept(&self, text: &str) -> usize {
        let line = text.get(self.line_start()..).unwrap_or_default();
        match self.section {
            Section::Helpers => self.complete,
            Section::Preamble | Section::Body if line.starts_with(FENCE) => self.line_start(),
            Section::Preamble | Section::Body => text.len(),
        }
    }

    fn line_start(&self) -> usize {
        self.lines.last().copied().unwrap_or(0)
    }

    fn next_line_end(&self, text: &str) -> Option<usize> {
        let line = text.get(self.line_start()..)?;
        Some(self.line_start() + line.find('\n')? + 1)
    }

    fn sample(&self) -> NextMove {
        let (line, failures) = self.failing;
        let is_failing = failures > 0 && line == self.line_start();
        let warmer = if is_failing { failures as f32 * WARMER_STEP } else { 0.0 };
        NextMove::Sample { warmer: warmer.min(WARMER_MOST) }
    }

    /// Whether a line stands outside every function: what is before it is complete, and it is not indented.
    fn is_top_level(&self, line: &str) -> bool {
        let is_indented = line.starts_with([' ', '\t']);
        let is_closed = self.growth == ProgramGrowth::Complete;
        match self.language {
            Language::Python => is_closed && !is_indented,
            Language::Ruby => is_closed,
        }
    }

    /// Judges the line that ends at `end`.
    fn judge_line(&mut self, text: &str, end: usize) -> Option<NextMove> {
        let line = text.get(self.line_start()..end).unwrap_or_default();
        if line.trim_end().is_empty() {
            // An empty line belongs to the line after it: they are taken back together.
            self.lines.pop();
            self.lines.push(end);
            let is_over = self.empty_lines(text) > MAX_EMPTY_LINES;
            return is_over.then(|| self.at_end(text));
        }
        if line.starts_with(FENCE) {
            return Some(self.at_end(text));
        }
        if end > self.head_end && self.is_top_level(line) {
            match self.judge_beginning(line) {
                NextMove::Sample { .. } => {}
                decided @ (NextMove::Replace { .. } | NextMove::Stop { .. }) => {
                    return Some(decided);
                }
            }
        }
        let growth = growth(self.language, text.get(..end).unwrap_or_default());
        if growth == ProgramGrowth::Broken && end > self.head_end {
            return Some(self.take_back(text));
        }
        if let Some(with) = self.renamed_import(line) {
            return Some(NextMove::Replace { from: self.line_start(), with });
        }
        self.accept_line(growth, end);
        None
    }

    /// An import of the name that the function has, under another name: the function would call itself instead.
    fn renamed_import(&self, line: &str) -> Option<String> {
        let line = line.trim_end();
        let (module, name) = line.strip_prefix("from ")?.split_once(" import ")?;
        let is_hidden = self.section == Section::Preamble && name == self.method;
        is_hidden.then(|| format!("from {module} import {name} as imported_{name}\n"))
    }

    fn accept_line(&mut self, growth: ProgramGrowth, end: usize) {
        self.growth = growth;
        self.lines.push(end);
        if growth == ProgramGrowth::Complete {
            self.complete = end;
            if self.section == Section::Body && self.language == Language::Ruby {
                self.section = Section::Helpers;
            }
        }
    }

    /// How many of the last lines are empty.
    fn empty_lines(&self, text: &str) -> usize {
        let before = text.get(..self.line_start()).unwrap_or_default();
        before.lines().rev().take_while(|line| line.trim().is_empty()).count()
    }

    /// Judges the beginning of a line at the top level, as far as it was written.
    fn judge_beginning(&mut self, line: &str) -> NextMove {
        if self.section == Section::Body {
            self.section = Section::Helpers;
        }
        let is_allowed = self.may_begin(line) && !self.is_head(line);
        match self.section {
            Section::Preamble if !is_allowed || self.lines.len() > MAX_PREAMBLE_LINES => {
                self.force_head()
            }
            Section::Helpers if !is_allowed => NextMove::Stop { keep: self.complete },
            Section::Preamble | Section::Body | Section::Helpers => self.sample(),
        }
    }

    /// Whether a line may begin like this: with one of the words, a part of one, or a constant.
    fn may_begin(&self, line: &str) -> bool {
        let words: &[&str] = match (self.language, self.section) {
            (Language::Python, Section::Preamble) => &PYTHON_BEFORE,
            (Language::Ruby, Section::Preamble) => &RUBY_BEFORE,
            (Language::Python, Section::Body | Section::Helpers) => &PYTHON_AFTER,
            (Language::Ruby, Section::Body | Section::Helpers) => &RUBY_AFTER,
        };
        let is_word = words.iter().any(|word| word.starts_with(line) || line.starts_with(word));
        is_word || is_constant(line)
    }

    /// Whether a line defines the wanted function, or one whose name it may still become.
    fn is_head(&self, line: &str) -> bool {
        let Some(name) = line.strip_prefix("def ") else { return false };
        let rest = name.strip_prefix(self.method.as_str());
        rest.is_some_and(|rest| rest.starts_with(['(', ' ', '\n', ':', ';']))
    }

    /// Replaces the line in progress by the head, and an unfinished helper above it too.
    fn force_head(&mut self) -> NextMove {
        let is_closed = self.growth == ProgramGrowth::Complete;
        let from = if is_closed { self.line_start() } else { self.complete };
        self.lines.retain(|start| *start < from);
        self.lines.push(from);
        self.growth = ProgramGrowth::Complete;
        self.section = Section::Body;
        self.head_end = from + self.head.len();
        NextMove::Replace { from, with: self.head.clone() }
    }

    /// Takes back the line in progress, and the one above it if that failed before.
    fn take_back(&mut self, text: &str) -> NextMove {
        self.retakes += 1;
        if self.retakes > MAX_RETAKES {
            return NextMove::Stop { keep: self.kept(text) };
        }
        let start = self.line_start();
        let failures = if self.failing.0 == start { self.failing.1 + 1 } else { 1 };
        let above = self.lines.len().checked_sub(2).and_then(|it| self.lines.get(it)).copied();
        let floor = self.head_end.max(self.settled());
        let above = above.filter(|above| failures > RETAKES_OF_A_LINE && *above >= floor);
        let Some(above) = above else {
            self.failing = (start, failures);
            return NextMove::Replace { from: start, with: String::new() };
        };
        self.lines.pop();
        let before = text.get(..above).unwrap_or_default();
        self.growth = growth(self.language, before);
        self.failing = (above, 1);
        NextMove::Replace { from: above, with: String::new() }
    }
}

/// Whether a line can begin the assignment of a constant, or of a class that a call makes.
fn is_constant(line: &str) -> bool {
    let name_end = line
        .find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    let rest = rest.trim_start();
    let is_assigned = rest.is_empty() || (rest.starts_with('=') && !rest.starts_with("=="));
    name.starts_with(|letter: char| letter.is_ascii_uppercase() || letter == '_') && is_assigned
}

/// Whether the last lines are the same again and again.
pub(super) fn repeats_a_line(text: &str) -> bool {
    let Some((done, _)) = text.rsplit_once('\n') else { return false };
    let mut lines = done.rsplit('\n').filter(|line| !line.trim().is_empty());
    let Some(last) = lines.next() else { return false };
    lines.take_while(|line| *line == last).count() + 1 >= MAX_EQUAL_LINES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_does_not_hide_behind_the_function() {
        for (import, expected) in [
            ("from money import total\n", Some("from money import total as imported_total\n")),
            ("from money import total as sum_up\n", None),
            ("from money import totals\n", None),
            ("import total\n", None),
        ] {
            let mut guide = ProgramGuide::new(Language::Python, "def total(items):", "total");
            let replaced =
                expected.map(|with| NextMove::Replace { from: 0, with: with.to_owned() });
            assert_eq!(guide.next(import), replaced.unwrap_or(NextMove::SAMPLE), "{import}");
        }
    }
}
