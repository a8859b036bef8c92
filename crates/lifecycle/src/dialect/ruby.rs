//! Reads Ruby with prism, Ruby's own parser.

mod dispatch;
mod summary;

use std::cell::Cell;

use ruby_prism as prism;
use ruby_prism::Visit;
use serde_json::Value;

use super::recorder::{FILLED_PARAMETERS, Recorder};
use super::{
    Argument, Definition, DefinitionKind, Import, Inspection, MAX_NESTING, Operand, Owner,
    SyntaxFault, Target,
};
use dispatch::Dispatch;
use summary::{constant, text};

pub(super) fn inspect(source: &str) -> Result<Inspection, SyntaxFault> {
    let parsed = prism::parse(source.as_bytes());
    let recorder = Recorder::new(source);
    if let Some(error) = parsed.errors().next() {
        let at = recorder.offset(error.location().start_line(), error.location().start_column());
        let position = recorder.position(at);
        return Err(SyntaxFault { message: text(error.message()), position });
    }
    let mut reader =
        Reader { recorder, modules: Vec::new(), depth: 0, too_deep: None, level: Cell::new(0) };
    reader.program(&parsed.node());
    if let Some(offset) = reader.too_deep {
        let message = "the program is nested too deeply".to_owned();
        return Err(SyntaxFault { message, position: reader.recorder.position(offset) });
    }
    Ok(reader.recorder.found)
}

struct Reader<'s> {
    recorder: Recorder<'s>,
    /// The classes and modules around the current place.
    modules: Vec<String>,
    /// How many nodes are around the current place.
    depth: usize,
    /// Where the program was first nested too deeply.
    too_deep: Option<usize>,
    /// How many summaries are around the one being made.
    level: Cell<usize>,
}

impl<'pr> Reader<'_> {
    fn program(&mut self, node: &prism::Node<'pr>) {
        self.visit(node);
        if let Some(program) = node.as_program_node() {
            self.last_statement(Some(program.statements()));
        }
    }

    /// The last expression of a body is what the body gives.
    fn last_statement(&mut self, statements: Option<prism::StatementsNode<'pr>>) {
        let Some(last) = statements.and_then(|statements| statements.body().last()) else { return };
        let value = self.summary(&last);
        self.recorder.answer(value, self.at(&last.location()));
    }

    fn at(&self, location: &prism::Location<'pr>) -> usize {
        self.recorder.offset(location.start_line(), location.start_column())
    }

    fn visit_all(&mut self, nodes: &prism::NodeList<'pr>) {
        for node in nodes {
            self.visit(&node);
        }
    }

    /// An attribute or item write, which prism takes for a call of `name=` or `[]=`.
    fn attribute_write(&mut self, node: &prism::CallNode<'pr>, name: &str) {
        let Some(receiver) = node.receiver() else { return };
        let given: Vec<_> = node.arguments().iter().flat_map(|a| a.arguments().iter()).collect();
        let Some((value, keys)) = given.split_last() else { return };
        let object = self.summary(&receiver);
        let value = self.summary(value);
        let target = if name == "[]=" {
            Target::Item { object, key: keys.first().and_then(constant) }
        } else {
            Target::Attribute { object, name: name.trim_end_matches('=').to_owned() }
        };
        self.recorder.assign(target, value, self.at(&node.location()));
    }

    /// `x[k] ||= …`, `x[k] += …`: reads and writes.
    fn item_update(
        &mut self,
        receiver: Option<&prism::Node<'pr>>,
        key: Option<&prism::ArgumentsNode<'pr>>,
        value: Operand,
        offset: usize,
    ) {
        let Some(object) = receiver.map(|receiver| self.summary(receiver)) else { return };
        let key = key.and_then(|key| key.arguments().first()).as_ref().and_then(constant);
        if let Some(key) = key.clone() {
            self.recorder.lookup(object.clone(), key, offset);
        }
        self.recorder.assign(Target::Item { object, key }, value, offset);
    }

