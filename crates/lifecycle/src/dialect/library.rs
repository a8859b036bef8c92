//! What the libraries of the guests do: one table per guest, one matcher.
//!
//! Guardrails, purity, worker pollution and patterns all ask these tables, so a library is described once.
//! A row names one function, class or module; the most specific row of a name decides. `json.*` stands for
//! `json` and everything below it, `.append` for a method of that name on any object.
//!
//! A rule that asks how a call is made, and not only what it does, names that call itself: `sending`,
//! `missing_credentials`, `singleton_method_mutation`, `worker_pollution`. The exceptions that libraries raise are a table
//! of `blame`.

mod python;
mod ruby;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use self::python::{CLIENTS, TIMER_SIGNALS};
use super::{Argument, CallExpression, Inspection, Language, Operand, Position};

pub(crate) use ruby::CLASSES as RUBY_CLASSES;

/// What is known of a name: a set of facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts(u64);

impl Facts {
    /// These facts and those of `other`.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of `other` is among them.
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Those of these facts that are also in `other`.
    const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether nothing is known.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// One constant per fact.
macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident = $bit:literal,)*) => {
        $($(#[$doc])* pub const $name: Facts = Facts(1 << $bit);)*
    };
}

/// No effect, although a broader row has one.
const NOTHING: Facts = Facts(0);

facts! {
    /// Starts, replaces or signals a process, or makes raw system calls.
    PROCESS = 0,
    /// Reaches the network.
    NETWORK = 1,
    /// Sends something that changes the outside: doing it twice is not the same as doing it once.
    SEND = 2,
    /// A method name that sends when the program reaches the network at all.
    SEND_METHOD = 3,
    /// Reads the clock or waits for it.
    CLOCK = 4,
    /// Draws random numbers.
    RANDOM = 5,
    /// Reads or changes files.
    FILES = 6,
    /// Depends on the process, the machine or the scheduler, or evaluates text.
    HOST = 7,
    /// Writes to standard output or standard error.
    OUTPUT = 8,
    /// Changes the process it runs in for the programs after it.
    POLLUTES = 9,
    /// Sets an attribute of its first argument.
    SETS_ATTRIBUTE = 10,
    /// Changes the collection it is called on.
    MUTATES = 11,
    /// Changes the methods of what it is called on.
    REDEFINES = 12,
    /// The same, and only classes and modules have the method.
    REDEFINES_CLASS = 13,
    /// Needs a screen.
    SCREEN = 14,
    /// Opens a connection whose bytes the program writes itself.
    SOCKET = 15,
    /// Reads feeds.
    RSS = 16,
    /// Reads or writes XML.
    XML = 17,
    /// Reads HTML.
    HTML = 18,
    /// Reads or writes JSON.
    JSON = 19,
    /// Reads or writes tables.
    CSV = 20,
    /// Reads or writes YAML.
    YAML = 21,
    /// Computes with dates and times.
    DATES = 22,
    /// Uses a database.
    DATABASE = 23,
    /// Computes statistics.
    STATISTICS = 24,
    /// Reads or writes PDF.
    PDF = 25,
    /// A method name that sends when the program opens a [`SOCKET`].
    WRITE_METHOD = 26,
    /// Calls something by a computed name, or evaluates text: what it calls is not known.
    DYNAMIC = 27,
    /// Runs code that the program's text does not show: evaluated text, or a library with a computed name.
    UNSEEN_CODE = 28,
    /// Importing it makes a program one that reaches the network.
    NETWORK_LIBRARY = 29,
    /// A function that takes the verb of a request: if it is passed on without being called, the verb is not known.
    TAKES_VERB = 30,
    /// A method name that sends or takes the verb: if it is used as a value, its arguments are not known.
    SENDS_UNCALLED = 31,
    /// A method name that says whether a file is there. It raises nothing about a file that is not granted.
    CHECKS_FILE = 32,
    /// Makes one type of another, and raises a `TypeError` if it cannot.
    CONVERTS = 33,
}

/// What makes the value of a program differ from run to run, its arguments and memory being the same.
pub(crate) const IMPURE: Facts =
    PROCESS.union(NETWORK).union(SEND).union(CLOCK).union(RANDOM).union(FILES).union(HOST);

/// One row of a table.
struct Row {
    name: &'static str,
    facts: Facts,
    when: When,
}

const fn row(name: &'static str, facts: Facts) -> Row {
    Row { name, facts, when: When::Always }
}

impl Row {
    const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }
}

