//! Classifies a Ruby expression as an [`Operand`].

use ruby_prism as prism;
use serde_json::Value;

use super::super::operand::{agent, makes_agent};
use super::super::{
    Argument, AssignmentStatement, Definition, DefinitionKind, Inspection, MAX_SUMMARY_LEVELS,
    Operand, Target,
};
use super::Reader;

/// Text of the program as prism keeps it.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Names of a hash's own methods without arguments, which are not its keys.
pub(super) fn is_map_method(name: &[u8]) -> bool {
    name.ends_with(b"?")
        || name.ends_with(b"!")
        || matches!(
            name,
            b"class"
                | b"clear"
                | b"compact"
                | b"count"
                | b"dup"
                | b"each"
                | b"each_pair"
                | b"entries"
                | b"first"
                | b"freeze"
                | b"hash"
                | b"inspect"
                | b"invert"
                | b"itself"
                | b"keys"
                | b"length"
                | b"object_id"
                | b"shift"
                | b"size"
                | b"sort"
                | b"to_a"
                | b"to_h"
                | b"to_json"
                | b"to_s"
                | b"values"
        )
}

impl<'pr> Reader<'_> {
    pub(super) fn summary(&self, node: &prism::Node<'pr>) -> Operand {
        let level = self.level.get();
        if level == MAX_SUMMARY_LEVELS {
            return Operand::Unknown;
        }
        self.level.set(level + 1);
        let operand = self.summarise(node);
        self.level.set(level);
        operand
    }

    fn summarise(&self, node: &prism::Node<'pr>) -> Operand {
        if let Some(value) = constant(node) {
            return Operand::from(value);
        }
        if let Some(node) = node.as_call_node() {
            return self.call_summary(&node);
        }
        if let Some(name) = variable_name(node) {
            return self.recorder.variable(&name);
        }
        if node.as_constant_read_node().is_some() || node.as_constant_path_node().is_some() {
            return self.constant_summary(node);
        }
        if node.as_lambda_node().is_some() || node.as_def_node().is_some() {
            return Operand::Function;
        }
        self.collection(node).or_else(|| self.choice(node)).unwrap_or(Operand::Unknown)
    }

    /// A constant the program gave a value, else a module or class by its name.
    fn constant_summary(&self, node: &prism::Node<'pr>) -> Operand {
        let path = constant_path(node);
        match self.recorder.bound(&path) {
            Some(_) => self.recorder.variable(&path),
            None => Operand::Path(path),
        }
    }

    fn collection(&self, node: &prism::Node<'pr>) -> Option<Operand> {
        if let Some(array) = node.as_array_node() {
            return Some(Operand::list(self.summaries(array.elements().iter())));
        }
        let elements = if let Some(hash) = node.as_hash_node() {
            hash.elements()
        } else {
            node.as_keyword_hash_node()?.elements()
        };
        let pairs = || elements.iter().map(|element| element.as_assoc_node());
        let keys = pairs().map(|pair| constant(&pair?.key())).collect();
        let values =
            pairs().map(|pair| pair.map_or(Operand::Unknown, |pair| self.summary(&pair.value())));
        Some(Operand::map(keys, values.collect()))
    }

    fn summaries(&self, nodes: impl Iterator<Item = prism::Node<'pr>>) -> Vec<Operand> {
        nodes.map(|node| self.summary(&node)).collect()
    }

    /// An expression whose value is one of those in it.
    fn choice(&self, node: &prism::Node<'pr>) -> Option<Operand> {
        if let Some(node) = node.as_parentheses_node() {
            return node.body().map(|body| self.summary(&body));
        }
        if let Some(node) = node.as_statements_node() {
            return node.body().last().map(|last| self.summary(&last));
        }
        if let Some(node) = node.as_or_node() {
            let left = self.summary(&node.left());
            let right = self.with_fallback(&node.left(), &left, self.summary(&node.right()));
            return Some(Operand::one_of(vec![left, right]));
        }
        if let Some(node) = node.as_and_node() {
            return Some(self.summary(&node.right()));
        }
        if let Some(node) = node.as_local_variable_write_node() {
            // Read before this, so the name stands for the value.
            return Some(self.recorder.variable(&text(node.name().as_slice())));
        }
        if let Some(node) = node.as_rescue_modifier_node() {
            let choices =
                vec![self.summary(&node.expression()), self.summary(&node.rescue_expression())];
            return Some(Operand::one_of(choices));
        }
        if let Some(node) = node.as_else_node() {
            return node.statements().map(|statements| self.summary(&statements.as_node()));
        }
        let node = node.as_if_node()?;
        let branches = node.statements().map(|statements| statements.as_node());
        Some(Operand::one_of(self.summaries(branches.into_iter().chain(node.subsequent()))))
    }