    fn call(&mut self, node: &prism::CallNode<'pr>) {
        let mut name = text(node.name().as_slice());
        let at = self.at(&node.message_loc().unwrap_or_else(|| node.location()));
        let receiver = node.receiver().filter(|receiver| receiver.as_self_node().is_none());
        let receiver = receiver.map(|receiver| self.summary(&receiver));
        let mut arguments = self.arguments(node);
        let taken = matches!(name.as_str(), "method" | "public_method");
        if taken || matches!(name.as_str(), "send" | "public_send" | "__send__") {
            let sent = arguments.first().and_then(|a| a.value.text()).map(str::to_owned);
            if let Some(sent) = sent {
                arguments.remove(0);
                name = sent;
            }
        }
        if taken {
            // Who takes a method means to call it, with arguments not known here.
            arguments.push(Argument { name: Some("&".to_owned()), value: Operand::Unknown });
        }
        if node.is_variable_call() {
            self.recorder.read(&name);
        }
        if receiver.is_none() && name == "require" {
            self.required(arguments.first().and_then(|a| a.value.text()), at);
        }
        let key = arguments.first().and_then(|a| a.value.literal()).cloned();
        match (receiver, key) {
            // What a class or module is sent is a call, whatever its name.
            (Some(object), Some(key))
                if object.path().is_none() && matches!(name.as_str(), "[]" | "fetch" | "dig") =>
            {
                self.recorder.lookup(object, key, at);
            }
            (Some(object), _) if is_field(node, &object) => {
                self.recorder.lookup(object, Value::from(name.as_str()), at);
            }
            (receiver, _) => self.recorder.call(receiver, &name, arguments, at),
        }
    }

    fn required(&mut self, feature: Option<&str>, at: usize) {
        let Some(module) = feature.map(str::to_owned) else { return };
        let (optional, position) = (self.recorder.optional > 0, self.recorder.position(at));
        self.recorder.found.imports.push(Import { module, optional, position });
    }

    /// Reads a block with its parameter standing for what the call iterates over.
    fn block(&mut self, node: &prism::CallNode<'pr>) {
        let Some(block) = node.block() else { return };
        let receiver = node.receiver().map(|receiver| self.summary(&receiver));
        let element = receiver.filter(|_| yields_elements(node.name().as_slice()));
        let element = element.map_or(Operand::Unknown, |receiver| receiver.element());
        let Some(block_node) = block.as_block_node() else {
            self.visit(&block);
            return self.sent_to_each(&block, element);
        };
        let (names, destructured) = block_parameters(&block_node);
        let whole = names.len() == 1 || yields_more(node.name().as_slice());
        let mut replaced = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            let is_element = index == 0 && whole && !destructured;
            let value = if is_element { &element } else { &Operand::Unknown };
            let before = self.recorder.bind_for_now(&name, value);
            replaced.push((name, before));
        }
        self.visit(&block);
        for (name, before) in replaced.into_iter().rev() {
            self.recorder.restore(name, before);
        }
    }

    /// `map(&:name)` sends `name` to each element.
    fn sent_to_each(&mut self, block: &prism::Node<'pr>, element: Operand) {
        let sent = block.as_block_argument_node().and_then(|block| block.expression());
        if let Some(Value::String(name)) = sent.as_ref().and_then(constant) {
            self.recorder.lookup(element, Value::from(name), self.at(&block.location()));
        }
    }

    fn define(&mut self, definition: Definition) {
        self.recorder.found.definitions.push(definition);
    }

    fn class(&mut self, path: &prism::Node<'pr>, body: Option<prism::Node<'pr>>) {
        let (written, at) = (summary::constant_path(path), self.at(&path.location()));
        let name = match (written.strip_prefix("::"), self.modules.last()) {
            (Some(absolute), _) => absolute.to_owned(),
            (None, Some(around)) => format!("{around}::{written}"),
            (None, None) => written,
        };
        self.define(Definition {
            kind: DefinitionKind::Class,
            name: name.clone(),
            owner: Owner::Program,
            parameters: Vec::new(),
            reads_parameters: false,
            position: self.recorder.position(at),
        });
        self.modules.push(name);
        if let Some(body) = body {
            self.visit(&body);
        }
        self.modules.pop();
    }

    fn owner(&self, receiver: Option<prism::Node<'pr>>) -> Owner {
        match receiver {
            Some(receiver) if receiver.as_self_node().is_none() => {
                Owner::Object(self.summary(&receiver))
            }
            _ if self.modules.is_empty() => Owner::Program,
            _ => Owner::Class,
        }
    }
}

