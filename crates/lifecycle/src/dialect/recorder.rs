//! What both readers share: the names in scope, and the inspection being written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::operand::gives_success;
use super::{
    Argument, AssignmentStatement, CallExpression, ContextAccess, ContextUse, Inspection, Literal,
    Lookup, Operand, PathUse, Position, Rescued, ReturnedValue, Target,
};

/// Names a leading parameter of the function form may have; the harness fills it with the context.
pub(super) const FILLED_PARAMETERS: [&str; 3] = ["self", "ctx", "context"];

/// Methods of a map that read one key, given first.
const READERS: [&str; 3] = ["get", "fetch", "dig"];
/// Methods of a map that set, replace or remove one key, given first.
const WRITERS: [&str; 4] = ["store", "delete", "pop", "__setitem__"];
/// Methods of a map that set many keys, given as keywords or as a map.
const MERGERS: [&str; 3] = ["update", "merge!", "remember"];

/// The names of parameters, and the leading one the harness fills, which is not an input.
pub(super) fn without_filled(
    mut names: Vec<String>,
    may_be_filled: bool,
) -> (Vec<String>, Option<String>) {
    let leads = names.first().is_some_and(|name| FILLED_PARAMETERS.contains(&name.as_str()));
    let filled = (may_be_filled && leads).then(|| names.remove(0));
    (names, filled)
}

pub(super) struct InspectionRecorder<'s> {
    pub(super) found: Inspection,
    lines: Lines<'s>,
    bindings: BTreeMap<String, Arc<Operand>>,
    /// What each binding replaced, latest last: leaving a function takes its bindings back.
    replaced: Vec<(String, Option<Arc<Operand>>)>,
    frames: Vec<ScopeFrame>,
    /// The frames whose parameters have this name, innermost last.
    parameters: BTreeMap<String, Vec<usize>>,
    /// What the error handlers around the current place handle, innermost last.
    recovering: Vec<Rescued>,
    /// How many error handlers stand for what fails at the current place.
    pub(super) guards: usize,
    /// How many expressions that provide a default (`found or …`) are around the current place.
    pub(super) defaults: usize,
    /// The default of the lookup being recorded.
    pub(super) default: Option<Value>,
    /// How many blocks that survive a missing library are around the current place.
    pub(super) optional: usize,
}

/// One function being read.
#[derive(Default)]
pub(super) struct ScopeFrame {
    pub(super) parameters: Vec<String>,
    /// Whether it read any of its parameters.
    pub(super) reads_parameters: bool,
    /// Whether it returned or yielded a value.
    pub(super) gives_value: bool,
    /// How many bindings had been replaced when it was entered.
    mark: usize,
}