    /// Whether the program has defined a class of this name.
    fn defines(&self, name: &str) -> bool {
        let Inspection { definitions, assignments, .. } = &self.recorder.found;
        let is_class = |it: &Definition| it.kind == DefinitionKind::Class && it.name == name;
        let is_assigned =
            |it: &AssignmentStatement| matches!(&it.target, Target::Name(own) if own == name);
        definitions.iter().any(is_class) || assignments.iter().any(is_assigned)
    }

    fn call_summary(&self, node: &prism::CallNode<'pr>) -> Operand {
        let name = text(node.name().as_slice());
        let Some(receiver) = node.receiver().filter(|node| node.as_self_node().is_none()) else {
            return self.bare_call(node, &name);
        };
        let wanted = receiver;
        let receiver = self.summary(&wanted);
        let is_own_class = name == "new" && receiver.path().is_some_and(|it| self.defines(it));
        if !is_own_class && makes_agent(Some(&receiver), &name) {
            return agent(self.first_argument(node).as_ref());
        }
        let held = receiver.resolved();
        let keyed = matches!(held, Operand::Context | Operand::Tools | Operand::ToolEntry);
        if keyed && matches!(name.as_str(), "[]" | "fetch" | "dig") {
            let key = node.arguments().and_then(|given| given.arguments().first());
            return receiver.item(key.as_ref().and_then(constant).as_ref());
        }
        match (held, name.as_str()) {
            // A method of an agent's class is one of the agent.
            (Operand::Agent(_), "singleton_class" | "class" | "itself") => receiver,
            (Operand::Path(_), "singleton_class") => receiver,
            (Operand::Path(path), "parse" | "join") if path == "URI" => receiver,
            (Operand::Context, "tools") => Operand::Tools,
            (Operand::Tools, "to_h" | "dup" | "each" | "select" | "filter" | "reject") => receiver,
            (Operand::Tools | Operand::ToolItems, "first" | "last" | "find" | "detect") => {
                Operand::ToolItem
            }
            (Operand::Tools, "to_a" | "sort" | "sort_by") => Operand::ToolItems,
            (Operand::Tools, "values") => Operand::ToolEntry,
            (Operand::Path(path), "new") if path == "Proc" => Operand::Function,
            (Operand::Path(class), "new" | "start" | "open" | "tcp") => {
                Operand::Instance(Some(class.as_str().into()))
            }
            (_, "new") => Operand::Instance(None),
            (_, "method" | "to_proc") => Operand::Function,
            (Operand::Literal(_), "freeze" | "dup" | "clone") => receiver,
            (_, "fetch" | "dig" | "value_or") => match self.fallback_argument(node, &name) {
                Some(value) => {
                    let otherwise = self.with_fallback(&wanted, &receiver, value);
                    Operand::one_of(vec![Operand::Unknown, otherwise])
                }
                None => Operand::Unknown,
            },
            _ => Operand::Unknown,
        }
    }

    /// The value of `wanted || value`, `found` being what `wanted` is. A default for an input, or for what memory has, is a default; for anything else
    /// it stands in for data.
    fn with_fallback(&self, wanted: &prism::Node<'pr>, found: &Operand, value: Operand) -> Operand {
        let input = root(wanted).is_some_and(|name| self.recorder.is_input(&name));
        let is_default = input || self.recorder.is_remembered(found);
        if is_default { value } else { value.into_fallback() }
    }

    /// What `fetch(key, value)`, `fetch(key) { value }` and `value_or(value)` give when there is nothing.
    fn fallback_argument(&self, node: &prism::CallNode<'pr>, name: &str) -> Option<Operand> {
        if let Some(block) = node.block().and_then(|block| block.as_block_node()) {
            return block.body().map(|body| self.summary(&body));
        }
        let given = node.arguments()?.arguments();
        let value = given.iter().nth(usize::from(name == "fetch"))?;
        Some(self.summary(&value))
    }

    fn first_argument(&self, node: &prism::CallNode<'pr>) -> Option<Operand> {
        let given = node.arguments()?.arguments().first()?;
        Some(self.summary(&given))
    }