impl<'pr> Visit<'pr> for Reader<'_> {
    /// Every node passes here, so this bounds the depth of all that follows.
    fn visit(&mut self, node: &prism::Node<'pr>) {
        if self.depth >= MAX_NESTING {
            let at = self.at(&node.location());
            self.too_deep.get_or_insert(at);
            return;
        }
        if let Some(value) = constant(node) {
            return self.recorder.literal(value, self.at(&node.location()));
        }
        self.depth += 1;
        Dispatch(self).visit(node);
        self.depth -= 1;
    }

    fn visit_call_node(&mut self, node: &prism::CallNode<'pr>) {
        if let Some(receiver) = node.receiver() {
            self.visit(&receiver);
        }
        if let Some(arguments) = node.arguments() {
            self.visit_all(&arguments.arguments());
        }
        let name = text(node.name().as_slice());
        if node.is_attribute_write() {
            self.attribute_write(node, &name);
        } else {
            self.call(node);
        }
        self.block(node);
    }

    fn visit_index_or_write_node(&mut self, node: &prism::IndexOrWriteNode<'pr>) {
        prism::visit_index_or_write_node(self, node);
        let value = self.summary(&node.value());
        let (receiver, key) = (node.receiver(), node.arguments());
        self.item_update(receiver.as_ref(), key.as_ref(), value, self.at(&node.location()));
    }

    fn visit_index_operator_write_node(&mut self, node: &prism::IndexOperatorWriteNode<'pr>) {
        prism::visit_index_operator_write_node(self, node);
        let added = self.summary(&node.value());
        let (receiver, key) = (node.receiver(), node.arguments());
        self.item_update(receiver.as_ref(), key.as_ref(), added, self.at(&node.location()));
    }

    fn visit_index_and_write_node(&mut self, node: &prism::IndexAndWriteNode<'pr>) {
        prism::visit_index_and_write_node(self, node);
        let (receiver, key) = (node.receiver(), node.arguments());
        self.item_update(
            receiver.as_ref(),
            key.as_ref(),
            Operand::Unknown,
            self.at(&node.location()),
        );
    }

    fn visit_local_variable_write_node(&mut self, node: &prism::LocalVariableWriteNode<'pr>) {
        self.visit(&node.value());
        let value = self.summary(&node.value());
        let name = text(node.name().as_slice());
        self.recorder.assign(Target::Name(name), value, self.at(&node.location()));
    }

    fn visit_local_variable_or_write_node(&mut self, node: &prism::LocalVariableOrWriteNode<'pr>) {
        self.visit(&node.value());
        let name = text(node.name().as_slice());
        let value = self.summary(&node.value());
        let value = if self.recorder.is_input(&name) { value } else { value.instead() };
        self.recorder.assign(Target::Name(name), value, self.at(&node.location()));
    }

    fn visit_local_variable_target_node(&mut self, node: &prism::LocalVariableTargetNode<'pr>) {
        self.recorder.bind(&text(node.name().as_slice()), &Operand::Unknown);
    }

    fn visit_instance_variable_write_node(&mut self, node: &prism::InstanceVariableWriteNode<'pr>) {
        self.visit(&node.value());
        let value = self.summary(&node.value());
        let name = text(node.name().as_slice());
        self.recorder.assign(Target::Name(name), value, self.at(&node.location()));
    }

    fn visit_global_variable_write_node(&mut self, node: &prism::GlobalVariableWriteNode<'pr>) {
        self.visit(&node.value());
        let (name, value) = (text(node.name().as_slice()), self.summary(&node.value()));
        self.recorder.assign(Target::Name(name), value, self.at(&node.location()));
    }

    fn visit_global_variable_or_write_node(
        &mut self,
        node: &prism::GlobalVariableOrWriteNode<'pr>,
    ) {
        self.visit(&node.value());
        let name = text(node.name().as_slice());
        self.recorder.assign(Target::Name(name), Operand::Unknown, self.at(&node.location()));
    }

    fn visit_global_variable_operator_write_node(
        &mut self,
        node: &prism::GlobalVariableOperatorWriteNode<'pr>,
    ) {
        self.visit(&node.value());
        let name = text(node.name().as_slice());
        self.recorder.assign(Target::Name(name), Operand::Unknown, self.at(&node.location()));
    }

    fn visit_constant_write_node(&mut self, node: &prism::ConstantWriteNode<'pr>) {
        self.visit(&node.value());
        let value = self.summary(&node.value());
        let name = text(node.name().as_slice());
        self.recorder.assign(Target::Name(name), value, self.at(&node.location()));
    }

    fn visit_local_variable_read_node(&mut self, node: &prism::LocalVariableReadNode<'pr>) {
        self.recorder.read(&text(node.name().as_slice()));
    }

    fn visit_constant_read_node(&mut self, node: &prism::ConstantReadNode<'pr>) {
        self.recorder.path(&text(node.name().as_slice()), self.at(&node.location()));
    }

    fn visit_constant_path_node(&mut self, node: &prism::ConstantPathNode<'pr>) {
        let path = summary::constant_path(&node.as_node());
        if path.is_empty() {
            return prism::visit_constant_path_node(self, node);
        }
        self.recorder.path(&path, self.at(&node.location()));
    }

    fn visit_def_node(&mut self, node: &prism::DefNode<'pr>) {
        if let Some(receiver) = node.receiver() {
            self.visit(&receiver);
        }
        let owner = self.owner(node.receiver());
        let (parameters, filled) = parameters(node.parameters().as_ref(), owner == Owner::Program);
        self.recorder.enter(parameters, filled.as_deref());
        if let Some(parameters) = node.parameters() {
            self.visit_parameters_node(&parameters);
        }
        let modules = std::mem::take(&mut self.modules);
        if let Some(body) = node.body() {
            self.visit(&body);
            self.last_statement(body.as_statements_node());
        }
        self.modules = modules;
        let (parameters, reads_parameters) = self.recorder.leave();
        let position = self.recorder.position(self.at(&node.name_loc()));
        let (kind, name) = (DefinitionKind::Function, text(node.name().as_slice()));
        self.define(Definition { kind, name, owner, parameters, reads_parameters, position });
    }

    fn visit_class_node(&mut self, node: &prism::ClassNode<'pr>) {
        if let Some(superclass) = node.superclass() {
            self.visit(&superclass);
        }
        self.class(&node.constant_path(), node.body());
    }

    fn visit_module_node(&mut self, node: &prism::ModuleNode<'pr>) {
        self.class(&node.constant_path(), node.body());
    }

    fn visit_singleton_class_node(&mut self, node: &prism::SingletonClassNode<'pr>) {
        self.visit(&node.expression());
        let owner = self.owner(Some(node.expression()));
        self.define(Definition {
            kind: DefinitionKind::Singleton,
            name: String::new(),
            owner,
            parameters: Vec::new(),
            reads_parameters: false,
            position: self.recorder.position(self.at(&node.location())),
        });
        self.modules.push("<singleton>".to_owned());
        if let Some(body) = node.body() {
            self.visit(&body);
        }
        self.modules.pop();
    }

    fn visit_begin_node(&mut self, node: &prism::BeginNode<'pr>) {
        let survives = node.rescue_clause().is_some_and(|clause| rescues_load(&clause));
        let first = self.recorder.found.calls.len();
        let guards = usize::from(node.rescue_clause().is_some());
        self.recorder.optional += usize::from(survives);
        self.recorder.guards += guards;
        if let Some(statements) = node.statements() {
            self.visit(&statements.as_node());
        }
        self.recorder.guards -= guards;
        if let Some(clause) = node.rescue_clause() {
            self.recorder.enter_handler(first);
            self.visit(&clause.as_node());
            self.recorder.leave_handler();
        }
        self.recorder.optional -= usize::from(survives);
        if let Some(clause) = node.else_clause() {
            self.visit(&clause.as_node());
        }
        if let Some(clause) = node.ensure_clause() {
            self.visit(&clause.as_node());
        }
    }

    fn visit_rescue_node(&mut self, node: &prism::RescueNode<'pr>) {
        self.visit_all(&node.exceptions());
        if let Some(statements) = node.statements() {
            self.visit(&statements.as_node());
        }
        self.last_statement(node.statements());
        if let Some(next) = node.subsequent() {
            self.visit(&next.as_node());
        }
    }

    fn visit_rescue_modifier_node(&mut self, node: &prism::RescueModifierNode<'pr>) {
        let first = self.recorder.found.calls.len();
        self.recorder.guards += 1;
        self.visit(&node.expression());
        self.recorder.guards -= 1;
        self.recorder.enter_handler(first);
        self.visit(&node.rescue_expression());
        let value = self.summary(&node.rescue_expression());
        self.recorder.answer(value, self.at(&node.location()));
        self.recorder.leave_handler();
    }

    fn visit_for_node(&mut self, node: &prism::ForNode<'pr>) {
        self.visit(&node.collection());
        self.visit(&node.index());
        if let Some(target) = node.index().as_local_variable_target_node() {
            let element = self.summary(&node.collection()).element();
            self.recorder.bind(&text(target.name().as_slice()), &element);
        }
        if let Some(statements) = node.statements() {
            self.visit(&statements.as_node());
        }
    }

    fn visit_return_node(&mut self, node: &prism::ReturnNode<'pr>) {
        prism::visit_return_node(self, node);
        if let Some(value) = node.arguments().and_then(|given| given.arguments().first()) {
            let value = self.summary(&value);
            self.recorder.answer(value, self.at(&node.location()));
        }
    }

    /// A constant key of a literal map is no literal of the program.
    fn visit_assoc_node(&mut self, node: &prism::AssocNode<'pr>) {
        if constant(&node.key()).is_none() {
            self.visit(&node.key());
        }
        self.visit(&node.value());
    }

    fn visit_x_string_node(&mut self, node: &prism::XStringNode<'pr>) {
        self.recorder.call(None, "`", Vec::new(), self.at(&node.location()));
    }

    fn visit_interpolated_x_string_node(&mut self, node: &prism::InterpolatedXStringNode<'pr>) {
        self.recorder.call(None, "`", Vec::new(), self.at(&node.location()));
        prism::visit_interpolated_x_string_node(self, node);
    }
}

