//! Reads Python with ruff's parser.

mod import;
mod nesting;
mod raising;
mod summary;
mod write;

use std::cell::Cell;

use ruff_python_ast::visitor::source_order::{
    SourceOrderVisitor, walk_body, walk_except_handler, walk_expr, walk_parameters, walk_stmt,
};
use ruff_python_ast::{
    BoolOp, ExceptHandler, Expr, ExprAttribute, ExprCall, ExprContext, ExprLambda, ExprSubscript,
    InterpolatedStringElement, Parameters, PythonVersion, Stmt, StmtClassDef, StmtFor,
    StmtFunctionDef, StmtTry,
};
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use ruff_text_size::Ranged;
use serde_json::Value;

pub(super) use nesting::too_deep;
use summary::constant;

use super::recorder::{InspectionRecorder, ScopeFrame, without_filled};
use super::{
    Definition, DefinitionKind, DefinitionOwner, Inspection, Operand, Parameter, ParameterKind,
    Position, Signature, SyntaxFault,
};

pub(super) fn inspect(source: &str) -> Result<Inspection, SyntaxFault> {
    if too_deep(source) {
        let message = "the program is nested too deeply".to_owned();
        return Err(SyntaxFault { message, position: Position::START });
    }
    let recorder = InspectionRecorder::new(source);
    // A top-level `return` is accepted here; the interpreter's own compiler judges the rest.
    let options = ParseOptions::from(Mode::Module).with_target_version(PythonVersion::latest());
    let parsed = parse_unchecked(source, options);
    if let Some(error) = parsed.errors().first() {
        let position = recorder.position(error.location.start().to_usize());
        return Err(SyntaxFault { message: error.error.to_string(), position });
    }
    let mut reader = Reader {
        recorder,
        classes: 0,
        stars: Vec::new(),
        level: Cell::new(0),
        lambda_element: None,
        last_lambda: None,
    };
    if let Some(module) = parsed.syntax().as_module() {
        reader.module(&module.body);
    }
    Ok(reader.recorder.found)
}

struct Reader<'s> {
    recorder: InspectionRecorder<'s>,
    /// How many classes are around the current place.
    classes: usize,
    /// Modules whose names were all imported (`from os import *`).
    stars: Vec<String>,
    /// How many summaries are around the one being made.
    level: Cell<usize>,
    /// What a lambda among the arguments of the call being read is given.
    lambda_element: Option<Operand>,
    /// The lambda read last.
    last_lambda: Option<ScopeFrame>,
}

