//! Recordings: what models answered once, kept so that it can be had again offline.
//!
//! A recording is a text file of JSON lines: `{"recording":1}` first, then one
//! `{"key":"role.method","payload":…,"usage":…}` per model call, in order. A replay answers each key's
//! requests in the order they were recorded and fails loudly when it is asked for more.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::prompt::Prompt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{DraftLimits, Provider, ProviderFault};

/// The format this module reads and writes.
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    recording: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    key: String,
    payload: Value,
    #[serde(default)]
    usage: Usage,
}

/// Passes requests on and writes down every answer.
#[derive(Debug)]
pub struct Recorder {
    inner: Arc<dyn Provider>,
    file: Mutex<File>,
}

impl Recorder {
    /// Records what `inner` answers into a new file.
    pub fn new(inner: Arc<dyn Provider>, path: &Path) -> Result<Self, ProviderFault> {
        let fault = |error: std::io::Error| ProviderFault::File {
            path: path.display().to_string(),
            problem: format!("{error}; a recording is written to a new file"),
        };
        let mut file = File::create_new(path).map_err(fault)?;
        writeln!(file, "{}", serde_json::json!({ "recording": FORMAT })).map_err(fault)?;
        Ok(Self { inner, file: Mutex::new(file) })
    }
}

impl Provider for Recorder {
    fn draft(&self, prompt: &Prompt, limits: &DraftLimits<'_>) -> Result<Draft, DraftFault> {
        let draft = self.inner.draft(prompt, limits)?;
        let reply = Reply { key: limits.key(), payload: draft.payload.clone(), usage: draft.usage };
        let line = serde_json::to_string(&reply).map_err(|error| {
            DraftFault::Malformed(format!("the answer cannot be recorded: {error}"))
        })?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{line}").map_err(|error| {
            DraftFault::Unavailable(format!("the recording cannot be written: {error}"))
        })?;
        Ok(draft)
    }
}

/// Answers from a recording.
#[derive(Debug)]
pub struct Replay {
    name: String,
    replies: Mutex<BTreeMap<String, VecDeque<Draft>>>,
}

impl Replay {
    /// Reads a recording.
    pub fn from_file(path: &Path) -> Result<Self, ProviderFault> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_text(&name, &text),
            Err(error) => Err(ProviderFault::File { path: name, problem: error.to_string() }),
        }
    }

    /// Reads a recording that is already in memory; `name` is used in messages.
    pub fn from_text(name: &str, text: &str) -> Result<Self, ProviderFault> {
        let fault = |line: usize, problem: String| ProviderFault::File {
            path: name.to_owned(),
            problem: format!("line {line}: {problem}"),
        };
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (_, first) = lines.next().ok_or_else(|| fault(1, "it is empty".to_owned()))?;
        let header: Header = serde_json::from_str(first).map_err(|error| {
            fault(
                1,
                format!("not a recording ({error}); it must begin with {{\"recording\":{FORMAT}}}"),
            )
        })?;
        if header.recording != FORMAT {
            return Err(fault(
                1,
                format!(
                    "format {} is not known; this version reads format {FORMAT}",
                    header.recording
                ),
            ));
        }
        let mut replies: BTreeMap<String, VecDeque<Draft>> = BTreeMap::new();
        for (index, line) in lines {
            let reply: Reply =
                serde_json::from_str(line).map_err(|error| fault(index + 1, error.to_string()))?;
            let draft = Draft { payload: reply.payload, usage: reply.usage };
            replies.entry(reply.key).or_default().push_back(draft);
        }
        Ok(Self { name: name.to_owned(), replies: Mutex::new(replies) })
    }
}

impl Provider for Replay {
    fn draft(&self, _prompt: &Prompt, limits: &DraftLimits<'_>) -> Result<Draft, DraftFault> {
        let key = limits.key();
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(draft) = replies.get_mut(&key).and_then(VecDeque::pop_front) {
            return Ok(draft);
        }
        let left: Vec<String> = replies
            .iter()
            .filter(|(_, drafts)| !drafts.is_empty())
            .map(|(key, drafts)| format!("{key} ×{}", drafts.len()))
            .collect();
        Err(DraftFault::Diverged(format!(
            "{} holds no further reply for {key:?}; unused replies: {}. Record this run again",
            self.name,
            if left.is_empty() { "none".to_owned() } else { left.join(", ") }
        )))
    }
}