impl<'s> InspectionRecorder<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self {
            found: Inspection::default(),
            lines: Lines::new(source),
            bindings: BTreeMap::new(),
            replaced: Vec::new(),
            frames: Vec::new(),
            parameters: BTreeMap::new(),
            recovering: Vec::new(),
            guards: 0,
            defaults: 0,
            default: None,
            optional: 0,
        }
    }

    pub(super) fn position(&self, offset: usize) -> Position {
        self.lines.position(offset)
    }

    /// The offset of a line (from 1) and a column in bytes (from 0).
    pub(super) fn offset(&self, line: i32, column: u32) -> usize {
        let index = usize::try_from(line.saturating_sub(1)).unwrap_or(0);
        let start = self.lines.starts.get(index).copied().unwrap_or(0);
        start + usize::try_from(column).unwrap_or(0)
    }

    /// Enters a function; `filled` names its parameter that holds the context.
    pub(super) fn enter(&mut self, parameters: Vec<String>, filled: Option<&str>) {
        let mark = self.replaced.len();
        for parameter in &parameters {
            self.bind(parameter, &Operand::Unknown);
            self.parameters.entry(parameter.clone()).or_default().push(self.frames.len());
        }
        if let Some(filled) = filled {
            self.bind(filled, &Operand::Context);
        }
        self.frames.push(ScopeFrame { parameters, mark, ..ScopeFrame::default() });
    }

    /// The function being read gives a value.
    pub(super) fn gives_value(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.gives_value = true;
        }
    }

    /// Leaves a function.
    pub(super) fn leave(&mut self) -> ScopeFrame {
        let Some(frame) = self.frames.pop() else { return ScopeFrame::default() };
        for parameter in &frame.parameters {
            self.parameters.get_mut(parameter).map(Vec::pop);
        }
        while self.replaced.len() > frame.mark {
            let Some((name, before)) = self.replaced.pop() else { break };
            self.restore(name, before);
        }
        frame
    }

    /// A name is read: a parameter, or an input of the program.
    pub(super) fn read(&mut self, name: &str) {
        let frame = self.parameters.get(name).and_then(|frames| frames.last());
        if let Some(frame) = frame.and_then(|&index| self.frames.get_mut(index)) {
            frame.reads_parameters = true;
        } else if matches!(name, "args" | "kwargs") && !self.bindings.contains_key(name) {
            self.found.reads_arguments = true;
        }
    }

    /// Whether a name is given by the caller: an input of the program, or of a function around here.
    pub(super) fn is_input(&self, name: &str) -> bool {
        let parameter = self.parameters.get(name).is_some_and(|frames| !frames.is_empty());
        let given = matches!(name, "args" | "kwargs") && !self.bindings.contains_key(name);
        parameter || given
    }

    /// Whether a value comes from memory as the program found it. What the program itself wrote there may be data.
    pub(super) fn is_remembered(&self, value: &Operand) -> bool {
        let writes = |it: &AssignmentStatement| match &it.target {
            Target::Item { object, .. } | Target::Attribute { object, .. } => {
                matches!(object.resolved(), Operand::Context | Operand::Remembered)
            }
            Target::Name(_) => false,
        };
        matches!(value.resolved(), Operand::Remembered)
            && !self.found.assignments.iter().any(writes)
    }

    /// Enters the handler of what the calls from the `first` on may raise.
    pub(super) fn enter_handler(&mut self, first: usize) {
        self.recovering.push(first..self.found.calls.len());
    }

    pub(super) fn leave_handler(&mut self) {
        self.recovering.pop();
    }

    pub(super) fn bind(&mut self, name: &str, value: &Operand) {
        let before = self.bindings.insert(name.to_owned(), Arc::new(value.kept()));
        self.replaced.push((name.to_owned(), before));
    }

    /// Gives `name` a value for a while; hand what comes back to [`Self::restore`].
    pub(super) fn bind_for_now(&mut self, name: &str, value: &Operand) -> Option<Arc<Operand>> {
        self.bindings.insert(name.to_owned(), Arc::new(value.kept()))
    }

    pub(super) fn restore(&mut self, name: String, before: Option<Arc<Operand>>) {
        match before {
            Some(before) => self.bindings.insert(name, before),
            None => self.bindings.remove(&name),
        };
    }

    pub(super) fn bound(&self, name: &str) -> Option<&Arc<Operand>> {
        self.bindings.get(name)
    }

    /// What a name stands for. Modules and functions are known by name only.
    pub(super) fn variable(&self, name: &str) -> Operand {
        match self.bindings.get(name) {
            Some(bound) if matches!(**bound, Operand::Path(_)) => (**bound).clone(),
            Some(bound) => Operand::Variable { name: name.to_owned(), holds: Arc::clone(bound) },
            None if matches!(name, "context" | "memory" | "runtime_context") => Operand::Context,
            None if matches!(name, "Agent" | "Outcome" | "tools") => Operand::Path(name.to_owned()),
            None if name == "__builtins__" => Operand::Path("builtins".to_owned()),
            None => Operand::Variable { name: name.to_owned(), holds: Arc::new(Operand::Unknown) },
        }
    }

    pub(super) fn literal(&mut self, value: Value, offset: usize) {
        let position = self.position(offset);
        self.found.literals.push(Literal { value, position });
    }

    pub(super) fn docstring(&mut self, value: Value, offset: usize) {
        let position = self.position(offset);
        self.found.docstrings.push(Literal { value, position });
    }

    pub(super) fn path(&mut self, path: &str, offset: usize) {
        let position = self.position(offset);
        self.found.paths.push(PathUse { path: path.to_owned(), imported: false, position });
    }

    /// A name that an import takes from a module.
    pub(super) fn imported_path(&mut self, path: &str, offset: usize) {
        let position = self.position(offset);
        self.found.paths.push(PathUse { path: path.to_owned(), imported: true, position });
    }

    pub(super) fn returned(&mut self, value: Operand, offset: usize) {
        let position = self.position(offset);
        self.found.returned.push(ReturnedValue {
            value,
            recovering: self.recovering.last().cloned(),
            position,
        });
    }

    pub(super) fn lookup(&mut self, object: Operand, key: Value, offset: usize) {
        let position = self.position(offset);
        if matches!(object.resolved(), Operand::Context) {
            let guarded = self.guards > 0 || self.defaults > 0;
            self.context(&key, ContextAccess::Read, guarded, position);
        }
        let guarded = self.guards > 0;
        self.found.lookups.push(Lookup { object, key, guarded, position });
    }

    pub(super) fn assign(&mut self, target: Target, value: Operand, offset: usize) {
        let position = self.position(offset);
        match &target {
            Target::Name(name) => {
                self.bind(name, &value);
                if name == "result" {
                    self.returned(value.clone(), offset);
                }
            }
            Target::Attribute { object, name } => {
                if matches!(object.resolved(), Operand::Context) {
                    let key = Value::from(name.as_str());
                    self.context(&key, ContextAccess::Write, false, position);
                }
            }
            Target::Item { object, key } => {
                if let (Operand::Context, Some(key)) = (object.resolved(), key) {
                    self.context(key, ContextAccess::Write, false, position);
                }
            }
        }
        let recovering = self.recovering.last().cloned();
        self.found.assignments.push(AssignmentStatement { target, value, recovering, position });
    }

    pub(super) fn call(
        &mut self,
        receiver: Option<Operand>,
        name: &str,
        arguments: Vec<Argument>,
        offset: usize,
    ) {
        let position = self.position(offset);
        if gives_success(receiver.as_ref(), name) {
            let given = arguments.iter().map(|argument| argument.value.clone()).collect();
            self.returned(Operand::one_of(given), offset);
        }
        let (name, guarded) = (name.to_owned(), self.guards > 0);
        let call = CallExpression { receiver, name, arguments, guarded, position };
        self.context_call(&call);
        self.found.calls.push(call);
    }

    fn context_call(&mut self, call: &CallExpression) {
        let on_context =
            matches!(call.receiver.as_ref().map(Operand::resolved), Some(Operand::Context));
        let name = call.name.as_str();
        let remembers = call.receiver.is_none() && name == "remember";
        if !on_context && !remembers {
            return;
        }
        if MERGERS.contains(&name) {
            return self.merged_keys(call);
        }
        let Some(key) = call.argument(0).and_then(Operand::literal).cloned() else { return };
        if READERS.contains(&name) || name == "setdefault" {
            let given = call.arguments.len() > 1;
            let guarded = given || self.guards > 0 || self.defaults > 0;
            self.default = call.argument(1).and_then(Operand::literal).cloned();
            self.context(&key, ContextAccess::Read, guarded, call.position);
        }
        if WRITERS.contains(&name) || name == "setdefault" {
            self.context(&key, ContextAccess::Write, false, call.position);
        }
    }

    fn merged_keys(&mut self, call: &CallExpression) {
        let given = call.argument(0).and_then(Operand::literal).and_then(Value::as_object);
        let keys = given.into_iter().flat_map(|map| map.keys().cloned());
        let keywords = call.arguments.iter().filter_map(|argument| argument.name.clone());
        for key in keys.chain(keywords) {
            self.context(&Value::from(key), ContextAccess::Write, false, call.position);
        }
    }

    fn context(&mut self, key: &Value, access: ContextAccess, guarded: bool, position: Position) {
        if let Some(key) = key.as_str() {
            let (key, default) = (key.to_owned(), self.default.take());
            self.found.context.push(ContextUse { key, access, guarded, default, position });
        }
    }
}