impl Reader<'_> {
    /// The last expression of a program is its answer.
    fn module(&mut self, body: &[Stmt]) {
        let Some((last, rest)) = body.split_last() else { return };
        walk_body(self, rest);
        if let Stmt::Expr(statement) = last {
            self.visit_expr(&statement.value);
            let value = self.summary(&statement.value);
            self.recorder.returned(value, statement.start().to_usize());
            self.recorder.found.ends_in_output =
                prints_each(&statement.value) || writes_output(&statement.value);
        } else {
            self.visit_stmt(last);
        }
    }

    fn function(&mut self, node: &StmtFunctionDef) {
        for decorator in &node.decorator_list {
            self.visit_decorator(decorator);
        }
        walk_parameters(self, &node.parameters);
        let owner =
            if self.classes > 0 { DefinitionOwner::Class } else { DefinitionOwner::Program };
        let (parameters, filled) = parameters(&node.parameters, owner == DefinitionOwner::Program);
        self.recorder.bind(&node.name, &Operand::Function);
        self.recorder.enter(parameters, filled.as_deref());
        let classes = std::mem::take(&mut self.classes);
        walk_body(self, &node.body);
        self.classes = classes;
        let frame = self.recorder.leave();
        let is_plain = node.decorator_list.is_empty();
        let signature =
            is_plain.then(|| signature(&node.parameters, owner == DefinitionOwner::Program));
        self.define(DefinitionKind::Function, &node.name, node.name.start().to_usize(), |it| {
            it.signature = signature;
            // What a decorator makes of it is not known.
            it.gives_value = frame.gives_value || !is_plain;
            (it.owner, it.parameters) = (owner, frame.parameters);
            it.reads_parameters = frame.reads_parameters;
        });
    }

    /// `name = lambda …` defines a function of that name.
    fn named_lambda(&mut self, target: &Expr, value: &Expr) {
        let Some(frame) = self.last_lambda.take() else { return };
        let (Expr::Name(name), Expr::Lambda(_)) = (target, value) else { return };
        let owner =
            if self.classes > 0 { DefinitionOwner::Class } else { DefinitionOwner::Program };
        self.define(DefinitionKind::Lambda, &name.id, target.start().to_usize(), |it| {
            (it.owner, it.parameters) = (owner, frame.parameters);
            it.reads_parameters = frame.reads_parameters;
        });
    }

    fn class(&mut self, node: &StmtClassDef) {
        let offset = node.name.start().to_usize();
        self.define(DefinitionKind::Class, &node.name, offset, |_| {});
        for decorator in &node.decorator_list {
            self.visit_decorator(decorator);
        }
        if let Some(arguments) = &node.arguments {
            self.visit_arguments(arguments);
        }
        self.classes += 1;
        walk_body(self, &node.body);
        self.classes -= 1;
        self.recorder.bind(&node.name, &Operand::Unknown);
    }

    fn define(
        &mut self,
        kind: DefinitionKind,
        name: &str,
        offset: usize,
        refine: impl FnOnce(&mut Definition),
    ) {
        let mut definition = Definition {
            kind,
            name: name.to_owned(),
            owner: DefinitionOwner::Program,
            signature: None,
            parameters: Vec::new(),
            reads_parameters: false,
            gives_value: true,
            position: self.recorder.position(offset),
        };
        refine(&mut definition);
        self.recorder.found.definitions.push(definition);
    }

    fn for_loop(&mut self, node: &StmtFor) {
        self.visit_expr(&node.iter);
        self.visit_expr(&node.target);
        for (name, element) in self.elements_of(&node.iter, &node.target) {
            self.recorder.bind(&name, &element);
        }
        walk_body(self, &node.body);
        walk_body(self, &node.orelse);
    }

    /// Most context managers return themselves: a session is the session it was made as.
    fn enter_with(&mut self, target: &Expr, manager: &Expr) {
        let manager = self.summary(manager);
        if matches!(manager, Operand::Instance(_)) {
            self.assign_value(target, manager);
        } else {
            self.assign_to(target, None);
        }
    }

    /// What the names of a loop's target stand for: an element, its parts, or a number and an element.
    fn elements_of(&self, iterated: &Expr, target: &Expr) -> Vec<(String, Operand)> {
        let Some(targets) = elements(target) else {
            let name = target.as_name_expr().map(|name| name.id.to_string());
            return name.map(|name| (name, self.summary(iterated).element())).into_iter().collect();
        };
        let counted = iterated.as_call_expr().filter(|call| is_named(&call.func, "enumerate"));
        if let (Some([of, ..]), [number, target]) = (counted.map(|c| &*c.arguments.args), targets) {
            let number = number.as_name_expr().map(|name| (name.id.to_string(), Operand::Unknown));
            return number.into_iter().chain(self.elements_of(of, target)).collect();
        }
        let names = targets.iter().filter_map(|target| target.as_name_expr());
        names.map(|name| (name.id.to_string(), Operand::Unknown)).collect()
    }

    fn try_block(&mut self, node: &StmtTry) {
        let survives = node.handlers.iter().any(rescues_import);
        let first = self.recorder.found.calls.len();
        let guards = usize::from(!node.handlers.is_empty());
        self.recorder.optional += usize::from(survives);
        self.recorder.guards += guards;
        walk_body(self, &node.body);
        self.recorder.guards -= guards;
        self.recorder.optional -= usize::from(survives);
        for handler in &node.handlers {
            self.recorder.enter_handler(first);
            // A second import in the handler of a first is the alternative to it.
            self.recorder.optional += usize::from(survives);
            walk_except_handler(self, handler);
            self.recorder.optional -= usize::from(survives);
            self.recorder.leave_handler();
        }
        walk_body(self, &node.orelse);
        walk_body(self, &node.finalbody);
    }

    fn call(&mut self, node: &ExprCall) {
        let offset = node.func.start().to_usize();
        let arguments = self.arguments(&node.arguments);
        if let Some(module) = self.imported_by_call(node) {
            self.imported(&module, offset);
        }
        if let Expr::Attribute(function) = &*node.func {
            let receiver = self.summary(&function.value);
            let offset = function.attr.start().to_usize();
            self.recorder.call(Some(receiver), &function.attr, arguments, offset);
        } else if let Expr::Name(function) = &*node.func {
            let name = self.function_name(&function.id);
            if self.recorder.bound(&function.id).is_none() {
                self.starred(&function.id, offset);
            }
            self.recorder.call(None, &name, arguments, offset);
        } else if let Some(path) = self.summary(&node.func).path() {
            self.recorder.call(None, path, arguments, offset);
        }
    }

    /// `sorted(tools, key=lambda tool: …)`: the lambda is given what iterating over `tools` yields.
    fn element_of_arguments(&self, node: &ExprCall) -> Option<Operand> {
        let Expr::Name(function) = &*node.func else { return None };
        if !matches!(function.id.as_str(), "sorted" | "min" | "max" | "filter" | "map") {
            return None;
        }
        let elements = node.arguments.args.iter().map(|given| self.summary(given).element());
        elements.into_iter().find(|element| *element != Operand::Unknown)
    }

    /// The full name of an imported function, else the name itself.
    fn function_name(&self, name: &str) -> String {
        let bound = self.recorder.bound(name).and_then(|bound| bound.path());
        bound.unwrap_or(name).to_owned()
    }

    /// The whole of `os.path.join` is one mention; what is left of it is not read again.
    fn attribute(&mut self, node: &ExprAttribute) {
        let object = self.summary(&node.value);
        let offset = node.attr.start().to_usize();
        if let Some(path) = object.path() {
            return self.recorder.path(&format!("{path}.{}", node.attr), node.start().to_usize());
        }
        self.visit_expr(&node.value);
        if node.ctx == ExprContext::Load && !summary::is_map_method(&node.attr) {
            self.recorder.lookup(object, Value::from(node.attr.as_str()), offset);
        }
    }

    fn subscript(&mut self, node: &ExprSubscript) {
        self.visit_expr(&node.value);
        self.visit_expr(&node.slice);
        if node.ctx != ExprContext::Load {
            return;
        }
        if let Some(key) = constant(&node.slice) {
            let object = self.summary(&node.value);
            self.recorder.lookup(object, key, node.start().to_usize());
        }
    }

    /// The body of a lambda sees its parameters; the first may be an element of what it is applied to.
    fn lambda(&mut self, expression: &Expr, node: &ExprLambda) {
        let (parameters, _) = match &node.parameters {
            Some(given) => parameters(given, false),
            None => (Vec::new(), None),
        };
        let element = self.lambda_element.take().zip(parameters.first().cloned());
        self.recorder.enter(parameters, None);
        if let Some((element, first)) = &element {
            self.recorder.bind(first, element);
        }
        walk_expr(self, expression);
        self.last_lambda = Some(self.recorder.leave());
        self.lambda_element = element.map(|(element, _)| element);
    }

    /// The values of `a or b`: each but the last has a default.
    fn alternatives(&mut self, values: &[Expr]) {
        for (index, value) in values.iter().enumerate() {
            let has_default = usize::from(index + 1 < values.len());
            self.recorder.defaults += has_default;
            self.visit_expr(value);
            self.recorder.defaults -= has_default;
        }
    }

    /// The variables of a comprehension come after the expression that uses them.
    fn comprehension(&mut self, node: &Expr, generators: &[ruff_python_ast::Comprehension]) {
        let mut replaced = Vec::new();
        for generator in generators {
            for (name, element) in self.elements_of(&generator.iter, &generator.target) {
                let before = self.recorder.bind_for_now(&name, &element);
                replaced.push((name, before));
            }
        }
        walk_expr(self, node);
        for (name, before) in replaced.into_iter().rev() {
            self.recorder.restore(name, before);
        }
    }
}

