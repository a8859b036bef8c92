//! Statements by which a program raises an exception on purpose.

use std::ops::RangeInclusive;

use super::Inspection;

/// A statement that raises an exception: `raise ValueError("…")`, `raise ArgumentError, "…"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaiseStatement {
    /// The last part of the class's name; `None`: it is not written there.
    pub class: Option<String>,
    /// The lines it stands on.
    pub lines: RangeInclusive<u32>,
}

impl Inspection {
    /// Whether an exception of this class on this line was raised by a statement, not by what the line computes.
    pub fn raises_at(&self, class: &str, line: u32) -> bool {
        let name = class.rsplit(['.', ':']).next().unwrap_or(class);
        let is_of = |it: &RaiseStatement| it.class.as_deref().is_none_or(|written| written == name);
        self.raises.iter().any(|it| it.lines.contains(&line) && is_of(it))
    }
}