/// Which uses of a name a row is about. Only [`When::Always`] holds for a name that is not called.
#[derive(Clone, Copy)]
enum When {
    /// All of them.
    Always,
    /// Calls with arguments or a block.
    Arguments,
    /// Calls without.
    NoArguments,
    /// Calls whose first argument is a text that begins with `|`.
    Pipe,
    /// Calls given a body: the positional argument of this index, or the keyword `data`.
    Data(usize),
    /// Calls given an HTTP method that is not known to only read, at this index or as the keyword `method`.
    Method(usize),
    /// Calls whose first argument is not the signal of a timer.
    NotTimer,
    /// Calls whose positional argument of this index is not a constant text.
    Computed(usize),
    /// Calls on an object that is not known, given an address or something that may be one.
    Address,
}

/// HTTP methods that only read.
const READING_METHODS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "TRACE"];

impl When {
    fn holds(self, call: Option<&CallExpression>) -> bool {
        let Some(call) = call else { return matches!(self, Self::Always) };
        match self {
            Self::Always => true,
            Self::Arguments => !call.arguments.is_empty(),
            Self::NoArguments => call.arguments.is_empty(),
            Self::Pipe => {
                let first = call.argument(0).and_then(Operand::text);
                first.is_some_and(|text| text.starts_with('|'))
            }
            Self::Data(index) => {
                let given = call.keyword("data").or_else(|| call.argument(index)).or(spread(call));
                given.is_some_and(|given| !given.literal().is_some_and(serde_json::Value::is_null))
            }
            Self::Method(index) => {
                let is_verb = |it: &&Argument| it.name.as_deref() == Some("method");
                let keyword = call.arguments.iter().find(is_verb);
                let positional = || call.arguments.iter().filter(|it| it.name.is_none()).nth(index);
                let given = keyword.or_else(positional).map(|it| &it.value).or(spread(call));
                let reads = |method: &str| {
                    READING_METHODS.iter().any(|known| known.eq_ignore_ascii_case(method))
                };
                // A variable may have been given another verb on another path.
                let is_reading = |given: &Operand| matches!(given, Operand::Literal(value) if value.as_str().is_some_and(reads));
                given.is_some_and(|given| !is_reading(given))
            }
            Self::NotTimer => {
                let first = call.argument(0).and_then(Operand::path);
                !first.is_some_and(|path| TIMER_SIGNALS.contains(&path))
            }
            Self::Computed(index) => {
                call.argument(index).is_some_and(|given| given.text().is_none())
            }
            Self::Address => {
                let receiver = call.receiver.as_ref().map(Operand::resolved);
                let is_address = |given: &Operand| match given.literal() {
                    Some(literal) => literal.as_str().is_some_and(|it| it.contains('/')),
                    None => true,
                };
                matches!(receiver, Some(Operand::Unknown | Operand::Instance(None)))
                    && call.argument(0).is_some_and(is_address)
            }
        }
    }
}

/// Keyword arguments given as a map (`**options`): any of them.
fn spread(call: &CallExpression) -> Option<&Operand> {
    call.keyword("**")
}

/// How a program uses a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UseKind {
    /// It imports it.
    Imported,
    /// It mentions it.
    Named,
    /// It takes it as a value from an object: by `getattr`, or as an attribute that it looks up more often than it calls it.
    Taken,
    /// It calls it: the index among [`Inspection::calls`].
    Called(usize),
}

/// A use of a name of which something is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryUse {
    /// The full name: `os.system`, `Net::HTTP.get`; `.append` for a method of any object.
    pub name: String,
    /// What is known of it.
    pub facts: Facts,
    /// How it is used.
    pub kind: UseKind,
    /// Where.
    pub position: Position,
}