impl<'a> SourceOrderVisitor<'a> for Reader<'_> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "ruff's statements; the rest is only walked"
    )]
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Import(node) => self.import(node),
            Stmt::ImportFrom(node) => self.import_from(node),
            Stmt::Assign(node) => self.assign(node),
            Stmt::AnnAssign(node) => {
                if let Some(value) = &node.value {
                    self.visit_expr(value);
                    self.visit_expr(&node.target);
                    self.assign_to(&node.target, Some(value));
                }
            }
            Stmt::AugAssign(node) => {
                self.visit_expr(&node.value);
                self.augmented(&node.target, &node.value);
                walk_expr(self, &node.target);
            }
            Stmt::Delete(node) => node.targets.iter().for_each(|target| self.delete(target)),
            Stmt::FunctionDef(node) => self.function(node),
            Stmt::ClassDef(node) => self.class(node),
            Stmt::For(node) => self.for_loop(node),
            Stmt::Try(node) => self.try_block(node),
            Stmt::Return(node) => {
                walk_stmt(self, statement);
                if let Some(value) = &node.value {
                    let value = self.summary(value);
                    self.recorder.gives_value();
                    self.recorder.returned(value, node.start().to_usize());
                }
            }
            Stmt::Raise(node) => {
                walk_stmt(self, statement);
                self.raises(node);
            }
            Stmt::Expr(node) if node.value.is_string_literal_expr() => {
                if let Some(value) = constant(&node.value) {
                    self.recorder.docstring(value, node.start().to_usize());
                }
            }
            Stmt::With(node) => {
                for item in &node.items {
                    self.visit_with_item(item);
                    if let Some(target) = &item.optional_vars {
                        self.enter_with(target, &item.context_expr);
                    }
                }
                walk_body(self, &node.body);
            }
            _ => walk_stmt(self, statement),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "ruff's expressions; the rest is only walked"
    )]
    fn visit_expr(&mut self, expression: &'a Expr) {
        let offset = expression.start().to_usize();
        match expression {
            Expr::Call(node) => {
                let element = self.element_of_arguments(node);
                let around = std::mem::replace(&mut self.lambda_element, element);
                walk_expr(self, expression);
                self.lambda_element = around;
                self.call(node);
            }
            Expr::Attribute(node) => self.attribute(node),
            Expr::Subscript(node) => self.subscript(node),
            Expr::Name(node) if node.ctx == ExprContext::Load => {
                self.recorder.read(&node.id);
                if let Some(path) = self.summary(expression).path() {
                    self.recorder.path(path, offset);
                }
            }
            Expr::Lambda(node) => self.lambda(expression, node),
            Expr::Yield(_) | Expr::YieldFrom(_) => {
                self.recorder.gives_value();
                walk_expr(self, expression);
            }
            Expr::BoolOp(node) if node.op == BoolOp::Or => self.alternatives(&node.values),
            Expr::Named(node) => {
                self.visit_expr(&node.value);
                self.assign_to(&node.target, Some(&node.value));
            }
            Expr::ListComp(node) => self.comprehension(expression, &node.generators),
            Expr::SetComp(node) => self.comprehension(expression, &node.generators),
            Expr::DictComp(node) => self.comprehension(expression, &node.generators),
            Expr::Generator(node) => self.comprehension(expression, &node.generators),
            Expr::Dict(node) => {
                for item in &node.items {
                    if let Some(key) = item.key.as_ref().filter(|key| !key.is_literal_expr()) {
                        self.visit_expr(key);
                    }
                    self.visit_expr(&item.value);
                }
            }
            _ => match constant(expression) {
                Some(value) => self.recorder.literal(value, offset),
                None => walk_expr(self, expression),
            },
        }
    }

    fn visit_interpolated_string_element(&mut self, element: &'a InterpolatedStringElement) {
        if let InterpolatedStringElement::Literal(text) = element {
            self.recorder.literal(Value::from(&*text.value), element.start().to_usize());
        } else {
            ruff_python_ast::visitor::source_order::walk_interpolated_string_element(self, element);
        }
    }
}

