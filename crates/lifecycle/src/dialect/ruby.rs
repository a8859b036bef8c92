//! Reads Ruby with prism, Ruby's own parser.

mod dispatch;
mod output;
mod parameters;
mod raising;
mod summary;
mod write;

use std::cell::Cell;

use ruby_prism as prism;
use ruby_prism::Visit;
use serde_json::Value;

use super::recorder::InspectionRecorder;
use super::{
    Argument, Definition, DefinitionKind, DefinitionOwner, Import, Inspection, MAX_NESTING,
    Operand, SyntaxFault, Target,
};
use dispatch::NodeDispatch;
use parameters::{block_parameters, parameters, signature};
use summary::{constant, text};
use write::{updates, writes};

/// Prefix operators and opening brackets that follow each other, at most. Each is a level of nesting, and the time that
/// Prism takes grows with the square of the levels.
const MAX_OPENING_RUN: usize = 2000;

/// Where a run of prefix operators and opening brackets becomes longer than [`MAX_OPENING_RUN`].
pub(super) fn long_run(source: &str) -> Option<usize> {
    let mut run = 0;
    source.bytes().position(|byte| {
        match byte {
            b'!' | b'~' | b'-' | b'+' | b'*' | b'&' | b'(' | b'[' | b'{' | b'^' | b':' | b'?' => {
                run += 1;
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => run = 0,
        }
        run > MAX_OPENING_RUN
    })
}

pub(super) fn inspect(source: &str) -> Result<Inspection, SyntaxFault> {
    if let Some(offset) = long_run(source) {
        let message = "the program is nested too deeply".to_owned();
        let position = InspectionRecorder::new(source).position(offset);
        return Err(SyntaxFault { message, position });
    }
    let parsed = prism::parse(source.as_bytes());
    let recorder = InspectionRecorder::new(source);
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
    recorder: InspectionRecorder<'s>,
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
            let statements = program.statements();
            let last = statements.body().last();
            self.recorder.found.ends_in_output =
                last.is_some_and(|last| output::only_prints(&last));
            self.last_statement(Some(statements));
        }
    }

    /// The last expression of a body is what the body gives.
    fn last_statement(&mut self, statements: Option<prism::StatementsNode<'pr>>) {
        let Some(last) = statements.and_then(|statements| statements.body().last()) else { return };
        let value = self.summary(&last);
        self.recorder.returned(value, self.at(&last.location()));
    }

    fn at(&self, location: &prism::Location<'pr>) -> usize {
        self.recorder.offset(location.start_line(), location.start_column())
    }

    fn visit_all(&mut self, nodes: &prism::NodeList<'pr>) {
        for node in nodes {
            self.visit(&node);
        }
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
            // A program that takes a method will call it, with arguments not known here.
            arguments.push(Argument { name: Some("&".to_owned()), value: Operand::Unknown });
        }
        if node.is_variable_call() {
            self.recorder.read(&name);
        }
        if receiver.is_none() && name == "require" {
            self.required(arguments.first().and_then(|a| a.value.text()), at);
        }
        let key = arguments.first().and_then(|a| a.value.literal()).cloned();
        let has_default = name == "fetch" && arguments.len() > 1;
        let default =
            arguments.get(1).and_then(|a| a.value.literal()).filter(|_| has_default).cloned();
        match (receiver, key) {
            // Every message to a class or module is a call, whatever its name.
            (Some(object), Some(key))
                if object.path().is_none() && matches!(name.as_str(), "[]" | "fetch" | "dig") =>
            {
                self.recorder.defaults += usize::from(has_default);
                self.recorder.default = default;
                self.recorder.lookup(object, key, at);
                self.recorder.default = None;
                self.recorder.defaults -= usize::from(has_default);
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
        let element = self.yielded(node);
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

    /// What the call gives its block: an element of what it iterates over, or what it opened
    /// (`Net::HTTP.start { |http| … }`).
    fn yielded(&self, node: &prism::CallNode<'pr>) -> Operand {
        let name = node.name().as_slice();
        let Some(receiver) = node.receiver().map(|receiver| self.summary(&receiver)) else {
            return Operand::Unknown;
        };
        match receiver.path() {
            Some(class) if matches!(name, b"new" | b"start" | b"open" | b"tcp") => {
                Operand::Instance(Some(class.into()))
            }
            _ if yields_elements(name) => receiver.element(),
            _ => Operand::Unknown,
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
            owner: DefinitionOwner::Program,
            signature: None,
            parameters: Vec::new(),
            reads_parameters: false,
            gives_value: true,
            position: self.recorder.position(at),
        });
        self.modules.push(name);
        if let Some(body) = body {
            self.visit(&body);
        }
        self.modules.pop();
    }

    fn owner(&self, receiver: Option<prism::Node<'pr>>) -> DefinitionOwner {
        match receiver {
            Some(receiver) if receiver.as_self_node().is_none() => {
                DefinitionOwner::Object(self.summary(&receiver))
            }
            _ if self.modules.is_empty() => DefinitionOwner::Program,
            _ => DefinitionOwner::Class,
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
        NodeDispatch(self).visit(node);
        self.depth -= 1;
    }

    fn visit_call_node(&mut self, node: &prism::CallNode<'pr>) {
        if let Some(receiver) = node.receiver() {
            // `found&.size` provides for what is not there.
            self.recorder.defaults += usize::from(node.is_safe_navigation());
            self.visit(&receiver);
            self.recorder.defaults -= usize::from(node.is_safe_navigation());
        }
        if let Some(arguments) = node.arguments() {
            self.visit_all(&arguments.arguments());
        }
        self.raises(node);
        let name = text(node.name().as_slice());
        if node.is_attribute_write() {
            self.attribute_write(node, &name);
        } else {
            self.call(node);
        }
        self.block(node);
    }

    writes! {
        visit_local_variable_write_node: LocalVariableWriteNode => name_write,
        visit_local_variable_or_write_node: LocalVariableOrWriteNode => name_default,
        visit_local_variable_and_write_node: LocalVariableAndWriteNode => name_update,
        visit_local_variable_operator_write_node: LocalVariableOperatorWriteNode => name_update,
        visit_instance_variable_write_node: InstanceVariableWriteNode => name_write,
        visit_global_variable_write_node: GlobalVariableWriteNode => name_write,
        visit_global_variable_or_write_node: GlobalVariableOrWriteNode => name_update,
        visit_global_variable_and_write_node: GlobalVariableAndWriteNode => name_update,
        visit_global_variable_operator_write_node: GlobalVariableOperatorWriteNode => name_update,
        visit_constant_write_node: ConstantWriteNode => name_write,
    }
    updates! {
        visit_index_or_write_node: IndexOrWriteNode, item_update(arguments, given),
        visit_index_and_write_node: IndexAndWriteNode, item_update(arguments, unknown),
        visit_index_operator_write_node: IndexOperatorWriteNode, item_update(arguments, given),
        visit_call_or_write_node: CallOrWriteNode, attribute_update(read_name, given),
        visit_call_and_write_node: CallAndWriteNode, attribute_update(read_name, unknown),
        visit_call_operator_write_node: CallOperatorWriteNode, attribute_update(read_name, given),
    }

    fn visit_local_variable_target_node(&mut self, node: &prism::LocalVariableTargetNode<'pr>) {
        self.recorder.bind(&text(node.name().as_slice()), &Operand::Unknown);
    }

    fn visit_global_variable_target_node(&mut self, node: &prism::GlobalVariableTargetNode<'pr>) {
        let target = Target::Name(text(node.name().as_slice()));
        self.recorder.assign(target, Operand::Unknown, self.at(&node.location()));
    }

    fn visit_index_target_node(&mut self, node: &prism::IndexTargetNode<'pr>) {
        prism::visit_index_target_node(self, node);
        let (object, key) = (self.summary(&node.receiver()), write::key(node.arguments().as_ref()));
        self.recorder.assign(
            Target::Item { object, key },
            Operand::Unknown,
            self.at(&node.location()),
        );
    }

    fn visit_call_target_node(&mut self, node: &prism::CallTargetNode<'pr>) {
        prism::visit_call_target_node(self, node);
        let target = write::attribute(self.summary(&node.receiver()), &node.name());
        self.recorder.assign(target, Operand::Unknown, self.at(&node.location()));
    }

    fn visit_constant_path_write_node(&mut self, node: &prism::ConstantPathWriteNode<'pr>) {
        prism::visit_constant_path_write_node(self, node);
        if let (Some(parent), Some(name)) = (node.target().parent(), node.target().name()) {
            let target = write::attribute(self.summary(&parent), &name);
            let value = self.summary(&node.value());
            self.recorder.assign(target, value, self.at(&node.location()));
        }
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
        let (parameters, filled) =
            parameters(node.parameters().as_ref(), owner == DefinitionOwner::Program);
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
        let frame = self.recorder.leave();
        let prints = node.body().is_none_or(|body| output::only_prints(&body));
        let position = self.recorder.position(self.at(&node.name_loc()));
        let (kind, name) = (DefinitionKind::Function, text(node.name().as_slice()));
        let signature =
            Some(signature(node.parameters().as_ref(), owner == DefinitionOwner::Program));
        self.define(Definition {
            kind,
            name,
            owner,
            signature,
            parameters: frame.parameters,
            reads_parameters: frame.reads_parameters,
            gives_value: frame.gives_value || !prints,
            position,
        });
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
            signature: None,
            parameters: Vec::new(),
            reads_parameters: false,
            gives_value: true,
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
        if let Some(reference) = node.reference() {
            self.visit(&reference);
        }
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
        self.recorder.returned(value, self.at(&node.location()));
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

    /// `found || otherwise` provides for what is not there, as does `if found`.
    fn visit_or_node(&mut self, node: &prism::OrNode<'pr>) {
        self.recorder.defaults += 1;
        self.visit(&node.left());
        self.recorder.defaults -= 1;
        self.visit(&node.right());
    }

    fn visit_if_node(&mut self, node: &prism::IfNode<'pr>) {
        self.recorder.defaults += 1;
        self.visit(&node.predicate());
        self.recorder.defaults -= 1;
        if let Some(statements) = node.statements() {
            self.visit(&statements.as_node());
        }
        if let Some(otherwise) = node.subsequent() {
            self.visit(&otherwise);
        }
    }

    fn visit_return_node(&mut self, node: &prism::ReturnNode<'pr>) {
        prism::visit_return_node(self, node);
        if let Some(value) = node.arguments().and_then(|given| given.arguments().first()) {
            self.recorder.gives_value();
            let value = self.summary(&value);
            self.recorder.returned(value, self.at(&node.location()));
        }
    }

    /// A constant key of a literal map is not a literal of the program.
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
    plain && is_keyed(object) && !summary::is_map_method(node.name().as_slice())
}

/// Whether its entries can be read like attributes.
fn is_keyed(object: &Operand) -> bool {
    matches!(object.resolved(), Operand::ToolItem | Operand::Context)
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

/// Whether one of the handlers from this one on catches the absence of a library.
fn rescues_load(clause: &prism::RescueNode<'_>) -> bool {
    let catches = |node: prism::Node<'_>| {
        let names = ["LoadError", "ScriptError", "Exception", "::LoadError"];
        names.contains(&summary::constant_path(&node).as_str())
    };
    let mut clause = Some(clause.as_node());
    while let Some(node) = clause.as_ref().and_then(prism::Node::as_rescue_node) {
        if node.exceptions().iter().any(catches) {
            return true;
        }
        clause = node.subsequent().map(|next| next.as_node());
    }
    false
}