/// The uses of known names in a program.
pub(super) fn uses(language: Language, inspection: &Inspection) -> Vec<LibraryUse> {
    let table = match language {
        Language::Python => python::ROWS,
        Language::Ruby => ruby::ROWS,
    };
    let mut found = Vec::new();
    let mut add = |name: &str, facts: Facts, kind, position| {
        if !facts.is_empty() {
            found.push(LibraryUse { name: name.to_owned(), facts, kind, position });
        }
    };
    for import in &inspection.imports {
        let facts = below(table, &import.module, None);
        add(&import.module, facts, UseKind::Imported, import.position);
    }
    for used in &inspection.paths {
        let path = used.path.trim_start_matches("::");
        let kind = if used.imported { UseKind::Imported } else { UseKind::Named };
        add(path, below(table, path, None), kind, used.position);
    }
    for (index, call) in inspection.calls.iter().enumerate() {
        let kind = UseKind::Called(index);
        if let Some((name, facts)) = called(table, call, inspection) {
            add(&name, facts, kind, call.position);
        }
        if call.receiver.is_some() {
            add(&call.name, of_method(table, call), kind, call.position);
        } else if let ("getattr", Some(name)) = (&*call.name, attribute_name(call)) {
            add(name, of_attribute(table, name), UseKind::Taken, call.position);
        }
    }
    for (name, (facts, position)) in uncalled_attributes(table, inspection) {
        add(name, facts, UseKind::Taken, position);
    }
    found
}

/// What is known of the function or method a call names.
fn called(
    table: &[Row],
    call: &CallExpression,
    inspection: &Inspection,
) -> Option<(String, Facts)> {
    match call.receiver.as_ref().map(Operand::resolved) {
        // A function of the program is its own, whatever its name.
        None if inspection.defines(&call.name) => None,
        None => Some((call.name.clone(), below(table, &call.name, Some(call)))),
        Some(Operand::Path(path)) => {
            let path = path.trim_start_matches("::");
            let name = match path {
                "Kernel" | "Object" => call.name.clone(),
                path => format!("{path}.{}", call.name),
            };
            let facts = below(table, &name, Some(call));
            Some((name, facts))
        }
        // Of what a library returned only the methods that are listed are known. The clients in
        // `CLIENTS` send by all others.
        Some(Operand::Instance(Some(class))) => {
            let class = class.trim_start_matches("::");
            let name = format!("{class}.{}", call.name);
            let of_client = || CLIENTS.contains(&class).then_some(SEND);
            let facts = exactly(table, &name, "", Some(call)).or_else(of_client)?;
            Some((name, facts))
        }
        Some(_) => None,
    }
}

/// What is known of a method by its name alone.
fn of_method(table: &[Row], call: &CallExpression) -> Facts {
    exactly(table, ".", &call.name, Some(call)).unwrap_or_default()
}

/// What is known of an attribute that is taken as a value.
fn of_attribute(table: &[Row], name: &str) -> Facts {
    exactly(table, ".", name, None).unwrap_or_default().only(SENDS_UNCALLED)
}

/// The known attributes that are looked up more often than methods of that name are called, each where it is looked up
/// last.
fn uncalled_attributes<'a>(
    table: &[Row],
    inspection: &'a Inspection,
) -> BTreeMap<&'a str, (Facts, Position)> {
    let mut attributes = BTreeMap::new();
    for lookup in &inspection.lookups {
        let Some(name) = lookup.key.as_str() else { continue };
        let facts = of_attribute(table, name);
        if !facts.is_empty() {
            attributes.insert(name, (facts, lookup.position));
        }
    }
    attributes.retain(|name, _| {
        let lookups = inspection.lookups.iter().filter(|lookup| lookup.key == **name).count();
        let is_call = |call: &&CallExpression| call.receiver.is_some() && call.name == **name;
        lookups > inspection.calls.iter().filter(is_call).count()
    });
    attributes
}

/// The attribute that `getattr(object, "name")` takes.
fn attribute_name(call: &CallExpression) -> Option<&str> {
    call.argument(1).and_then(Operand::text)
}

/// What the most specific row says: of the name itself, or of what it is below.
fn below(table: &[Row], name: &str, call: Option<&CallExpression>) -> Facts {
    if let Some(facts) = exactly(table, name, "", call) {
        return facts;
    }
    let mut end = name.len();
    loop {
        let prefix = name.get(..end).unwrap_or_default();
        if let Some(facts) = exactly(table, prefix, ".*", call) {
            return facts;
        }
        match prefix.rfind(['.', ':', '/']) {
            Some(cut) => end = prefix.get(..cut).map_or(0, |rest| rest.trim_end_matches(':').len()),
            None => return NOTHING,
        }
    }
}

