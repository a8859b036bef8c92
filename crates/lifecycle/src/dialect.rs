//! Reads a guest's source: a real parser per language, one [`Inspection`] for both.
//!
//! An inspection lists what a program contains, with text in strings and comments kept apart from code.
//! It follows values only as far as names carry them: in source order, through assignments and
//! imports, never through calls. What it cannot follow is [`Operand::Unknown`].

mod growth;
mod head;
pub mod library;
mod normal_form;
mod operand;
mod python;
mod raising;
mod recorder;
mod ruby;
mod sending;
mod signature;
pub mod stdlib;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use growth::{ProgramGrowth, growth};
pub(crate) use head::is_reserved;
pub use head::{function_name, head, parameter_name};
pub use library::{Facts, LibraryUse, UseKind};
pub use normal_form::is_same_program;
pub use operand::Operand;
pub use raising::RaiseStatement;
pub use signature::{ArgumentMatch, Parameter, ParameterKind, Signature};

/// The longest program that is read.
pub const MAX_SOURCE_BYTES: usize = 128 * 1024;

/// The deepest nesting of expressions and blocks in a program that is read.
pub const MAX_NESTING: usize = 500;

/// How far into an expression a summary looks; what is deeper is unknown.
const MAX_SUMMARY_LEVELS: usize = 32;

/// Prism recurses up to 10,000 levels deep (about 16 MB in a debug build) before it gives up, and
/// without a bound in destructured parameters, so a reading never starts with less stack than this.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Of that, what one byte of source can need: a level of nesting costs less, and takes at least a byte.
const STACK_BYTES_PER_BYTE: usize = 8 * 1024;
/// What even a short program is given.
const MIN_STACK_BYTES: usize = 512 * 1024;

/// Reads a program. Any text gives an inspection or a fault; none panics or exhausts the stack.
pub fn inspect(language: Language, source: &str) -> Result<Inspection, SyntaxFault> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!("the program is longer than {MAX_SOURCE_BYTES} bytes");
        return Err(SyntaxFault { message, position: Position::START });
    }
    let mut inspection = with_stack(source, || match language {
        Language::Python => python::inspect(source),
        Language::Ruby => ruby::inspect(source),
    })?;
    inspection.library = library::uses(language, &inspection);
    Ok(inspection)
}

/// Reads with enough stack for a program of this length; a new one is mapped only when this thread's is too small.
fn with_stack<T>(source: &str, read: impl FnOnce() -> T) -> T {
    let stack = (source.len() * STACK_BYTES_PER_BYTE).clamp(MIN_STACK_BYTES, STACK_BYTES);
    stacker::maybe_grow(stack, stack, read)
}

/// A guest language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// `CPython`.
    Python,
    /// `CRuby`.
    Ruby,
}

impl Language {
    /// Every guest language.
    pub const ALL: [Self; 2] = [Self::Python, Self::Ruby];

    /// The name on the wire and in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Ruby => "ruby",
        }
    }

    /// The ending of its source files, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Python => "py",
            Self::Ruby => "rb",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a guest language.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown language {0:?}: expected {expected}", expected = Language::ALL.map(|it| format!("{:?}", it.name())).join(" or "))]
pub struct UnknownLanguage(pub String);

impl FromStr for Language {
    type Err = UnknownLanguage;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|language| language.name() == name)
            .ok_or_else(|| UnknownLanguage(name.to_owned()))
    }
}

/// A place in the program's own text; both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl Position {
    /// The first character.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a program could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {message}")]
pub struct SyntaxFault {
    /// The parser's own words.
    pub message: String,
    /// Where it stopped.
    pub position: Position,
}

/// What a program says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inspection {
    /// Every call, in source order; `send(:name, …)` is a call of `name`.
    pub calls: Vec<CallExpression>,
    /// Every import or require of a literal name.
    pub imports: Vec<Import>,
    /// Every module, class or imported function mentioned, by its full name.
    pub paths: Vec<PathUse>,
    /// Every function and class the program defines.
    pub definitions: Vec<Definition>,
    /// Every assignment.
    pub assignments: Vec<AssignmentStatement>,
    /// Every item or field looked up under a constant key.
    pub lookups: Vec<Lookup>,
    /// Every scalar literal in code position. Keys of literal maps are not among them.
    pub literals: Vec<Literal>,
    /// Strings that stand alone as a statement: documentation, not code.
    pub docstrings: Vec<Literal>,
    /// Every use of a constant top-level key of the context.
    pub context: Vec<ContextUse>,
    /// Every value the program may give as its (or a function's) success.
    pub returned: Vec<ReturnedValue>,
    /// Every statement that raises an exception.
    pub raises: Vec<RaiseStatement>,
    /// Whether `args` or `kwargs` is read.
    pub reads_arguments: bool,
    /// Whether its last statement only prints: the value of `rows.each { |row| puts row }` is not a result.
    pub ends_in_output: bool,
    /// Every use of a library name of which something is known.
    pub library: Vec<LibraryUse>,
}

