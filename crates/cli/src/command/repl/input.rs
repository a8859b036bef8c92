//! Where the repl's lines come from: a terminal with line editing, or standard input.

use std::collections::VecDeque;
use std::io::{self, BufRead, IsTerminal as _, Read as _};
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::line::{DOT_COMMANDS, is_open, whole_lines};
use crate::command::agent::Caller;
use crate::exit::CommandFault;
use crate::render::paint::{Style, clean, clean_lines};
use crate::render::{self, Stream};

/// Most lines in the editor's history.
const MAX_HISTORY: usize = 1000;
/// Longest line read without a terminal.
const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;
/// The file of the editor's history, in the state directory.
const HISTORY_FILE: &str = "repl_history";

/// Where lines come from.
pub(super) enum Input {
    /// A terminal with line editing.
    Terminal {
        editor: Box<Editor<ReplHelper, DefaultHistory>>,
        /// Without and with colour.
        prompt: (String, String),
        history: PathBuf,
        /// Lines that were pasted and did not run yet.
        pasted: VecDeque<String>,
    },
    /// A file or a pipe.
    Lines(io::StdinLock<'static>),
}

/// The result of reading a line.
pub(super) enum ReadLine {
    /// A line.
    Line(String),
    /// Ctrl-C at the prompt: the line is dropped.
    Dropped,
    /// Ctrl-D, or the end of the input.
    End,
}

impl Input {
    pub(super) fn open(caller: &Caller) -> Result<Self, CommandFault> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Lines(io::stdin().lock()));
        }
        let history = caller.runtime.config().state_dir()?.join(HISTORY_FILE);
        let unusable = |error| CommandFault::setup(format!("the terminal cannot be used: {error}"));
        let config = Config::builder()
            .max_history_size(MAX_HISTORY)
            .map_err(unusable)?
            .auto_add_history(true)
            .completion_type(CompletionType::List)
            .build();
        let mut editor = Box::new(Editor::with_config(config).map_err(unusable)?);
        editor.set_helper(Some(ReplHelper::default()));
        // There is no history on the first run, and a history that cannot be read is ignored.
        let _ = editor.load_history(&history);
        let plain = format!("{}> ", clean(caller.agent.role().as_str()));
        let coloured = render::paint(Stream::Output).in_style(Style::Name, &plain);
        Ok(Self::Terminal { editor, prompt: (plain, coloured), history, pasted: VecDeque::new() })
    }

    pub(super) fn is_terminal(&self) -> bool {
        match self {
            Self::Terminal { .. } => true,
            Self::Lines(_) => false,
        }
    }

    /// Forgets what was pasted and did not run yet.
    pub(super) fn drop_pasted(&mut self) {
        match self {
            Self::Terminal { pasted, .. } => pasted.clear(),
            Self::Lines(_) => {}
        }
    }

    /// Reads the next line. `names` gives the first words that are completed.
    pub(super) fn next(
        &mut self,
        names: impl FnOnce() -> Vec<String>,
    ) -> Result<ReadLine, CommandFault> {
        match self {
            Self::Terminal { pasted, prompt: (plain, _), .. } if !pasted.is_empty() => {
                let line = pasted.pop_front().unwrap_or_default();
                render::note(&paint_faint(&format!("{plain}{}", clean_lines(&line).join("\n"))));
                Ok(ReadLine::Line(line))
            }
            Self::Terminal { editor, prompt, history, pasted } => {
                match edit(editor, prompt, names()) {
                    Ok(text) => {
                        // Saved after each line, so that nothing is lost if the repl is killed.
                        let _ = editor.append_history(history);
                        *pasted = whole_lines(&text);
                        Ok(ReadLine::Line(pasted.pop_front().unwrap_or_default()))
                    }
                    Err(ReadlineError::Interrupted) => {
                        render::note("press Ctrl-D or enter quit to leave");
                        Ok(ReadLine::Dropped)
                    }
                    Err(ReadlineError::Eof) => Ok(ReadLine::End),
                    Err(error) => {
                        Err(CommandFault::setup(format!("the terminal cannot be read: {error}")))
                    }
                }
            }
            Self::Lines(stdin) => read_line(stdin),
        }
    }
}