/// What the rows named `start` and `rest` together say; nothing if there is none.
fn exactly(table: &[Row], start: &str, rest: &str, call: Option<&CallExpression>) -> Option<Facts> {
    let compare =
        |row: &Row| -> Ordering { row.name.bytes().cmp(start.bytes().chain(rest.bytes())) };
    let first = table.partition_point(|row| compare(row) == Ordering::Less);
    let rows = table.get(first..)?.iter().take_while(|row| compare(row) == Ordering::Equal);
    let mut facts = None;
    for row in rows {
        let known = if row.when.holds(call) { row.facts } else { NOTHING };
        facts = Some(facts.unwrap_or(NOTHING).union(known));
    }
    facts
}

impl Inspection {
    /// Whether the program calls something with one of these facts.
    pub fn calls_any(&self, facts: Facts) -> bool {
        self.library.iter().any(|it| it.facts.any(facts) && matches!(it.kind, UseKind::Called(_)))
    }

    /// Whether the program calls or mentions something with one of these facts.
    pub fn uses_any(&self, facts: Facts) -> bool {
        self.library.iter().any(|it| it.facts.any(facts) && it.kind != UseKind::Imported)
    }

    /// Whether the program calls, mentions or imports something with one of these facts.
    pub fn knows_any(&self, facts: Facts) -> bool {
        self.library.iter().any(|it| it.facts.any(facts))
    }

    /// The calls with one of these facts, each with all that is known of it.
    pub fn calls_with(&self, facts: Facts) -> impl Iterator<Item = (&CallExpression, Facts)> {
        self.library.iter().filter(move |it| it.facts.any(facts)).filter_map(|it| match it.kind {
            UseKind::Called(index) => Some((self.calls.get(index)?, it.facts)),
            UseKind::Imported | UseKind::Named | UseKind::Taken => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Language::{Python, Ruby};

    #[test]
    fn the_tables_are_sorted_and_say_something() {
        for table in [python::ROWS, ruby::ROWS] {
            assert!(table.is_sorted_by_key(|row| row.name));
            for row in table {
                let name = row.name.trim_end_matches(".*");
                let broader = name.rsplit_once(['.', ':']).map(|(above, _)| above);
                let narrows = broader.is_some_and(|above| !below(table, above, None).is_empty());
                assert!(!row.facts.is_empty() || narrows, "{} says nothing", row.name);
            }
        }
        assert!(RUBY_CLASSES.is_sorted());
    }

    #[test]
    fn calls_that_check_files_or_convert_are_known() {
        for (language, source, fact) in [
            (Python, "import os\nos.path.exists(args[0])", CHECKS_FILE),
            (Python, "from os.path import isfile\nisfile(args[0])", CHECKS_FILE),
            (Python, "from pathlib import Path\nPath(args[0]).is_dir()", CHECKS_FILE),
            (Python, "from glob import glob\nglob(args[0])", CHECKS_FILE),
            (Ruby, "File.exist?(args[0])", CHECKS_FILE),
            (Ruby, "Dir.glob(args[0])", CHECKS_FILE),
            (Python, "int(args[0])", CONVERTS),
            (Python, "from decimal import Decimal\nDecimal(args[0])", CONVERTS),
            (Python, "from datetime import date\ndate.fromisoformat(args[0])", CONVERTS),
            (Ruby, "Integer(args[0])", CONVERTS),
            (Ruby, "require 'date'\nDate.parse(args[0])", CONVERTS),
        ] {
            let inspection = crate::dialect::inspect(language, source).unwrap();
            assert!(inspection.calls_any(fact), "{source}");
            let other = if fact == CONVERTS { CHECKS_FILE } else { CONVERTS };
            assert!(!inspection.calls_any(other), "{source}");
        }
    }

    #[test]
    fn the_most_specific_row_decides() {
        for (language, name, expected) in [
            (Python, "os.system", PROCESS.union(HOST)),
            (Python, "os.path.join", NOTHING),
            (Python, "os.path.getsize", FILES),
            (Python, "os.path.exists", FILES.union(CHECKS_FILE)),
            (Python, "os.getpid", HOST),
            (Python, "json", JSON),
            (Python, "jsonschema.validate", NOTHING),
            (Python, "xml.etree.ElementTree.fromstring", XML),
            (Ruby, "Net::HTTP::Get.new", NOTHING),
            (Ruby, "Net::HTTP.get", NETWORK),
            (Ruby, "HTTPError.new", NOTHING),
            (Ruby, "rexml/document", XML),
        ] {
            let table = if language == Python { python::ROWS } else { ruby::ROWS };
            assert_eq!(below(table, name, None), expected, "{name}");
        }
    }
}