/// Whether this is a field of the context or of a registry item: `item.name`, a call in Ruby.
fn is_field(node: &prism::CallNode<'_>, object: &Operand) -> bool {
    let plain = node.arguments().is_none() && node.block().is_none();
    let keyed = matches!(object.held(), Operand::ToolItem | Operand::Context);
    plain && keyed && !summary::is_map_method(node.name().as_slice())
}

/// Whether an iterator gives its block the elements of a map themselves.
fn yields_elements(name: &[u8]) -> bool {
    !matches!(
        name,
        b"each_key" | b"each_value" | b"transform_keys" | b"transform_values" | b"then" | b"tap"
    )
}

/// Whether an iterator gives its block something besides each element.
fn yields_more(name: &[u8]) -> bool {
    matches!(name, b"each_with_index" | b"each_with_object" | b"with_index" | b"with_object")
}

/// The names of the parameters, and the leading one the harness fills, which is not an input.
fn parameters(
    given: Option<&prism::ParametersNode<'_>>,
    may_be_filled: bool,
) -> (Vec<String>, Option<String>) {
    let mut names = given.map(parameter_names).unwrap_or_default();
    let leads = names.first().is_some_and(|name| FILLED_PARAMETERS.contains(&name.as_str()));
    let filled = (may_be_filled && leads).then(|| names.remove(0));
    (names, filled)
}