/// A line that runs without being typed at the prompt.
fn paint_faint(line: &str) -> String {
    render::paint(Stream::Error).in_style(Style::Faint, line)
}

/// Lets a person edit a line.
fn edit(
    editor: &mut Editor<ReplHelper, DefaultHistory>,
    prompt: &(String, String),
    names: Vec<String>,
) -> rustyline::Result<String> {
    if let Some(helper) = editor.helper_mut() {
        helper.names = names;
    }
    editor.readline(prompt)
}

fn read_line(stdin: &mut impl BufRead) -> Result<ReadLine, CommandFault> {
    let unreadable =
        |problem: String| CommandFault::setup(format!("cannot read standard input: {problem}"));
    let mut line = Vec::new();
    stdin
        .take(MAX_LINE_BYTES + 1)
        .read_until(b'\n', &mut line)
        .map_err(|error| unreadable(error.to_string()))?;
    if line.is_empty() {
        return Ok(ReadLine::End);
    }
    if line.len() as u64 > MAX_LINE_BYTES {
        return Err(unreadable(format!("a line has more than {MAX_LINE_BYTES} bytes; shorten it")));
    }
    String::from_utf8(line)
        .map(ReadLine::Line)
        .map_err(|_| unreadable("a line is not UTF-8; convert the input to UTF-8".to_owned()))
}

/// Completes the first word of a line. Without a helper, the editor shows no coloured prompt.
#[derive(Default)]
pub(super) struct ReplHelper {
    /// Known methods and memory keys.
    names: Vec<String>,
}

impl ReplHelper {
    /// What the text before the cursor may become.
    fn completions(&self, typed: &str) -> Vec<String> {
        let commands = DOT_COMMANDS.iter().map(|(name, ..)| *name);
        let all = commands.chain(self.names.iter().map(String::as_str));
        let is_one = |name: &&str| !typed.is_empty() && name.starts_with(typed) && *name != typed;
        all.filter(is_one).map(str::to_owned).collect()
    }
}

impl Completer for ReplHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, self.completions(line.get(..position).unwrap_or_default())))
    }
}

impl Hinter for ReplHelper {
    type Hint = String;
}
impl Highlighter for ReplHelper {}
impl Validator for ReplHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_open(context.input()) {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}
impl Helper for ReplHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_memory_keys_and_commands_are_completed() {
        let names = ["add", "add_all", "memory"].map(str::to_owned).to_vec();
        let helper = ReplHelper { names };
        for (typed, expected) in [
            ("ad", &["add", "add_all"][..]),
            ("add", &["add_all"]),
            (".re", &[".reject"]),
            (".wh", &[".why"]),
            ("", &[]),
            ("add 3 m", &[]),
        ] {
            assert_eq!(helper.completions(typed), expected, "{typed}");
        }
    }

    #[test]
    fn a_line_is_read_up_to_its_limit() {
        let most = usize::try_from(MAX_LINE_BYTES).unwrap();
        let read = |text: &str| read_line(&mut text.as_bytes());
        let exact = "a".repeat(most);
        assert!(matches!(read(&exact), Ok(ReadLine::Line(line)) if line.len() == most));
        for long in ["a".repeat(most + 1), "a".repeat(most) + "é"] {
            let fault = read(&long).err().map(|fault| format!("{fault:?}")).unwrap();
            assert!(fault.contains("a line has more than 16777216 bytes"), "{fault}");
        }
        assert!(matches!(read(""), Ok(ReadLine::End)));
        assert!(read_line(&mut &b"\xff\n"[..]).is_err());
    }
}