impl Inspection {
    /// Whether the program reads the inputs of its call: `args`, `kwargs`, or the parameters of the function
    /// that the harness calls with them. That is the function or callable named like the method, or else the
    /// only function, if the program does not call it itself.
    pub fn reads_inputs(&self, language: Language, method: &str) -> bool {
        let is_named = |it: &Definition| head::is_named_like(language, method, &it.name);
        let functions: Vec<&Definition> = self
            .definitions
            .iter()
            .filter(|it| it.owner == DefinitionOwner::Program)
            .filter(|it| it.kind != DefinitionKind::Lambda || is_named(it))
            .collect();
        let is_called =
            |name: &str| self.calls.iter().any(|call| call.receiver.is_none() && call.name == name);
        self.reads_arguments
            || self.makes_callable(method)
            || match functions.as_slice() {
                [only] if !is_named(only) => only.reads_parameters && !is_called(&only.name),
                several => several.iter().any(|it| is_named(it) && it.reads_parameters),
            }
    }

    /// The function of the program that the harness calls for `method`, if it is certain which.
    pub fn function(&self, language: Language, method: &str) -> Option<&Definition> {
        let is_it = |it: &&Definition| {
            it.kind == DefinitionKind::Function
                && it.owner == DefinitionOwner::Program
                && head::is_named_like(language, method, &it.name)
        };
        let mut found = self.definitions.iter().filter(is_it);
        let function = found.next()?;
        found.next().is_none().then_some(function)
    }

    /// Whether the function that the harness calls for `method` gives no value, whatever it is called with.
    pub fn function_gives_none(&self, language: Language, method: &str) -> bool {
        self.called_function(language, method).is_some_and(|function| !function.gives_value)
    }

    /// The function that the harness may call for `method`: the one of that name, or the only one.
    pub(crate) fn called_function(&self, language: Language, method: &str) -> Option<&Definition> {
        let is_own = |it: &&Definition| {
            it.kind == DefinitionKind::Function && it.owner == DefinitionOwner::Program
        };
        let mut own = self.definitions.iter().filter(is_own);
        let only = || own.next().filter(|_| own.next().is_none());
        self.function(language, method).or_else(only)
    }

    /// Whether the program gives a callable object the name of the method: an instance with `__call__`, a
    /// partial, an imported function, `define_method`. The parameters of a lambda are known, so it is not one.
    fn makes_callable(&self, method: &str) -> bool {
        let is_instance_callable =
            || self.definitions.iter().any(|it| it.name == "__call__" && it.reads_parameters);
        let is_lambda = || {
            let mut lambdas =
                self.definitions.iter().filter(|it| it.kind == DefinitionKind::Lambda);
            lambdas.any(|it| it.name == method)
        };
        let assigned = self.assignments.iter().any(|assignment| {
            let named = matches!(&assignment.target, Target::Name(name) if name == method);
            let value = assignment.value.resolved();
            named
                && (matches!(value, Operand::Path(_) | Operand::Instance(_))
                    || (matches!(value, Operand::Function) && !is_lambda())
                    || (matches!(value, Operand::Unknown) && is_instance_callable()))
        });
        let defines = |call: &CallExpression| {
            matches!(call.name.as_str(), "define_method" | "define_singleton_method")
                && call.receiver.is_none()
                && call.argument(0).and_then(Operand::text) == Some(method)
        };
        assigned || self.calls.iter().any(defines)
    }

    /// Whether a text of the program is exactly this.
    pub fn says(&self, text: &str) -> bool {
        self.literals.iter().any(|literal| literal.value == text)
    }

    /// Whether it looks at its data: it calls `look` and does not define it.
    pub fn looks(&self) -> bool {
        let is_it = |call: &CallExpression| call.receiver.is_none() && call.name == "look";
        self.calls.iter().any(is_it) && !self.definitions.iter().any(|it| it.name == "look")
    }

    /// The agents asked for by a constant name: `tool("x")`, `delegate("x")`, `Agent.for("x")`.
    pub fn agents(&self) -> impl Iterator<Item = (&str, Position)> {
        self.calls
            .iter()
            .filter(|call| call.makes_agent())
            .filter_map(|call| Some((call.argument(0)?.text()?, call.position)))
    }

    /// Whether the program defines a function of this name.
    pub fn defines(&self, name: &str) -> bool {
        let is_function = |kind| matches!(kind, DefinitionKind::Function | DefinitionKind::Lambda);
        self.definitions.iter().any(|it| is_function(it.kind) && it.name == name)
    }
}

/// A call in the text of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct CallExpression {
    /// What it is called on; none for a bare call and for `self`.
    pub receiver: Option<Operand>,
    /// The method or function; the full name of an imported one (`os.system`).
    pub name: String,
    /// What it is given, in order; a block that is a function comes last.
    pub arguments: Vec<Argument>,
    /// Whether an error handler of the program stands for its failure.
    pub guarded: bool,
    /// Where its name stands.
    pub position: Position,
}