/// `sys.stdout.write(text)`: a count of characters.
fn writes_output(expression: &Expr) -> bool {
    let Some(call) = expression.as_call_expr() else { return false };
    let Some(writer) = call.func.as_attribute_expr() else { return false };
    let attribute = writer.value.as_attribute_expr().map(|stream| stream.attr.as_str());
    let stream = attribute.or_else(|| writer.value.as_name_expr().map(|stream| stream.id.as_str()));
    writer.attr.as_str() == "write" && matches!(stream, Some("stdout" | "stderr"))
}

/// `[print(row) for row in rows]`: a list of nothing.
fn prints_each(expression: &Expr) -> bool {
    let Expr::ListComp(list) = expression else { return false };
    list.elt.as_call_expr().is_some_and(|call| is_named(&call.func, "print"))
}

fn is_named(function: &Expr, name: &str) -> bool {
    function.as_name_expr().is_some_and(|function| function.id == name)
}

/// The members of a literal tuple or list.
fn elements(expression: &Expr) -> Option<&[Expr]> {
    if let Expr::Tuple(node) = expression {
        Some(&node.elts)
    } else if let Expr::List(node) = expression {
        Some(&node.elts)
    } else {
        None
    }
}

/// The names of parameters, and the leading one the harness fills, which is not an input.
fn parameters(given: &Parameters, may_be_filled: bool) -> (Vec<String>, Option<String>) {
    let names = given.iter().map(|parameter| parameter.name().to_string()).collect();
    without_filled(names, may_be_filled)
}

/// What a function takes; what a decorator makes of it is not known.
fn signature(given: &Parameters, may_be_filled: bool) -> Signature {
    let listed = [
        (&given.posonlyargs, ParameterKind::Positional),
        (&given.args, ParameterKind::Either),
        (&given.kwonlyargs, ParameterKind::Keyword),
    ];
    let all = listed.into_iter().flat_map(|(parameters, kind)| {
        parameters.iter().map(move |it| Parameter {
            name: it.parameter.name.to_string(),
            kind,
            required: it.default.is_none(),
        })
    });
    let (rest, keyword_rest) = (given.vararg.is_some(), given.kwarg.is_some());
    Signature { parameters: all.collect(), rest, keyword_rest, filled: false }.filled(may_be_filled)
}

/// Whether a handler catches the absence of a library.
fn rescues_import(handler: &ExceptHandler) -> bool {
    let ExceptHandler::ExceptHandler(handler) = handler;
    let Some(caught) = handler.type_.as_deref() else { return true };
    let catches = |caught: &Expr| {
        let names = ["ImportError", "ModuleNotFoundError", "Exception", "BaseException"];
        caught.as_name_expr().is_some_and(|name| names.contains(&name.id.as_str()))
    };
    elements(caught).map_or_else(|| catches(caught), |all| all.iter().any(catches))
}