fn parameter_names(given: &prism::ParametersNode<'_>) -> Vec<String> {
    let listed = [given.requireds(), given.optionals(), given.posts(), given.keywords()];
    let single = [given.rest(), given.keyword_rest(), given.block()];
    let nodes = listed.iter().flat_map(prism::NodeList::iter).chain(single.into_iter().flatten());
    nodes.filter_map(|node| parameter_name(&node)).map(|name| text(name.as_slice())).collect()
}

fn parameter_name<'pr>(node: &prism::Node<'pr>) -> Option<prism::ConstantId<'pr>> {
    if let Some(node) = node.as_required_parameter_node() {
        Some(node.name())
    } else if let Some(node) = node.as_optional_parameter_node() {
        Some(node.name())
    } else if let Some(node) = node.as_required_keyword_parameter_node() {
        Some(node.name())
    } else if let Some(node) = node.as_optional_keyword_parameter_node() {
        Some(node.name())
    } else if let Some(node) = node.as_rest_parameter_node() {
        node.name()
    } else if let Some(node) = node.as_keyword_rest_parameter_node() {
        node.name()
    } else {
        node.as_block_parameter_node().and_then(|node| node.name())
    }
}

/// The names a block gives its parameters, and whether one of them is destructured.
fn block_parameters(block: &prism::BlockNode<'_>) -> (Vec<String>, bool) {
    let Some(parameters) = block.parameters() else { return (Vec::new(), false) };
    if parameters.as_it_parameters_node().is_some() {
        return (vec!["it".to_owned()], false);
    }
    if let Some(numbered) = parameters.as_numbered_parameters_node() {
        return ((1..=numbered.maximum()).map(|number| format!("_{number}")).collect(), false);
    }
    let given = parameters.as_block_parameters_node().and_then(|node| node.parameters());
    let Some(given) = given else { return (Vec::new(), false) };
    let destructured = given.requireds().iter().any(|node| node.as_multi_target_node().is_some());
    (parameter_names(&given), destructured)
}

/// Whether a handler catches the absence of a library.
fn rescues_load(clause: &prism::RescueNode<'_>) -> bool {
    let catches = |node: prism::Node<'_>| {
        let names = ["LoadError", "ScriptError", "Exception", "::LoadError"];
        names.contains(&summary::constant_path(&node).as_str())
    };
    clause.exceptions().iter().any(catches)
}