impl CallExpression {
    /// The `index`-th positional argument, seen through variables.
    pub fn argument(&self, index: usize) -> Option<&Operand> {
        self.arguments.iter().filter(|a| a.name.is_none()).nth(index).map(|a| a.value.resolved())
    }

    /// The argument given by this keyword, seen through variables.
    pub fn keyword(&self, name: &str) -> Option<&Operand> {
        self.arguments.iter().find(|a| a.name.as_deref() == Some(name)).map(|a| a.value.resolved())
    }

    /// The full name of what is called, when its receiver is known by name: `os.system`, `IO.popen`.
    pub fn path(&self) -> Option<String> {
        match self.receiver.as_ref().map(Operand::resolved) {
            None => Some(self.name.clone()),
            Some(Operand::Path(path)) => Some(format!("{path}.{}", self.name)),
            Some(_) => None,
        }
    }

    /// Whether its value is an agent.
    pub fn makes_agent(&self) -> bool {
        operand::makes_agent(self.receiver.as_ref(), &self.name)
    }
}

/// One argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// The keyword, if it is given by keyword.
    pub name: Option<String>,
    /// What is given.
    pub value: Operand,
}

/// One import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// As the program names it: `os.path`, `net/http`.
    pub module: String,
    /// Whether its absence is rescued on the spot.
    pub optional: bool,
    /// Where.
    pub position: Position,
}

impl Import {
    /// The part before the first dot or slash.
    pub fn top_level(&self) -> &str {
        self.module.split(['.', '/']).next().unwrap_or(&self.module)
    }
}

/// A mention of something known by its full name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathUse {
    /// `os.system`, `Net::HTTP`.
    pub path: String,
    /// Whether an import names it: nothing is done with it there.
    pub imported: bool,
    /// Where.
    pub position: Position,
}

/// A function or class of the program.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// What is defined.
    pub kind: DefinitionKind,
    /// Its name; a class's with the modules around it (`Shop::Cart`).
    pub name: String,
    /// Its owner.
    pub owner: DefinitionOwner,
    /// What it takes; `None` for what is not a plain function.
    pub signature: Option<Signature>,
    /// Its parameters, without a leading one the harness fills (`self`, `ctx`, `context`).
    pub parameters: Vec<String>,
    /// Whether its body reads any of them.
    pub reads_parameters: bool,
    /// Whether it may give a value. One that only prints, or that ends without `return` on every path, does not.
    pub gives_value: bool,
    /// Where.
    pub position: Position,
}

/// What a definition defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionKind {
    /// A function or method.
    Function,
    /// A lambda that is given a name.
    Lambda,
    /// A class or module, new or reopened.
    Class,
    /// The methods of one object (`class << object`).
    Singleton,
}

/// The owner of a definition.
#[derive(Debug, Clone, PartialEq)]
pub enum DefinitionOwner {
    /// The program itself.
    Program,
    /// A class or module around it.
    Class,
    /// One object (`def object.name`).
    Object(Operand),
}

/// One assignment.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignmentStatement {
    /// What is assigned to.
    pub target: Target,
    /// What is assigned.
    pub value: Operand,
    /// The calls whose failure is being handled, when it happens in an error handler.
    pub recovering: Option<Rescued>,
    /// Where its target stands.
    pub position: Position,
}

/// Where the calls an error handler stands for are among [`Inspection::calls`].
pub type Rescued = Range<usize>;

/// What is assigned to.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A variable or constant.
    Name(String),
    /// `object.name = …`
    Attribute {
        /// The object.
        object: Operand,
        /// The attribute.
        name: String,
    },
    /// `object[key] = …`
    Item {
        /// The collection.
        object: Operand,
        /// The key, when constant.
        key: Option<Value>,
    },
}

/// An item or field looked up under a constant key.
#[derive(Debug, Clone, PartialEq)]
pub struct Lookup {
    /// What is looked into.
    pub object: Operand,
    /// The key.
    pub key: Value,
    /// Whether an error handler of the program stands for its failure.
    pub guarded: bool,
    /// Where.
    pub position: Position,
}

/// A literal.
#[derive(Debug, Clone, PartialEq)]
pub struct Literal {
    /// Its value.
    pub value: Value,
    /// Where.
    pub position: Position,
}

/// A use of one top-level key of the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextUse {
    /// The key.
    pub key: String,
    /// Read or written.
    pub access: ContextAccess,
    /// Whether the program provides for the key's absence: a default, a test, an error handler.
    pub guarded: bool,
    /// The constant that stands in for an absent key.
    pub default: Option<Value>,
    /// Where.
    pub position: Position,
}

/// How a key is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextAccess {
    /// Its value is used.
    Read,
    /// It is set, replaced or removed.
    Write,
}

/// A value given as success.
#[derive(Debug, Clone, PartialEq)]
pub struct ReturnedValue {
    /// The value.
    pub value: Operand,
    /// The calls whose failure is being handled, when it is given in an error handler.
    pub recovering: Option<Rescued>,
    /// Where.
    pub position: Position,
}

#[cfg(test)]
mod tests;