/// Finds lines and columns; constant work per position, whatever the length of a line.
struct Lines<'s> {
    source: &'s str,
    starts: Vec<usize>,
    /// Characters before each block of [`BLOCK`] bytes.
    characters: Vec<usize>,
}

const BLOCK: usize = 64;

impl<'s> Lines<'s> {
    fn new(source: &'s str) -> Self {
        let breaks = source.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        let mut total = 0;
        let mut characters = vec![0];
        for block in source.as_bytes().chunks(BLOCK) {
            total += count_characters(block);
            characters.push(total);
        }
        Self { source, starts, characters }
    }

    fn position(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|&start| start <= offset);
        let start = line.checked_sub(1).and_then(|index| self.starts.get(index)).copied();
        let column = self.before(offset) - self.before(start.unwrap_or(0)) + 1;
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Position { line: narrow(line), column: narrow(column) }
    }

    fn before(&self, offset: usize) -> usize {
        let offset = offset.min(self.source.len());
        let block = offset / BLOCK;
        let rest = self.source.as_bytes().get(block * BLOCK..offset).unwrap_or_default();
        self.characters.get(block).copied().unwrap_or(0) + count_characters(rest)
    }
}

/// Every byte of UTF-8 that does not continue a character begins one.
fn count_characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0b1100_0000 != 0b1000_0000).count()
}