    fn bare_call(&self, node: &prism::CallNode<'pr>, name: &str) -> Operand {
        match name {
            "lambda" | "proc" if node.block().is_some() => Operand::Function,
            "method" => Operand::Function,
            _ if makes_agent(None, name) => agent(self.first_argument(node).as_ref()),
            "context" | "memory" | "runtime_context" => Operand::Context,
            // Known by name: what is sent to an address, and the search for tools.
            "URI" | "tools" => Operand::Path(name.to_owned()),
            _ => Operand::Unknown,
        }
    }

    pub(super) fn arguments(&self, node: &prism::CallNode<'pr>) -> Vec<Argument> {
        let mut arguments = Vec::new();
        for given in node.arguments().iter().flat_map(|given| given.arguments().iter()) {
            if let Some(keywords) = given.as_keyword_hash_node() {
                arguments.extend(keywords.elements().iter().map(|element| self.keyword(&element)));
            } else {
                arguments.push(Argument { name: None, value: self.summary(&given) });
            }
        }
        if node.block().is_some() {
            arguments.push(Argument { name: Some("&".to_owned()), value: Operand::Function });
        }
        arguments
    }

    fn keyword(&self, element: &prism::Node<'pr>) -> Argument {
        let Some(pair) = element.as_assoc_node() else {
            return Argument { name: Some("**".to_owned()), value: Operand::Unknown };
        };
        let name = constant(&pair.key()).and_then(|key| key.as_str().map(str::to_owned));
        Argument { name: Some(name.unwrap_or_default()), value: self.summary(&pair.value()) }
    }
}

/// The name an expression begins with: `page` in `page[:items].fetch(:x)`.
fn root(node: &prism::Node<'_>) -> Option<String> {
    let Some(mut call) = node.as_call_node() else { return variable_name(node) };
    while let Some(receiver) = call.receiver() {
        let Some(inner) = receiver.as_call_node() else { return variable_name(&receiver) };
        call = inner;
    }
    Some(text(call.name().as_slice()))
}

fn variable_name(node: &prism::Node<'_>) -> Option<String> {
    if let Some(node) = node.as_local_variable_read_node() {
        return Some(text(node.name().as_slice()));
    }
    if let Some(node) = node.as_instance_variable_read_node() {
        return Some(text(node.name().as_slice()));
    }
    node.as_it_local_variable_read_node().map(|_| "it".to_owned())
}

/// `Net::HTTP` as written; empty when a part of it is computed.
pub(super) fn constant_path(node: &prism::Node<'_>) -> String {
    let mut parts = Vec::new();
    let mut rest = node.as_constant_path_node();
    let mut first = node.as_constant_read_node();
    while let Some(path) = rest {
        parts.push(path.name().map(|name| text(name.as_slice())).unwrap_or_default());
        let Some(parent) = path.parent() else {
            parts.push(String::new());
            break;
        };
        rest = parent.as_constant_path_node();
        first = parent.as_constant_read_node();
        if rest.is_none() && first.is_none() {
            return String::new();
        }
    }
    parts.extend(first.map(|name| text(name.name().as_slice())));
    parts.reverse();
    parts.join("::")
}

/// The value of a scalar literal; a symbol is its name.
pub(super) fn constant(node: &prism::Node<'_>) -> Option<Value> {
    if let Some(node) = node.as_string_node() {
        return Some(Value::from(text(node.unescaped())));
    }
    if let Some(node) = node.as_symbol_node() {
        return Some(Value::from(text(node.unescaped())));
    }
    if let Some(node) = node.as_integer_node() {
        return integer(&node);
    }
    if let Some(node) = node.as_float_node() {
        return serde_json::Number::from_f64(node.value()).map(Value::Number);
    }
    if node.as_true_node().is_some() {
        return Some(Value::Bool(true));
    }
    if node.as_false_node().is_some() {
        return Some(Value::Bool(false));
    }
    node.as_nil_node().map(|_| Value::Null)
}

/// The digits as written give the value of a decimal integer of any size.
fn integer(node: &prism::IntegerNode<'_>) -> Option<Value> {
    if let Ok(small) = TryInto::<i32>::try_into(node.value()) {
        return Some(Value::from(small));
    }
    let digits = text(node.location().as_slice()).replace('_', "");
    serde_json::from_str(&digits).ok().filter(Value::is_number)
}
